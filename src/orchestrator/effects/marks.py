"""Under which mark an effect acts at a forge, and what happens when the forge no longer shows it (DESIGN §6)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from orchestrator.domain.errors import InstallationChanged
from orchestrator.domain.installation import InstallationMark


class Marks(Protocol):
    """Whoever has claimed the repositories for this process."""

    def held(self, repo: str) -> InstallationMark:
        """The mark that this process has set.

        :raises InstallationChanged: nothing may be done there.
        """
        ...

    def changed(self, repo: str) -> None:
        """The forge shows another one: nothing more may be done there."""
        ...


@contextmanager
def under_mark(marks: Marks, repo: str) -> Iterator[InstallationMark]:
    """The mark to act under; a refusal for its sake is told before it goes on."""
    try:
        yield marks.held(repo)
    except InstallationChanged:
        marks.changed(repo)
        raise
