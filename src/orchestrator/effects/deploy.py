"""The effects ``deploy_init`` and ``deploy_undo``: one start of one SHA in one environment (DESIGN §6, "Deploys").

A deploy is applied when the detached child has claimed the start, never by an answer over HTTP: how it ended and what
then runs is for a gate. No gate follows an undo. So it is applied when its command has ended, and its fact says how:
until then it is under way, and nothing that waits for it goes on.
"""

import threading
from collections.abc import Mapping
from dataclasses import replace

from orchestrator.deploy.deployer import Deployer, StartGivenUp
from orchestrator.deploy.prepared import CONDITIONAL_UNDO, PreparedUndo, start_carried
from orchestrator.deploy.records import (
    Claimant,
    ConditionalUndo,
    DeployKind,
    DeployStart,
    Ending,
    Exit,
    RecordLost,
    Started,
)
from orchestrator.domain.effect import (
    Applied,
    Cause,
    EffectName,
    Intent,
    NotApplied,
    Probe,
    Underway,
    Unknown,
)
from orchestrator.domain.errors import InvariantError, OutsideError
from orchestrator.effects import judged
from orchestrator.runtime.paused import NOT_RUN

SAID = (Cause.GIVEN_UP, Cause.AGAIN)  # a person has said that it did not take place
GONE = "artifact_gone"  # in the intent of an undo that cannot run for want of its artefact: which one
MOST_UNDOS_S = 3.0  # so long an undo just sent is waited for: most have ended, and are settled at once


class DeployEffect:
    """A start, forward or back again; once sent it is never turned (law 3)."""

    def __init__(self, name: EffectName, deployer: Deployer, stopping: threading.Event) -> None:
        """``stopping`` is set when the service ends: an undo of ourselves may be waiting for just that."""
        self.name = name
        self._deployer = deployer
        self._stopping = stopping

    def probe(self, intent: Intent) -> Probe:
        """Who holds the claim of this start; of an undo also how its command ended."""
        start = start_of(intent)
        try:
            held = self._deployer.started(start)
            if held is None or held.by is not Claimant.CHILD:
                return NotApplied({"claimed_by": held.by.value if held else None})
            if self.name is not EffectName.DEPLOY_UNDO:
                return Applied(_fact(intent, held))
            ended = self._deployer.exit(start)
        except OutsideError as error:
            return Unknown(str(error), for_good=isinstance(error, RecordLost))
        if ended is None:
            where = f"{start.sha} in {start.environment}"
            return Underway(f"the command that undoes {where} has not ended ({declare_ended(intent)})")
        return Applied({**_fact(intent, held), **_end(ended)})

    def act(self, intent: Intent) -> None:
        """Send the detached child; its claim decides."""
        start = start_of(intent)
        self._deployer.start(start)
        if self.name is EffectName.DEPLOY_UNDO:
            self._deployer.wait(start, self._stopping, MOST_UNDOS_S)

    def said(self, intent: Intent) -> Mapping[str, object] | None:
        """Which start it was; whether it is healthy is a gate's business."""
        return {
            "environment": judged.text(intent, "environment"),
            "sha": judged.text(intent, "sha"),
            "generation": judged.number(intent, "generation"),
            "token": intent.token,
        }

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        """Nothing turns a deploy or its undo. One that was given up in what a restored database has forgotten cannot
        run any more, and is given up here, too."""
        return str(failure) if isinstance(failure, StartGivenUp) else None

    def revoke(self, intent: Intent) -> None:
        """Claim the start for nobody. Where its record is lost, a person's word is needed for that, which was given
        since: what was being given up before is in doubt from then on."""
        self._deployer.revoke(start_of(intent), said=intent.cause in SAID)


def declare_ended(intent: Intent) -> str:
    """For people: what to do where the end of a start's command cannot be found out."""
    return f"if nothing of it is at work any more: orch effect resolve {intent.effect_id} ended"


def why_not_undone(undo: Intent, fact: Mapping[str, object]) -> str | None:
    """Why a settled undo may not have brought back what it should; None where its command ended well.

    One settled before ends were looked at is believed, as it was then.
    """
    if "said_by" in fact:
        return f"that it took place is known from {fact['said_by']} alone"
    if fact.get("succeeded") is not False:
        return None
    where, detail = undo.judged["environment"], fact.get("detail", "")
    if GONE in undo.judged and fact.get("code") == NOT_RUN:
        return f"the undo command of {where} was not run, for {undo.judged[GONE]}."
    code = f" with exit code {fact['code']}" if fact.get("code") is not None else ""
    if fact.get("ended") == Ending.DECLARED:
        return f"how the undo command of {where} ended is not known ({detail})."
    return f"the undo command of {where} {fact.get('ended', 'failed')}{code}. {detail}".strip()


def start_of(intent: Intent) -> DeployStart:
    """The start that an intent carries."""
    kind = DeployKind.UNDO if intent.name is EffectName.DEPLOY_UNDO else DeployKind.DEPLOY
    start = start_carried(kind, intent.judged, intent.sequence, intent.token)
    prepared = prepared_undo(intent)
    if prepared is None:
        return start
    return replace(start, undo=ConditionalUndo(prepared.start(), prepared.within_s))


def prepared_undo(intent: Intent) -> PreparedUndo | None:
    """The undo that was drawn with a start; None where it is no deploy of ourselves."""
    if CONDITIONAL_UNDO not in intent.judged:
        return None
    stored = judged.mapping(intent, CONDITIONAL_UNDO)
    carried = stored["judged"]
    if not isinstance(carried, dict):
        raise InvariantError(f"the conditional undo of {intent.key} carries nothing")
    return PreparedUndo(
        key=str(stored["key"]),
        sequence=int(str(stored["sequence"])),
        token=str(stored["token"]),
        within_s=float(str(stored["within_s"])),
        judged=carried,
    )


def _fact(intent: Intent, held: Started) -> dict[str, object]:
    return {
        "environment": judged.text(intent, "environment"),
        "sha": judged.text(intent, "sha"),
        "generation": judged.number(intent, "generation"),
        "token": held.token,
        "at": held.at,
    }


def _end(ended: Exit) -> dict[str, object]:
    return {
        "ended": ended.ending.value,
        "code": ended.code,
        "succeeded": ended.succeeded,
        "detail": ended.detail,
    }
