"""What others say at the forge: named checks and people's reviews, asked for, waited for, and heard.

Asked at the end of development (checks), before the slots are taken, by main's configuration as it is then, and once
more before the merge. What must hold: each word is about the commit that was gated, or nothing; a request for changes
goes to development once, with its words; nobody waits with the slots in hand. Checks have a term, then a person is
called; for a review a person is called at once, and it may take for ever.

On failure: ``AuthorityUnreachable``; nothing is judged, and the forge is asked again, until that term is over.
"""

from collections.abc import Callable
from dataclasses import replace

import structlog

from orchestrator.db import alerts, evidence, leases
from orchestrator.db.database import Tx
from orchestrator.domain.duration import render_duration
from orchestrator.domain.errors import ConfigError, OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.gate import GateResult, Verdict
from orchestrator.domain.ids import Sha
from orchestrator.domain.others import ForgeCheck, Remark, Said
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, HoldCause
from orchestrator.forges.others import Others
from orchestrator.gates.evidence import gather
from orchestrator.gates.quality_gates import QG_CHECKS
from orchestrator.observability.redactor import Redactor
from orchestrator.repo_config.records import RepoConfig
from orchestrator.rules.others import failures, objections, other_names
from orchestrator.rules.transitions import FORGE_CHECKS, FORGE_REVIEWS, Step
from orchestrator.runtime.clock import parse_stamp, stamp
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.situation import Outcome, Situation, Tools
from orchestrator.stage_engine.ways_back import WaysBack

log = structlog.get_logger(__name__)

GATES = frozenset({FORGE_CHECKS.what, FORGE_REVIEWS.what})
ASKED = "asked:"  # the mark of a round that waits, by the gate: since when
DEALT_WITH = "dealt-with:review:"  # the mark of a request for changes, by its number
OBJECTIONS = 5  # of people or checks, whose remarks are read for one round
REASON_LIMIT = 300  # characters of the first finding that stand with the reason
CAUSES = {FORGE_CHECKS: HoldCause.CHECKS, FORGE_REVIEWS: HoldCause.REVIEWS}


