"""Effects: irreversible acts on the outside world, and what the authority says of them (DESIGN §6)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from orchestrator.domain.ids import EffectId, TaskId


class EffectName(StrEnum):
    """The acts the ledger knows. Nothing acts outside them (law 3)."""

    PUSH = "push"
    OPEN_PR = "open_pr"
    MERGE_PR = "merge_pr"
    RATCHET = "ratchet"
    IMAGE = "image"
    DEPLOY_INIT = "deploy_init"
    DEPLOY_UNDO = "deploy_undo"


class EffectState(StrEnum):
    """Life of a ledger row. ``applied`` and ``revoked`` are settled; everything else is driven on."""

    INTENDED = "intended"
    REVOKING = "revoking"
    IN_DOUBT = "in_doubt"
    APPLIED = "applied"
    REVOKED = "revoked"

    @property
    def settled(self) -> bool:
        """True where a probe has shown the outcome."""
        return self in (EffectState.APPLIED, EffectState.REVOKED)


class Cause(StrEnum):
    """Why an effect is given up: what follows once it is revoked depends on it."""

    FACTS = "facts"  # what the effect itself or its authority shows
    CANCELLED = "cancelled"  # a person has cancelled the task
    GIVEN_UP = "given-up"  # a person has had this effect given up
    AGAIN = "again"  # … to be done once more
    RESTORED = "restored"  # a person has accepted a restored database


@dataclass(frozen=True, slots=True)
class GivingUp:
    """The decision to give an effect up; the reason is for people."""

    cause: Cause
    reason: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The authority shows that the act took place. ``fact`` is what it showed."""

    fact: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The authority shows that the act has not taken place: enough to act, never enough to give up (law 4)."""

    fact: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The authority could not be read. Hold, probe again, never guess."""

    reason: str
    for_good: bool = False  # its record is lost: only a person can tell, either way


@dataclass(frozen=True, slots=True)
class Underway:
    """The authority shows that the act has begun and not that it has ended: neither acted again nor settled."""

    reason: str


Probe = Applied | NotApplied | Unknown | Underway


@dataclass(frozen=True, slots=True)
class Intent:
    """A durable decision with everything it was judged on, as stored before the act."""

    effect_id: EffectId
    task_id: TaskId
    name: EffectName
    key: str
    round: int
    state: EffectState
    sequence: int
    token: str  # fencing token that the act carries to the authority
    judged: Mapping[str, object]  # head, base and tree SHA, coverage, approval, nonce …
    fact: Mapping[str, object] | None = None
    intent_at: str = ""
    actor: str = ""
    reason: str = ""  # of its last move, for people
    cause: Cause | None = None  # why it is given up: whoever finishes that goes by it


class Effect(Protocol):
    """One kind of act. ``act`` may raise anything from the outside: its answer settles nothing."""

    name: EffectName

    def probe(self, intent: Intent) -> Probe:
        """Ask the authority whether the act took place. Raises nothing: unreadable is ``Unknown``."""
        ...

    def act(self, intent: Intent) -> None:
        """Do it once, carrying ``intent.token`` so that the authority can refuse a stale actor (law 5).

        :raises OutsideError: the call failed or was refused; says nothing about the outcome.
        """
        ...

    def said(self, intent: Intent) -> Mapping[str, object] | None:
        """The fact that follows from the intent alone, should a person say that the act took place while the authority
        cannot be asked; None where what follows needs what only the authority can tell."""
        ...

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        """Why this intent can never be carried out as it was judged, None while it can; read before each act and, with
        the ``failure``, after one that did not take place. A reason leads to giving up by revoke, never to believing.

        :raises OutsideError: it could not be found out; the effect is held.
        """
        ...

    def revoke(self, intent: Intent) -> None:
        """Make every call ever sent for this intent impossible at the authority (law 4).

        :raises OutsideError: it could not be revoked; the effect stays ``revoking``.
        """
        ...
