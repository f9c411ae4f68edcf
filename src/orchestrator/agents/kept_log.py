"""A log that keeps the head and the tail of any amount of output, and never lets the disk decide over the run.

The head goes to ``output.log`` until half the bound is used; after that two tail files take turns, so that
the last quarter at least is always there. ``close`` joins them with a line that says how much was left out. A
full disk stops the log, not the run. Secrets are replaced by their names before anything is written.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from orchestrator.runtime.files import PRIVATE_FILE

SHORTEST_SECRET = 6  # a shorter value would blank out ordinary words
COPY_BYTES = 1024 * 1024
SUFFIXES = (".tail-a", ".tail-b")


class KeptLog:
    """``output.log`` of one run."""

    def __init__(self, path: Path, cap: int, secrets: Mapping[str, str]) -> None:
        self._path, self._head_left, self._tail_size = path, cap // 2, max(cap // 4, 1)
        self._secrets = [
            (value.encode(), f"[{name}]".encode())
            for name, value in sorted(secrets.items(), key=lambda item: -len(item[1]))
            if len(value) >= SHORTEST_SECRET
        ]
        self._tails: list[IO[bytes]] = []  # the older first
        self._tail_used = 0
        self._skipped = 0
        self._written = 0
        self._head: IO[bytes] | None = None
        self.failed: str | None = None  # why nothing more is kept
        self._guard(self._open)

    @property
    def size(self) -> int:
        """Bytes that came in."""
        return self._written

    def write(self, data: bytes) -> None:
        """Keep some whole lines."""
        self._written += len(data)
        if self.failed is None:
            clean = self.clean(data)
            self._guard(lambda: self._keep(clean))

    def clean(self, data: bytes) -> bytes:
        """The same without secrets."""
        for value, name in self._secrets:
            data = data.replace(value, name)
        return data

    def close(self) -> None:
        """Join head and tail."""
        self._guard(self._join)
        for stream in (self._head, *self._tails):
            if stream is not None:
                self._guard(stream.close)
        self._guard(self._remove_tails)

    def _open(self) -> None:
        self._head = _create(self._path)

    def _keep(self, data: bytes) -> None:
        if self._head is None:
            return
        first, rest = data[: self._head_left], data[self._head_left :]
        if first:
            self._head_left -= _write(self._head, first)
        if rest:
            self._keep_tail(rest)

    def _keep_tail(self, data: bytes) -> None:
        if len(data) > self._tail_size:
            self._skipped += len(data) - self._tail_size
            data = data[-self._tail_size :]
        if not self._tails or self._tail_used + len(data) > self._tail_size:
            self._turn()
        self._tail_used += _write(self._tails[-1], data)

    def _turn(self) -> None:
        """Go on in the older of two tail files; what it held is left out from now on."""
        self._tail_used = 0
        if len(self._tails) < len(SUFFIXES):
            self._tails.append(_create(self._path.with_suffix(SUFFIXES[len(self._tails)])))
            return
        oldest = self._tails.pop(0)
        self._skipped += oldest.seek(0, os.SEEK_END)
        oldest.seek(0)
        oldest.truncate()
        self._tails.append(oldest)

    def _join(self) -> None:
        if not self._tails or self._head is None:
            return
        if self._skipped:
            _write(self._head, f"\n[... {self._skipped} bytes left out ...]\n".encode())
        for tail in self._tails:
            left = tail.seek(0, os.SEEK_END)
            tail.seek(0)
            while left > 0 and (part := tail.read(min(left, COPY_BYTES))):
                left -= _write(self._head, part)

    def _remove_tails(self) -> None:
        for suffix in SUFFIXES:
            self._path.with_suffix(suffix).unlink(missing_ok=True)

    def _guard(self, act: Callable[[], object]) -> None:
        """Run a step; the first failure ends the log and is kept for the run's warnings."""
        try:
            act()
        except OSError as error:
            self.failed = (
                self.failed or f"The agent's output could not be kept any further: {error.strerror}."
            )


def _create(path: Path) -> IO[bytes]:
    """An empty private file; never through a link that an agent has put there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, PRIVATE_FILE), "r+b", buffering=0)


def _write(stream: IO[bytes], data: bytes) -> int:
    view = memoryview(data)
    while view:
        view = view[stream.write(view) :]
    return len(data)
