"""Starts as intents carry them, and the undo that is drawn with a deploy of ourselves (S-15)."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.deploy.records import DeployKind, DeployStart, start_from
from orchestrator.domain.errors import InvariantError

CONDITIONAL_UNDO = (
    "conditional_undo"  # in the intent of a deploy of ourselves; SQL looks for it under this name
)


@dataclass(frozen=True, slots=True)
class PreparedUndo:
    """The whole intent of an undo, drawn with the start that it is for; it becomes an effect when it is needed."""

    key: str
    sequence: int
    token: str
    within_s: float
    judged: Mapping[str, object]

    def stored(self) -> dict[str, object]:
        """As the start's intent carries it."""
        return {
            "key": self.key,
            "sequence": self.sequence,
            "token": self.token,
            "within_s": self.within_s,
            "judged": dict(self.judged),
        }

    def start(self) -> DeployStart:
        """What it would run."""
        return start_carried(DeployKind.UNDO, self.judged, self.sequence, self.token)


def start_carried(kind: DeployKind, carried: Mapping[str, object], sequence: int, token: str) -> DeployStart:
    """What an intent with this number and token would run.

    :raises InvariantError: it carries no whole start.
    """
    named = {"kind": kind.value, "sequence": sequence, "token": token, "undo": None}
    try:
        return start_from({**carried, **named})
    except (KeyError, TypeError, ValueError) as error:
        raise InvariantError(f"the intent {sequence} carries no whole start: {error!r}") from error
