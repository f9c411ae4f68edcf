"""A person's word on an effect that is not settled: it took place, it did not, or it is to be done again (DESIGN §7).

What must hold: the authority is asked first, and what it shows wins over the person. "It took place" counts only while
the authority cannot be read. The other two revoke first; where the authority cannot be reached they are refused, and
what was decided durably before stays decided (law 4). Where its record is lost for good, the person is the authority.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from orchestrator.db import mail
from orchestrator.db.database import Tx
from orchestrator.db.mail import WaitingSignal
from orchestrator.domain.effect import (
    Applied,
    Cause,
    EffectState,
    GivingUp,
    Intent,
    NotApplied,
    Underway,
    Unknown,
)
from orchestrator.domain.event import EventType
from orchestrator.effects.ledger import Open, Proof
from orchestrator.stage_engine.acts import Acts
from orchestrator.stage_engine.answers import refusal
from orchestrator.stage_engine.signals import Signals
from orchestrator.stage_engine.situation import Outcome, Situation, Tools


class Resolution(StrEnum):
    """What a person says of an effect."""

    APPLIED = "applied"  # it took place
    NOT_APPLIED = "not-applied"  # it did not, and must not any more
    RETRY = "retry"  # likewise, and it is to be done once more
    ENDED = "ended"  # of a deploy: nothing of its command is at work any more. The desk's business, no effect's state


WORDS = {
    Resolution.APPLIED: "said by",
    Resolution.NOT_APPLIED: "given up by",
    Resolution.RETRY: "done again for",
}
CAUSES = {Resolution.NOT_APPLIED: Cause.GIVEN_UP, Resolution.RETRY: Cause.AGAIN}


class Resolutions:
    """Applies or refuses what people say of effects, under the task's lease."""

    def __init__(self, tools: Tools, acts: Acts, signals: Signals) -> None:
        self._tools = tools
        self._acts = acts
        self._signals = signals

    def handle(self, at: Situation) -> Outcome | None:
        """Deal with the first waiting word on an effect; None where there is none."""
        waiting = self._signals.waiting_resolution(at)
        if waiting is None:
            return None
        signal = waiting.signal
        intent = next((e for e in at.unsettled if str(e.effect_id) == signal.subject), None)
        if intent is None:
            return self._signals.refuse(at, waiting, "the effect is settled already")
        data = signal.data or {}
        said = Resolution(data.get("resolution", ""))
        reason = f"{WORDS[said]} {signal.person}: {signal.reason}".rstrip(": ")
        given_up_for = (intent.cause, intent.reason) if intent.state is EffectState.REVOKING else None
        begun = given_up_for == (CAUSES.get(said), reason)  # and then interrupted
        if not begun and intent.state.value != data.get("state"):
            why = f"the effect was {data.get('state')} when that was said, and is {intent.state} now"
            return self._signals.refuse(at, waiting, why)
        seen = self._tools.ledger.look(intent)
        if isinstance(seen, Applied):
            proof = Proof(intent, EffectState.APPLIED, seen.fact)
            return self._shown(at, waiting, proof, as_said=said is Resolution.APPLIED)
        if isinstance(seen, Underway):
            return self._signals.refuse(at, waiting, f"it has begun and is settled at its end: {seen.reason}")
        if said is Resolution.APPLIED:
            return self._took_place(at, waiting, intent, seen, reason)
        if said is Resolution.RETRY and intent.state is EffectState.REVOKING and not begun:
            return self._signals.refuse(at, waiting, f"it is being given up already: {intent.reason}")
        return self._give_up(at, waiting, intent, seen, GivingUp(CAUSES[said], reason))

    def _took_place(
        self, at: Situation, waiting: WaitingSignal, intent: Intent, seen: NotApplied | Unknown, reason: str
    ) -> Outcome:
        if isinstance(seen, NotApplied):
            return self._signals.refuse(at, waiting, "the authority shows that it has not taken place")
        fact = self._tools.ledger.said(intent)
        if fact is None:
            why = "what follows needs what only the authority can tell (a number, a digest)"
            return self._signals.refuse(at, waiting, why)
        told = {**fact, "said_by": waiting.signal.person, "reason": waiting.signal.reason}
        text = "settled as applied on this word, for the authority cannot be read"
        proof = Proof(intent, EffectState.APPLIED, told, reason, along=self._answer(at, waiting, text))
        return self._acts.follow(at, proof)

    def _give_up(
        self,
        at: Situation,
        waiting: WaitingSignal,
        intent: Intent,
        seen: NotApplied | Unknown,
        decision: GivingUp,
    ) -> Outcome:
        lost = isinstance(seen, Unknown) and seen.for_good
        if isinstance(seen, Unknown) and not lost:
            stays = "; what was decided before stays decided" if intent.state is EffectState.REVOKING else ""
            why = f"the authority cannot be read, and without it nothing is given up{stays}: {seen.reason}"
            return self._signals.refuse(at, waiting, why)
        result = self._tools.ledger.give_up(at.lease, at.task, intent, decision, anew=lost)
        if isinstance(result, Open):
            why = f"{result.reason}. The decision is kept: it is done as soon as the authority answers"
            return self._signals.refuse(at, waiting, why)
        if result.state is EffectState.APPLIED:
            return self._shown(at, waiting, result)
        text = "revoked, it cannot take place any more"
        if decision.cause is Cause.AGAIN:
            text += "; it is done anew"
        return self._acts.follow(at, replace(result, along=self._answer(at, waiting, text)))

    def _shown(
        self, at: Situation, waiting: WaitingSignal, proof: Proof, *, as_said: bool = False
    ) -> Outcome:
        """The authority shows that it took place: that is the outcome, whatever was said."""
        text = "the authority shows that it took place; it is settled as applied"
        refused = None if as_said else text
        return self._acts.follow(at, replace(proof, along=self._answer(at, waiting, text, refused=refused)))

    def _answer(
        self, at: Situation, waiting: WaitingSignal, text: str, *, refused: str | None = None
    ) -> Callable[[Tx], None]:
        """Closes the signal and tells the person, in the commit that settles the effect."""

        def answer(tx: Tx) -> None:
            outcome = refusal(refused) if refused else "applied"
            event = EventType.SIGNAL_REFUSED if refused else EventType.SIGNAL_APPLIED
            self._signals.close(tx, at, waiting, outcome, event)
            said = f"Effect {waiting.signal.subject}, resolved by {waiting.signal.person}: {text}."
            mail.send(tx, "tracker.comment", f"answer:{waiting.inbox_id}", {"text": said}, task_id=at.task.id)

        return answer
