"""An alert to a person. Called from the outbox only."""

from typing import Protocol

from orchestrator.domain.errors import OutsideError


class NotNow(OutsideError):
    """The channel takes nothing for so many seconds, or gives no answer at all. No attempt is lost by it."""

    def __init__(self, message: str, *, after_s: float) -> None:
        super().__init__(message)
        self.after_s = after_s


class Undeliverable(OutsideError):
    """The channel will not take this message, however often it is repeated: somebody has to mend the channel."""


class Notifier(Protocol):
    """One channel."""

    name: str

    def send(self, text: str, *, work_item: str | None, url: str | None, message_id: str) -> None:
        """Send; ``work_item`` is shown as a clickable number where ``url`` is known.

        :raises NotNow: it is not its time yet.
        :raises Undeliverable: it was not delivered, and repeating is in vain.
        :raises OutsideError: it was not delivered, or nobody knows; will be repeated.
        """
        ...
