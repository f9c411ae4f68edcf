"""How a field of the settings is declared: its default, its reader, and what the reference page says of it."""

from dataclasses import field
from typing import Any

from orchestrator.config import values
from orchestrator.config.secret import Secret, Secrets

_DAY = 86400.0


def setting(
    default: Any,
    reader: values.Reader,
    text: str,
    *,
    unit: str = "",
    shown: str | None = None,
    empty_counts: bool = False,
    hidden: bool = False,
) -> Any:
    """A field with what the reference page says of it; ``empty_counts``: an empty variable is a value of its own;
    ``hidden``: not in a printed copy, for it may hold a secret."""
    return field(
        default=default,
        repr=not hidden,
        metadata={
            "reader": reader,
            "text": text,
            "unit": unit,
            "shown": shown,
            "empty_counts": empty_counts,
        },
    )


def period(default: float, text: str, low: float = 0.05, high: float = 30 * _DAY) -> Any:
    """A length of time, in seconds."""
    return setting(default, values.seconds(low, high), text, unit="seconds")


def bearer(text: str) -> Any:
    """A secret that we show elsewhere to be let in."""
    return setting(Secret(""), lambda given: Secret(values.token(given)), text, shown="none")


def secret_file(instead_of: str) -> Any:
    """The field ``x_file`` names a file that holds what ``x`` would; the loader puts it there."""
    return setting(None, values.folder, f"File holding it, instead of {instead_of}.", shown="none")


def webhook_secret(sender: str) -> Any:
    """The key that a sender of webhooks signs with."""
    return setting(
        Secrets(),
        values.secrets,
        f"Secret that {sender} signs its webhooks with; several, separated by blanks, while it is exchanged. Without "
        f"one nothing is taken from {sender}. Better given as a file.",
        shown="none",
    )
