"""What a forge shows of checks and reviews, as the product asks for it; forges differ in where they keep them.

Must hold: everything is read over all pages, and from the single reports: what a server says of them together leaves
out what is absent. On failure: ``AuthorityUnreachable``; then nothing is known, and nothing is judged.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from orchestrator.domain.ids import Sha
from orchestrator.domain.others import ForgeCheck, ForgeReview, Remark

REMARKS = 50  # of one review; more of them than an agent can keep in mind


class Others(Protocol):
    """Those of one repository."""

    def page(self, number: int) -> str:
        """Where people find a pull request."""
        ...

    def checks(self, sha: Sha) -> Sequence[ForgeCheck]:
        """Every report about exactly this commit, older ones too.

        :raises AuthorityUnreachable: they cannot be read.
        """
        ...

    def findings(self, check: ForgeCheck) -> Sequence[Remark]:
        """What a check says of single places, at most ``REMARKS``; none where the forge keeps nothing of the kind.

        :raises AuthorityUnreachable: they cannot be read.
        """
        ...

    def reviews(self, number: int) -> Sequence[ForgeReview]:
        """What people think of a pull request, older words too; neither its author's nor our own user's.

        :raises AuthorityUnreachable: they cannot be read.
        """
        ...

    def remarks(self, number: int, review: int) -> Sequence[Remark]:
        """What a review says of single places, at most ``REMARKS``.

        :raises AuthorityUnreachable: they cannot be read.
        """
        ...


def login(of: Mapping[str, object], name: str) -> str:
    """Whose it is; empty where that is nobody any more."""
    user = of.get(name)
    told = user.get("login") if isinstance(user, dict) else None
    return told if isinstance(told, str) else ""


def words(of: Mapping[str, object], name: str) -> str:
    """A text that may be missing."""
    told = of.get(name)
    return told if isinstance(told, str) else ""


def whole(of: Mapping[str, object], *names: str) -> int | None:
    """The first number that is there."""
    for name in names:
        told = of.get(name)
        if isinstance(told, int) and not isinstance(told, bool):
            return told
    return None
