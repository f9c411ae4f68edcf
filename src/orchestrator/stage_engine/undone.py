"""After an undo: how it ended, and what production answers then. Both are told, neither is taken for granted.

What must hold: the commit that settles the undo, at its end and not before, gives the merge slot to the freeze and
calls a person, with a reason that says whether the undo succeeded. Then production itself is asked, once for each undo,
and what it answers is told too. Nothing is started for it: a person decides.
"""

from orchestrator.db import alerts, effects, evidence, jobs, leases, slots
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.ids import Sha
from orchestrator.domain.job import JobKind, JobStatus
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.effects import judged
from orchestrator.effects.deploy import why_not_undone
from orchestrator.effects.ledger import Open, Proof
from orchestrator.stage_engine import serial_gate
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.situation import Outcome, Situation, Tools

IN_DANGER = "production may not run what it should"


class Undone:
    """Follows an undo up."""

    def __init__(self, tools: Tools, moves: Moves) -> None:
        self._tools = tools
        self._moves = moves

    def goes_on(self, at: Situation, undo: Open) -> None:
        """Call a person at once where production is broken and its undo takes its time; once for each undo."""
        if undo.intent.state is EffectState.REVOKING:
            return  # production is healthy, and the undo is called off
        about = (at.task.work_item, "undoing", undo.intent.sequence)
        with self._tools.database.read() as tx:
            if alerts.called(tx, *about):
                return
        why = judged.text(undo.intent, "reason")
        where = f"{at.task.work_item} {at.task.stage}: {at.task.repo}"
        text = f"{where} is frozen and its undo goes on: {why} ({undo.reason})"
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            alerts.call_and_comment(tx, at.task, text, *about)

    def settled(self, at: Situation, proof: Proof) -> Outcome:
        """The undo has ended: the merge slot goes to the freeze, and a person is called."""
        why = judged.text(proof.intent, "reason")

        def freeze(tx: Tx) -> None:
            if slots.frozen(tx, at.task.repo) is None:  # the runner of a deploy of ourselves was first
                serial_gate.freeze(tx, at.task, at.lease.owner, why)
            serial_gate.keep_for_the_freeze(tx, at.task, at.lease.owner)

        failed = why_not_undone(proof.intent, proof.fact)
        if failed is None:
            text = f"production was rolled back and {at.task.repo} is frozen: {why}"
        else:
            text = f"the undo FAILED, {IN_DANGER}, and {at.task.repo} is frozen: {failed} It was sent because {why}"
        self._moves.hold(at, Hold.ESCALATED, text, proofs=[proof], also=freeze)
        return Outcome.MOVED  # production is looked at next

    def look(self, at: Situation) -> Outcome | None:
        """Have production looked at after the undo, and tell what it answers; None where that is behind the task, or
        nothing ran before that could be looked for."""
        if at.task.stage is not Stage.DEPLOY or at.active is not None or "production" not in at.has:
            return None
        with self._tools.database.read() as tx:
            undo = effects.applied(tx, at.task.id, EffectName.DEPLOY_UNDO)
            if undo is None or undo.round != at.task.round or _mark(undo) in at.passed:
                return None
            if effects.start_unsettled(tx, str(undo.judged["environment"])):
                return None
            last = effects.last_start(tx, str(undo.judged["environment"]))
            job = jobs.of_step(tx, at.task, JobKind.PRODUCTION_HEALTH)
            check = evidence.check_result(tx, at.task, JobKind.PRODUCTION_HEALTH)
        restored = undo.judged.get("restored_sha")
        if restored is None or last is None or last.sequence != undo.sequence:
            return None
        wanted = Sha(str(restored))
        if job is None or job.undo != undo.sequence:
            return self._moves.look_after(at, undo.sequence, wanted)
        if job.status is JobStatus.DONE and check is not None:
            return self._tell(at, undo, str(check.detail.get("reason", "")), well=check.passed)
        return self._tell(at, undo, f"it could not be asked: {job.error or job.status}", well=False)

    def _tell(self, at: Situation, undo: Intent, seen: str, *, well: bool) -> Outcome:
        text = f"after the undo {'' if well else f'{IN_DANGER}: '}{seen}"
        before = at.task.hold_reason or ""

        def mark(tx: Tx) -> None:
            evidence.mark_step(tx, at.task, _mark(undo), {"well": well, "seen": seen})

        self._moves.hold(at, Hold.ESCALATED, f"{before} — {text}" if before else text, also=mark)
        return Outcome.MOVED  # a fix may be done by now


def _mark(undo: Intent) -> str:
    """The step that says that the look at production after this undo is behind the task."""
    return f"undone:{undo.sequence}"
