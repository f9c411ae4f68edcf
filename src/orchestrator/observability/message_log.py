"""A file of messages, one JSON object a line, each ``message_id`` once.

The outbox delivers at least once; this file makes it once. What must hold: a message that ``append`` returned for is
on disk; a crash in the middle leaves at most one broken last line, which readers pass over and the next append closes;
the file is 0600 and no link is followed to it; it never holds more than ``MAX_MESSAGES``, the oldest going first.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.domain.errors import OutsideError

MAX_MESSAGES = 2000
MAX_TEXT = 32_768  # characters of one text value
_MAX_BYTES = 64 * 1024 * 1024  # a larger file was not written by us


class MessageLog:
    """One such file; its folder is made when the first message comes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, message_id: str, message: Mapping[str, Any]) -> bool:
        """Write ``message`` unless its id is there already; True iff it was written now.

        :raises OutsideError: it could not be written; may be repeated.
        """
        record = {"message_id": message_id} | {key: _cut(value) for key, value in message.items()}
        line = json.dumps(record, ensure_ascii=True).encode() + b"\n"
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            with os.fdopen(descriptor, "r+b") as file:
                # A lock and not a rename, so that two writers never replace each other's file.
                fcntl.flock(file, fcntl.LOCK_EX)
                content = _content(file.fileno())
                known = _messages(content)
                if any(entry.get("message_id") == message_id for entry in known):
                    return False
                if len(known) >= MAX_MESSAGES:
                    kept = known[-MAX_MESSAGES // 2 :]
                    self._rewrite(file.fileno(), kept, line)
                else:
                    _write(file.fileno(), line if content.endswith(b"\n") or not content else b"\n" + line)
                os.fsync(file.fileno())
            return True
        except OSError as error:
            raise OutsideError(
                f"The message could not be written to {self._path}: {error.strerror or error}.",
                hint="It is kept and tried again; make the state folder writable and give it room.",
            ) from error

    def read(self) -> list[dict[str, Any]]:
        """All messages, the oldest first; none where there is no file.

        :raises OutsideError: the file cannot be read.
        """
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise OutsideError(f"{self._path} cannot be read: {error.strerror}.") from error
        with os.fdopen(descriptor, "rb") as file:
            return _messages(_content(file.fileno()))

    def _rewrite(self, descriptor: int, kept: list[dict[str, Any]], line: bytes) -> None:
        """Keep the newer half. A crash in here may lose old messages; the new one is not confirmed yet."""
        os.ftruncate(descriptor, 0)
        _write(descriptor, b"".join(json.dumps(entry).encode() + b"\n" for entry in kept) + line)


def _content(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    parts = []
    read = 0
    while read <= _MAX_BYTES and (part := os.read(descriptor, 1024 * 1024)):
        parts.append(part)
        read += len(part)
    return b"".join(parts)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _messages(content: bytes) -> list[dict[str, Any]]:
    """What can be read of the lines; a broken one is the trace of a crash and was never confirmed."""
    found = []
    for line in content.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            found.append(entry)
    return found


def _cut(value: Any) -> Any:
    return value if not isinstance(value, str) or len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"
