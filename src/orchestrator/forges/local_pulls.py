"""Pull request records of the local forge: one small file each in the bare repository.

Must hold: a number is given once (the file is created exclusively), a record is replaced whole. Whether a pull request
was merged is never stored: it follows from what main contains.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from orchestrator.domain.errors import AuthorityUnreachable, OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.runtime.clock import Clock, stamp
from orchestrator.runtime.files import (
    PRIVATE_FOLDER,
    UnreadableFile,
    publish_exclusive,
    read_bounded,
    replace_durably,
    sync_folder,
)
from orchestrator.runtime.folder_lock import locked

RECORD_LIMIT = 1024 * 1024  # bytes
BODY_LIMIT = 256 * 1024  # characters; what a person wants to read is far shorter
TITLE_LIMIT = 8 * 1024
LOCK_WAIT_S = 20.0


@dataclass(frozen=True, slots=True)
class PullRecord:
    """What is stored of a pull request."""

    number: int
    branch: str
    title: str
    body: str
    opened_at: str
    base_sha: str  # main when it was opened
    head_sha: str  # the branch's tip when last seen
    closed: bool = False


class LocalPulls:
    """The records in one folder."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.folder = folder
        self._clock = clock
        self._branches: dict[int, str] = {}  # of each record that was read; that never changes

    def of_branch(self, branch: str) -> Sequence[PullRecord]:
        """A branch's records, oldest first. Those of other branches are read once, however many they are.

        :raises AuthorityUnreachable: one cannot be read.
        """
        numbers = self._numbers()
        for number in numbers:
            if number not in self._branches:
                self._branches[number] = self.get(number).branch
        return [self.get(number) for number in numbers if self._branches[number] == branch]

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.json") if path.stem.isdecimal())

    def get(self, number: int) -> PullRecord:
        """One record.

        :raises OutsideError: there is none of this number.
        :raises AuthorityUnreachable: it cannot be read.
        """
        found = self.find(number)
        if found is None:
            raise OutsideError(f"There is no pull request {number}.")
        return found

    def find(self, number: int) -> PullRecord | None:
        """One record, None where there is none of this number.

        :raises AuthorityUnreachable: it cannot be read.
        """
        path = self._path(number)
        try:
            fields = json.loads(read_bounded(path, RECORD_LIMIT))
            return PullRecord(**fields)
        except FileNotFoundError:
            return None
        except (UnreadableFile, OSError, ValueError, TypeError) as error:
            raise AuthorityUnreachable(
                f"The record of pull request {number} cannot be read: {error}.", hint=f"Look at {path}."
            ) from error

    def open(self, branch: str, title: str, body: str, *, base: Sha, head: Sha) -> PullRecord:
        """The branch's pull request: the one that is open, else a new one under the next free number.

        :raises AuthorityUnreachable: the records cannot be read or written.
        """
        self._make_folder()
        with locked(self.folder / ".lock", self._clock, wait_s=LOCK_WAIT_S) as handle:
            if handle is None:
                raise AuthorityUnreachable(f"{self.folder} stays locked by another process of ours.")
            # Merged ones are not asked for here: a branch that is delivered is not opened again.
            existing = next((record for record in self.of_branch(branch) if not record.closed), None)
            if existing is not None:
                return existing
            number = 1 + max(self._numbers(), default=0)
            while True:
                record = PullRecord(
                    number,
                    branch,
                    title[:TITLE_LIMIT],
                    body[:BODY_LIMIT],
                    stamp(self._clock.utc()),
                    base,
                    head,
                )
                if publish_exclusive(self._path(number), _encoded(record)):
                    return record
                number += 1

    def _make_folder(self) -> None:
        """Never the forge itself: one whose disk is away must not have an empty folder in its place."""
        try:
            for folder in (self.folder.parent, self.folder):
                if not folder.is_dir():
                    folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
                    sync_folder(folder.parent)
        except OSError as error:
            raise AuthorityUnreachable(
                f"There is no folder for pull requests in {self.folder.parent.parent}: {error.strerror}."
            ) from error

    def close(self, number: int) -> None:
        """Mark one closed; closing a closed one does nothing."""
        record = self.get(number)
        if not record.closed:
            replace_durably(self._path(number), _encoded(replace(record, closed=True)))

    def saw_head(self, branch: str, head: Sha) -> None:
        """Remember the branch's tip, for the day the branch is gone."""
        with suppress(FileNotFoundError):
            for record in self.of_branch(branch):
                if not record.closed and record.head_sha != head:
                    replace_durably(self._path(record.number), _encoded(replace(record, head_sha=head)))

    def url(self, number: int) -> str:
        """Where a person finds the record."""
        return self._path(number).resolve().as_uri()

    def _path(self, number: int) -> Path:
        return self.folder / f"{int(number)}.json"


def _encoded(record: PullRecord) -> bytes:
    # Lone surrogates in a hostile title are kept as escapes: ASCII only.
    return json.dumps(asdict(record), indent=1).encode("ascii")
