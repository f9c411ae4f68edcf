"""Whether database and forge belong together: each thing that may have happened, and the plain crashes between."""

from dataclasses import replace

import pytest

from orchestrator.domain.ids import RepoName, Sha, WorkItem
from orchestrator.domain.installation import Cause, InstallationMark, Known, Seen, SeenCandidate
from orchestrator.rules.installation import judge

KNOWN = Known(
    repo=RepoName("sample"),
    installation="ours",
    starts=frozenset({"s4", "s5", "s6"}),
    generation=5,
    start_id="s5",
    sequence=100,
    main=Sha("a" * 40),
    merged=Sha("b" * 40),
)
SEEN = Seen(mark=InstallationMark("ours", 5, "s5"), main=KNOWN.main, unknown=(), lost=False, fence=100)
UNKNOWN = SeenCandidate(
    Sha("c" * 40),
    Sha("d" * 40),
    Sha("a" * 40),
    Sha("e" * 40),
    "Change it",
    WorkItem("S-2"),
    "n",
    "ours",
    120,
)


@pytest.mark.parametrize(
    ("known", "seen"),
    [
        (KNOWN, SEEN),
        # Killed after the claim, before the database noted it: the start was remembered before.
        (KNOWN, replace(SEEN, mark=InstallationMark("ours", 6, "s6"))),
        # Killed before the claim: nothing has moved.
        (replace(KNOWN, starts=KNOWN.starts | {"s7"}), SEEN),
        # Long ago its starts were forgotten; what it noted itself is still known.
        (replace(KNOWN, starts=frozenset()), SEEN),
        # Never claimed by anybody.
        (replace(KNOWN, generation=0, start_id=None), replace(SEEN, mark=None)),
    ],
)
def test_these_belong_together(known: Known, seen: Seen) -> None:
    assert judge(known, seen) is None


@pytest.mark.parametrize(
    ("seen", "cause", "says"),
    [
        (replace(SEEN, mark=InstallationMark("ours", 6, "s9")), Cause.DATABASE, "start 6"),
        (replace(SEEN, mark=InstallationMark("ours", 5, "s9")), Cause.DATABASE, "two copies"),
        (replace(SEEN, unknown=(UNKNOWN,)), Cause.DATABASE, "cccccccccccc of S-2"),
        (replace(SEEN, fence=101), Cause.DATABASE, "stands at 101"),
        (replace(SEEN, mark=InstallationMark("theirs", 9, "x")), Cause.STRANGER, "another database"),
        (replace(SEEN, mark=None), Cause.FORGE, "lost the mark of start 5"),
        (replace(SEEN, mark=InstallationMark("ours", 4, "s4")), Cause.FORGE, "start 4"),
        (replace(SEEN, lost=True), Cause.FORGE, "lost the merge bbbbbbbbbbbb"),
        # Both at once: what closes everything comes first.
        (replace(SEEN, mark=None, unknown=(UNKNOWN,)), Cause.DATABASE, "S-2"),
    ],
)
def test_these_do_not(seen: Seen, cause: Cause, says: str) -> None:
    finding = judge(KNOWN, seen)
    assert finding is not None
    assert finding.cause is cause
    assert says in finding.reason
