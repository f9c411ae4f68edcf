"""Readers of a payload that a stranger may have written: every field by its type, bounded, or refused.

Text comes out without control characters and lone surrogates; it is data, never a path, a template or a command.
"""

import re

from orchestrator.domain.errors import OutsideError

TEXT_LIMIT = 200  # of names that people read; what is longer is cut
ID_LIMIT = 100
NUMBER_LIMIT = 2**31 - 1
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ID = re.compile(r"[A-Za-z0-9_-]+")


class MalformedDelivery(OutsideError):
    """A delivery does not say what its kind has to say."""


def at(payload: object, *path: str) -> object:
    """What lies at a path of names, None where there is nothing."""
    for name in path:
        if not isinstance(payload, dict):
            return None
        payload = payload.get(name)
    return payload


def text(payload: object, *path: str, limit: int = TEXT_LIMIT) -> str:
    """Text at a path on one line, cut at ``limit``; empty where there is none."""
    found = at(payload, *path)
    return clean(found[: 4 * limit])[:limit] if isinstance(found, str) else ""


def identifier(payload: object, *path: str) -> str:
    """A short name made of letters, digits, ``-`` and ``_``, such as a UUID; numbers count as one.

    :raises MalformedDelivery: there is none.
    """
    found = at(payload, *path)
    if isinstance(found, int) and not isinstance(found, bool):
        found = str(found) if 0 <= found <= NUMBER_LIMIT else None
    if not isinstance(found, str) or len(found) > ID_LIMIT or not _ID.fullmatch(found):
        raise MalformedDelivery(f"The delivery has no usable {'.'.join(path)}.")
    return found


def number(payload: object, *path: str) -> int:
    """A positive number.

    :raises MalformedDelivery: there is none.
    """
    found = at(payload, *path)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= NUMBER_LIMIT:
        raise MalformedDelivery(f"The delivery has no usable {'.'.join(path)}.")
    return found


def sha(payload: object, *path: str) -> str:
    """A whole commit name; forty zeros are one, too: they stand for "none".

    :raises MalformedDelivery: there is none.
    """
    found = at(payload, *path)
    if not isinstance(found, str) or not _SHA.fullmatch(found):
        raise MalformedDelivery(f"The delivery has no usable {'.'.join(path)}.")
    return found


def clean(said: str) -> str:
    """A stranger's text on one line, without what could steer a terminal or break an encoding."""
    if not said.isprintable():
        said = "".join(char if char.isprintable() else " " for char in said)
    return " ".join(said.split())
