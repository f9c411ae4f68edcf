"""The installation's mark: claimed by compare-and-swap, verified by whatever moves main or a fence."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from orchestrator.domain.errors import AuthorityUnreachable, InstallationChanged, OutsideError
from orchestrator.domain.ids import Sha, TaskId
from orchestrator.domain.installation import InstallationMark
from orchestrator.domain.task import Candidate
from orchestrator.forges.forge import PushCall
from tests.fixtures_git import BRANCH, House

FIRST = InstallationMark("ours", 1, "s1")
SECOND = InstallationMark("ours", 2, "s2")


@pytest.fixture
def candidate(house: House, head: Sha) -> Candidate:
    """One that no forge knows yet."""
    return house.candidate(head)


def test_a_mark_is_claimed_from_what_was_seen_only(house: House) -> None:
    assert house.forge.installation() is None
    house.forge.claim_installation(None, FIRST)
    assert house.forge.installation() == FIRST
    for seen in (None, SECOND, replace(FIRST, start_id="other")):
        with pytest.raises(InstallationChanged, match="another database"):
            house.forge.claim_installation(seen, SECOND)
    house.forge.claim_installation(FIRST, SECOND)
    assert house.forge.installation() == SECOND


def test_of_many_that_claim_at_once_one_succeeds(house: House) -> None:
    def claim(number: int) -> bool:
        try:
            house.forge.claim_installation(None, InstallationMark(f"i{number}", 1, "s"))
        except InstallationChanged:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(claim, range(6))) == 1


def test_what_somebody_else_wrote_is_no_mark(house: House) -> None:
    for raw in (b"hello\n", b"installation x \xc2\xb2 s\n"):
        blob = house.git.text(["hash-object", "-w", "--stdin"], git_dir=house.forge.path, input=raw)
        house.git.run(["update-ref", "refs/orch/installation", blob], git_dir=house.forge.path)
        with pytest.raises(OutsideError, match="not written by us"):
            house.forge.installation()


def test_a_person_can_neither_see_nor_push_the_mark(house: House) -> None:
    house.forge.claim_installation(None, FIRST)
    assert "refs/orch" not in house.person.git("ls-remote", str(house.forge.path))
    with pytest.raises(AssertionError, match="hidden ref|deny"):
        house.person.git("push", "-q", str(house.forge.path), "HEAD:refs/orch/installation")


@pytest.mark.parametrize("held", [None, SECOND, InstallationMark("another", 1, "s1")])
def test_nothing_moves_for_who_does_not_hold_the_mark(
    house: House, candidate: Candidate, held: InstallationMark | None
) -> None:
    house.forge.claim_installation(None, FIRST)
    with pytest.raises(InstallationChanged):
        house.forge.prepare_merge(candidate, house.clone.path, BRANCH, held=held)
    assert not house.forge.prepared(candidate)
    house.forge.prepare_merge(candidate, house.clone.path, BRANCH, held=FIRST)
    before = house.main
    with pytest.raises(InstallationChanged):
        house.forge.merge(candidate, None, held=held)
    with pytest.raises(InstallationChanged):
        house.forge.revoke_merge(candidate, "newer", held=held)
    assert house.main == before
    house.forge.merge(candidate, None, held=FIRST)
    assert house.main == candidate.sha


def test_a_merge_of_before_is_refused_once_another_start_has_claimed(
    house: House, candidate: Candidate
) -> None:
    house.forge.claim_installation(None, FIRST)
    house.forge.prepare_merge(candidate, house.clone.path, BRANCH, held=FIRST)
    house.forge.claim_installation(FIRST, SECOND)
    with pytest.raises(InstallationChanged):
        house.forge.merge(candidate, None, held=FIRST)
    assert house.forge.landed([candidate]) is None
    house.forge.merge(candidate, None, held=SECOND)


def test_a_revoke_that_comes_between_is_no_other_installation(house: House, candidate: Candidate) -> None:
    house.forge.claim_installation(None, FIRST)
    house.forge.prepare_merge(candidate, house.clone.path, BRANCH, held=FIRST)
    house.forge.revoke_merge(candidate, "newer", held=FIRST)
    with pytest.raises(OutsideError) as refused:
        house.forge.merge(candidate, None, held=FIRST)
    assert not isinstance(refused.value, InstallationChanged)


def test_what_was_merged_is_told_with_its_trailers(house: House, candidate: Candidate) -> None:
    start = house.main
    house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    (kept,) = house.forge.candidates()
    assert (kept.task_id, kept.round, kept.sha) == (1, 1, candidate.sha)
    assert house.forge.merged_since([]) == []
    house.forge.merge(candidate, None)
    by_hand = house.outsider_pushes({"b": "1"})
    (seen,) = house.forge.merged_since([start])
    assert replace(kept, task_id=None, round=None) == seen
    assert (seen.tree, seen.base_sha, seen.head_sha, seen.nonce, seen.sequence, seen.title) == (
        candidate.tree, candidate.base_sha, candidate.head_sha, candidate.nonce, 1, "Change it",
    )  # fmt: skip
    assert (seen.work_item, seen.installation) == ("ORCH-1", "installation")
    assert house.forge.merged_since([candidate.sha]) == house.forge.merged_since([by_hand]) == []
    assert house.forge.merged_since([Sha("1" * 40)]) == house.forge.merged_since([]) == [seen]


def test_a_merge_by_hand_is_no_candidate(house: House) -> None:
    house.person.git("checkout", "-q", "-b", "side")
    house.person.commit("Side", {"c": "1"})
    house.person.git("checkout", "-q", "main")
    house.person.git("merge", "-q", "--no-ff", "-m", "By hand\n\nOrch-Nonce: n\nOrch-Task: X-1", "side")
    house.person.git("push", "-q", str(house.forge.path), "HEAD:main")
    assert house.forge.merged_since([]) == []


@pytest.mark.parametrize(
    "trailers",
    [
        {"Sequence": "9" * 30},
        {"Sequence": "9" * 5000},  # more digits than Python turns into a number
        {"Sequence": "-1"},
        {"Sequence": "\u0661"},
        {"Task": "X" * 300 + "-1"},
        {"Task": ""},
        {"Nonce": "a nonce"},
        {"Installation": "\u202e"},
    ],
    ids=range(8),
)
def test_a_merge_by_hand_with_what_we_never_write_is_no_candidate(
    house: House, trailers: dict[str, str]
) -> None:
    values = {"Task": "X-1", "Nonce": "n", "Installation": "i", "Sequence": "1", **trailers}
    said = "By hand\n\n" + "\n".join(f"Orch-{name}: {value}" for name, value in values.items())
    house.person.git("checkout", "-q", "-b", "side")
    house.person.commit("Side", {"c": "1"})
    house.person.git("checkout", "-q", "main")
    house.person.git("merge", "-q", "--no-ff", "-m", said, "side")
    house.person.git("push", "-q", str(house.forge.path), "HEAD:main")
    assert house.forge.merged_since([]) == []


def test_the_highest_fence_is_that_of_the_tasks_asked_for(house: House, candidate: Candidate) -> None:
    assert house.forge.highest_fence([TaskId(1), TaskId(7)]) == 0
    house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    head = house.clone.commit_files(house.main, {"b": b"1"}, "B")
    house.forge.prepare_merge(house.candidate(head, task=7, sequence=30), house.clone.path, "other")
    assert house.forge.highest_fence([TaskId(1), TaskId(7)]) == 30
    assert house.forge.highest_fence([TaskId(1)]) == 1
    assert house.forge.highest_fence([]) == 0
    house.forge.revoke_merge(candidate, "newer")
    assert house.forge.highest_fence([TaskId(1)]) == 1
    house.forge.revoke_push(PushCall(TaskId(1), 40), "newer")
    assert house.forge.highest_fence([TaskId(1)]) == 40
    assert house.forge.highest_fence() == 40


def test_a_forge_that_is_not_there_is_unreachable(house: House) -> None:
    house.forge.path.rename(house.root / "away")
    for ask in (
        house.forge.installation,
        lambda: house.forge.claim_installation(None, FIRST),
        lambda: house.forge.merged_since([]),
        house.forge.candidates,
        lambda: house.forge.highest_fence([TaskId(1)]),
    ):
        with pytest.raises(AuthorityUnreachable):
            ask()