class OthersGates:
    """Judges what others say."""

    def __init__(self, tools: Tools, moves: Moves, back: WaysBack) -> None:
        self._tools = tools
        self._moves = moves
        self._back = back
        self._redactor = Redactor(tools.secrets)

    def gate(self, at: Situation, step: Step) -> Outcome:
        """Judge a step's gate, and pass, send back or wait."""
        try:
            result, said = self._judged(at, step, at.settings)
        except OutsideError as error:
            return self._unreadable(at, step, at.settings, error)
        if result.passed:
            facts = {**result.evidence, "verdict": result.verdict.value, "reason": result.reason}
            return self._moves.mark(at, step, facts, event=EventType.GATE_JUDGED)
        return self._not_passed(at, step, at.settings, result, said)

    def before_the_slots(self, at: Situation, config: RepoConfig) -> Outcome | None:
        """Judge what ``config`` asks for while no slot is taken; None where all of it has passed."""
        asked = (
            (FORGE_CHECKS, bool(config.forge.required_checks)),
            (FORGE_REVIEWS, config.forge.required_reviews > 0),
        )
        for step in (step for step, wanted in asked if wanted):
            try:
                result, said = self._judged(at, step, config)
            except OutsideError as error:
                return self._unreadable(at, step, config, error)
            if not result.passed:
                return self._not_passed(at, step, config, result, said)
            if (mark := ASKED + step.what) in at.passed:  # another wait has a term of its own
                with self._tools.database.write() as tx:
                    leases.check(tx, at.lease)
                    evidence.forget_step(tx, at.task, mark)
        return None

    # -- private steps -----------------------------------------------------------------------------------------

    def _judged(self, at: Situation, step: Step, config: RepoConfig) -> tuple[GateResult, Said]:
        said = self._said(at, step, config)
        with self._tools.database.read() as tx:
            seen = gather(tx, at.task, config=config, clone=at.place.clone)
        result = QG_CHECKS[step.what](replace(seen, said=said))
        self._tools.waypoints.reach(f"{step.what}.judged", task=at.task.id, verdict=result.verdict)
        return result, said

    def _said(self, at: Situation, step: Step, config: RepoConfig) -> Said:
        """What the forge shows now of the commit that is judged: the gated one, or the head, which will be gated."""
        others, task = _others(at), at.task
        head = task.head_sha or task.base_sha or Sha("")
        subject = head if task.stage is Stage.DEVELOPMENT else task.gated_sha or head
        with self._tools.database.read() as tx:
            own = evidence.own_commits(tx, task.id)
            dealt_with = frozenset(int(number) for number in evidence.marks(tx, task.id, DEALT_WITH))
        if step == FORGE_CHECKS:
            found = Said(subject, frozenset({subject}), checks=tuple(others.checks(subject)))
            bad = failures(config.forge.required_checks, found)[:OBJECTIONS]
            return replace(found, remarks={one.order: _findings(others, one) for one in bad})
        at.place.clone.want(head)
        since = [commit.sha for commit in at.place.clone.commits(subject, head)] if head != subject else []
        # Documents of our own on top of what was judged change nothing of it; whoever sees them approves it, too.
        about = frozenset({subject, *(sha for sha in since if sha in own)})
        number = task.pr_number or 0
        said = Said(subject, about, reviews=tuple(others.reviews(number)), dealt_with=dealt_with)
        against = objections(said)[:OBJECTIONS]
        remarks = {one.number: tuple(others.remarks(number, one.number)) for one in against}
        return replace(said, remarks=remarks, pull_request=others.page(number))

    def _not_passed(
        self, at: Situation, step: Step, config: RepoConfig, result: GateResult, said: Said
    ) -> Outcome:
        if result.verdict is Verdict.WAIT:
            if at.task.stage is Stage.DEPLOY_STAGING:  # nobody waits with the slots in hand
                return self._back.requeue(at, result.reason)
            return self._wait(at, step, config, result, said)
        clean = self._without_secrets(result)
        self._moves.judged(at, step.what, clean)
        first = clean.findings[0].message.partition("\n")[0][:REASON_LIMIT] if clean.findings else ""
        reason = f"{clean.reason} {first}".rstrip()
        return self._back.reject(at, reason, brief=clean.brief(), gone=_deal_with(at, said))

    def _wait(self, at: Situation, step: Step, config: RepoConfig, result: GateResult, said: Said) -> Outcome:
        mark, reason = ASKED + step.what, result.reason
        limit = config.forge.checks_timeout_s
        if step == FORGE_CHECKS and self._waited_s(at, mark) > limit:
            names = other_names(config.forge.required_checks, said)
            return self._call(at, mark, f"{reason}. So it has been for {render_duration(limit)}. {names}")

        def also(tx: Tx) -> None:
            evidence.mark_step(tx, at.task, mark, {"since": self._now()})
            if step == FORGE_REVIEWS:
                text = f"{at.task.work_item} {at.task.stage}: {reason}"
                about = (at.task.work_item, "review", at.task.round, said.subject)
                alerts.call_and_comment(tx, at.task, text, *about)

        self._moves.hold(at, Hold.BLOCKED, reason, also=also, cause=CAUSES[step])
        return Outcome.ASKED

    def _unreadable(self, at: Situation, step: Step, config: RepoConfig, error: OutsideError) -> Outcome:
        """Nothing is known, and it is asked again; after the term of checks a person is called.

        :raises OutsideError: as it was.
        """
        mark, limit = ASKED + step.what, config.forge.checks_timeout_s
        if self._waited_s(at, mark) > limit:
            why = f"what others say at the forge could not be read for {render_duration(limit)}: {error}"
            return self._call(at, mark, why)
        if mark not in at.passed:
            with self._tools.database.write() as tx:
                leases.check(tx, at.lease)
                evidence.mark_step(tx, at.task, mark, {"since": self._now()})
        raise error

    def _call(self, at: Situation, mark: str, why: str) -> Outcome:
        """Call a person; whoever says "go on" gives it another term."""
        forget: Callable[[Tx], None] = lambda tx: evidence.forget_step(tx, at.task, mark)  # noqa: E731
        return self._moves.hold(at, Hold.ESCALATED, why.strip(), also=forget)

    def _waited_s(self, at: Situation, mark: str) -> float:
        since = at.passed.get(mark, {}).get("since")
        now = self._tools.clock.utc()
        return (now - parse_stamp(str(since))).total_seconds() if since is not None else 0.0

    def _now(self) -> str:
        return stamp(self._tools.clock.utc())

    def _without_secrets(self, result: GateResult) -> GateResult:
        """What others have written is kept and handed on: not with a secret of ours in it."""
        text = self._redactor.text
        findings = tuple(replace(one, message=text(one.message)) for one in result.findings)
        return replace(result, findings=findings)


def _others(at: Situation) -> Others:
    if at.place.others is None:  # the configuration is refused before
        raise ConfigError(f"{at.task.repo} lies at a local forge, which has no checks and reviews of others.")
    return at.place.others


def _findings(others: Others, check: ForgeCheck) -> tuple[Remark, ...]:
    """What a check says of single places: good to have, and that it has failed is known without it."""
    try:
        return tuple(others.findings(check))
    except OutsideError as error:
        log.warning("findings of a check not read", check=check.name, reason=str(error))
        return ()


def _deal_with(at: Situation, said: Said) -> Callable[[Tx], None]:
    """Every request for changes goes to development with this rejection, and sends nothing back a second time."""
    numbers = [review.number for review in objections(said)]

    def mark(tx: Tx) -> None:
        for number in numbers:
            evidence.mark_step(tx, at.task, f"{DEALT_WITH}{number}")

    return mark
