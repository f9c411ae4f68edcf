"""Reads a deploy record from disk: absent is an answer, unreadable is none and raises (law 4)."""

import json
from collections.abc import Mapping
from pathlib import Path

from orchestrator.domain.errors import AuthorityUnreachable, OutsideError
from orchestrator.runtime.files import UnreadableFile, read_bounded
from orchestrator.runtime.process import ProcessIdentity

RECORD_LIMIT = (
    256 * 1024
)  # bytes; ours are far smaller, the argv and env of a configuration are what could grow


def read_record(path: Path) -> Mapping[str, object] | None:
    """The record at ``path``; None where there is none.

    :raises AuthorityUnreachable: it is there and is no record.
    """
    try:
        data = read_bounded(path, RECORD_LIMIT)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (UnreadableFile, OSError) as error:
        raise unreadable(path) from error
    try:
        record = json.loads(data)
    except ValueError as error:
        raise unreadable(path) from error
    if not isinstance(record, dict):
        raise unreadable(path)
    return record


def unreadable(path: Path) -> OutsideError:
    """The error that says so."""
    return AuthorityUnreachable(
        f"The deploy record {path} exists but cannot be read, so it is unknown whether the command ran.",
        hint="Look at the environment by hand, then use 'orch effect resolve'.",
    )


def text(value: object) -> str:
    """A text.

    :raises TypeError: it is none.
    """
    if not isinstance(value, str):
        raise TypeError("text expected")
    return value


def number(value: object) -> float:
    """A number.

    :raises TypeError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("number expected")
    return value


def whole(value: object) -> int:
    """A whole number.

    :raises TypeError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError("whole number expected")
    return value


def mapping(value: object) -> Mapping[str, object]:
    """A record inside.

    :raises TypeError: it is none.
    """
    if not isinstance(value, dict):
        raise TypeError("record expected")
    return value


def identity(value: object) -> ProcessIdentity | None:
    """A process; None where none was named.

    :raises TypeError: it is neither.
    """
    if value is None:
        return None
    named = mapping(value)
    return ProcessIdentity(
        text(named["machine_boot_id"]),
        text(named["pid_namespace"]),
        whole(named["pid"]),
        whole(named["start_ticks"]),
    )
