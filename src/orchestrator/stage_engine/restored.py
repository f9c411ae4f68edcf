"""What becomes of an unfinished task when a person has accepted a restore: it waits for its person, and past the point
of no return where main has its merge (DESIGN §6).

Its unsettled effects are behind it by then, as before every signal. Facts decide: what main shows is merged, whatever
the backup says; what was started is not started again by itself, and what was undone leaves the repository frozen.
"""

from collections.abc import Callable
from dataclasses import replace

from orchestrator.db import effects, evidence, restored, slots
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.errors import ConfigError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Hold, Holding, Landed, Task
from orchestrator.effects import judged
from orchestrator.effects.ledger import Proof
from orchestrator.rules.transitions import PROMOTE, START_PRODUCTION, EdgeKind
from orchestrator.stage_engine import serial_gate
from orchestrator.stage_engine.merged import Merged
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.situation import Outcome, Situation, Tools


class Restored:
    """Takes tasks out of the pipeline until a person has looked at them."""

    def __init__(self, tools: Tools, moves: Moves) -> None:
        self._tools = tools
        self._moves = moves
        self._follow = Merged(tools, moves)

    def settle(self, at: Situation, reason: str, answered: Callable[[Tx], None]) -> Outcome:
        """Escalate the task; one whose merge is on main goes to *deploy* first, in the same commit."""
        with self._tools.database.read() as tx:
            candidates = evidence.candidates(tx, at.task.id)
            merged = effects.applied(tx, at.task.id, EffectName.MERGE_PR)
        shown = at.place.forge.landed(candidates) if candidates else None
        if shown is None:
            self._moves.hold(at, Hold.ESCALATED, reason, also=answered)
            return Outcome.MOVED  # what else was said is answered next
        landed = shown.candidate
        production = self._production(at, landed)
        started = self._started(at, landed, production)
        why = f"its merge {landed.sha[:12]} is on main; {_told(started, production)}. {reason}"
        undone = why if started is not None and started.name is EffectName.DEPLOY_UNDO else None
        if merged is None:
            return self._merged(at, candidates[-1], shown, started, why, undone, answered)

        def also(tx: Tx) -> None:
            answered(tx)
            _take_over(tx, at.task, started)
            if undone is not None:
                serial_gate.freeze(tx, at.task, at.lease.owner, undone)
                serial_gate.keep_for_the_freeze(tx, at.task, at.lease.owner)
                slots.keep_for_freeze(tx, at.task.repo)

        self._moves.hold(at, Hold.ESCALATED, why, also=also)
        return Outcome.MOVED

    def _merged(
        self,
        at: Situation,
        tested: Candidate,
        shown: Landed,
        started: Intent | None,
        why: str,
        undone: str | None,
        answered: Callable[[Tx], None],
    ) -> Outcome:
        """Settle it as the ledger would have, and hold the task in *deploy* without its slots."""
        landed = shown.candidate
        fact = {"merged": landed.sha, "round": landed.round, "commit": shown.sha, "tree": shown.tree}

        def settle(tx: Tx) -> Intent:
            answered(tx)
            intent = effects.intend(
                tx,
                at.lease,
                EffectName.MERGE_PR,
                landed.sha,
                landed.round,
                token=landed.fence,
                judged={"repo": at.task.repo, "candidate": judged.of_candidate(tested)},
            )
            proof = Proof(intent, EffectState.APPLIED, fact, "found on main after a restore")
            self._tools.ledger.settle(tx, at.lease, at.task, proof)
            round_ = restored.next_round(tx, at.task.id, Stage.DEPLOY)
            _take_over(tx, replace(at.task, stage=Stage.DEPLOY, round=round_), started)
            return intent

        return self._follow.follow(
            at,
            EdgeKind.RESTORE,
            tested,
            fact,
            settle,
            reason=why,
            frozen_for=undone,
            hold=Holding(Hold.ESCALATED, why),
        )

    def _production(self, at: Situation, landed: Candidate) -> frozenset[str] | None:
        """What production is called, if there is one; None where no usable configuration tells."""
        try:
            production = self._tools.configs.of(at.task.repo, landed.base_sha).production
        except ConfigError:
            return None
        return frozenset({production.name} if production is not None else ())

    def _started(self, at: Situation, landed: Candidate, production: frozenset[str] | None) -> Intent | None:
        """The last thing that was done with M in production, if that ended well; where nobody knows which environment
        that is, in any: then a retry looks before it starts anything, and only production is undone."""
        with self._tools.database.read() as tx:
            ours = effects.of_task(tx, at.task.id)
        starts = [
            e
            for e in ours
            if e.name in (EffectName.DEPLOY_INIT, EffectName.DEPLOY_UNDO)
            and e.state is EffectState.APPLIED
            and e.judged.get("sha") == landed.sha
            and (production is None or e.judged.get("environment") in production)
        ]
        last = max(starts, key=lambda one: one.sequence, default=None)
        if last is None or last.name is EffectName.DEPLOY_UNDO:
            return last
        return last if (last.fact or {}).get("succeeded") is not False else None


def _take_over(tx: Tx, coming: Task, started: Intent | None) -> None:
    """What was started is looked at by a retry, not started again."""
    if started is None or started.name is EffectName.DEPLOY_UNDO:
        return
    for step in (PROMOTE, START_PRODUCTION):
        evidence.mark_step(tx, coming, step.name, {"found": started.key})


def _told(started: Intent | None, production: frozenset[str] | None) -> str:
    if started is None:
        return "it was not brought to production"
    if started.name is EffectName.DEPLOY_UNDO:
        return "it was undone in production"
    if production is None:
        return (
            "production was started with it, or staging: its configuration, which would tell, is not usable"
        )
    return "production was started with it"
