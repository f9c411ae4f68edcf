"""What others say of a change at its forge: checks that ran there, and people who have reviewed it.

All of it is a stranger's word about one exact commit; names and texts are hostile data (law 10).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.domain.ids import Sha


class CheckState(StrEnum):
    """How far a check has come."""

    PASSED = "passed"
    FAILED = "failed"
    PENDING = "pending"
    STOPPED = "stopped"  # it ended without a word on the change: cancelled, outdated, or it asks for a person


class ReviewState(StrEnum):
    """What a person thinks."""

    APPROVED = "approved"
    CHANGES = "changes requested"
    WITHDRAWN = "withdrawn"  # dismissed: by whoever wrote it, or by somebody who may


@dataclass(frozen=True, slots=True)
class ForgeCheck:
    """One report about a commit; of the same name and source the highest ``order`` is the newest."""

    name: str
    source: str  # who reports: two that share a name are two checks
    order: int
    state: CheckState
    said: str  # the forge's own word for it
    summary: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class ForgeReview:
    """One person's review; the highest ``number`` of a person is the newest."""

    number: int
    person: str
    state: ReviewState
    commit: str  # which commit was on show
    counts: bool  # the forge says that this person may approve here
    words: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """What a review or a check says of one place."""

    words: str
    path: str = ""
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """All that a gate about others looks at, read at one moment."""

    subject: Sha  # the commit that is judged
    about: frozenset[str]  # it, and what we ourselves have put on top of it
    checks: tuple[ForgeCheck, ...] = ()
    reviews: tuple[ForgeReview, ...] = ()
    remarks: Mapping[int, tuple[Remark, ...]] = field(
        default_factory=dict
    )  # by the number of their review or check
    dealt_with: frozenset[int] = frozenset()  # requests for changes that went to development already
    pull_request: str = ""  # where people find it
