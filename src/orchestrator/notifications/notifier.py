"""An alert to a person. Called from the outbox only."""

from typing import Protocol


class Notifier(Protocol):
    """One channel."""

    name: str

    def send(self, text: str, *, work_item: str | None, url: str | None, message_id: str) -> None:
        """Send; ``work_item`` is shown as a clickable number where ``url`` is known.

        :raises OutsideError: it was not delivered; will be repeated.
        """
        ...
