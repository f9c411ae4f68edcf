"""What every forge has to refuse and to show: the local one, Gitea, GitHub, and the one in memory under the proofs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import RepoName, Sha, TaskId
from orchestrator.domain.task import Candidate
from orchestrator.forges.forge import PushCall
from orchestrator.played.gitea import FakeGitea, Style
from orchestrator.played.github import FakeGitHub, Rules
from orchestrator.runtime.git import Git
from tests.fixtures_git import BRANCH, House, as_it_is, house_at, person_at
from tests.fixtures_git_server import RemoteHouse
from tests.fixtures_gitea import gitea_house
from tests.fixtures_github import github_house
from tests.proofs.memory_forge import ForgeState, MemoryForge
from tests.proofs.memory_git import MemoryClone, Objects

FIRST = {"README.md": "Sample\n"}


@dataclass(frozen=True)
class MemoryHouse(House):
    """The same rooms, without a disk."""

    def outsider_pushes(self, files: dict[str, str], message: str = "By somebody else") -> Sha:
        sha = self.clone.commit_files(
            self.main, {path: text.encode() for path, text in files.items()}, message
        )
        cast(Any, self.forge).state.heads["main"] = sha
        return sha


def house_in_memory() -> MemoryHouse:
    state = ForgeState(Objects())
    tree = state.objects.write_tree({path: text.encode() for path, text in FIRST.items()})
    state.heads["main"] = state.objects.commit(tree, [], "First")
    clone = MemoryClone(state.objects, {}, state.heads)
    clone.fetch()
    forge = MemoryForge(RepoName("sample"), state)
    nothing = cast(Any, None)
    return MemoryHouse(Path("/nowhere"), nothing, nothing, cast(Any, forge), cast(Any, clone), nothing)


@pytest.fixture(
    params=[
        "local",
        "gitea",
        "gitea that only merges",
        "github",
        pytest.param("github that takes no push to main", marks=pytest.mark.long),
        "memory",
    ]
)
def house(request: pytest.FixtureRequest, tmp_path: Path, git: Git) -> Iterator[House]:
    if request.param == "memory":
        yield house_in_memory()
        return
    person = person_at(tmp_path / "person", FIRST)
    if request.param == "local":
        yield house_at(tmp_path, person, git)
        return
    if request.param.startswith("github"):
        with FakeGitHub(tmp_path / "server") as server:
            house = github_house(tmp_path, server, person, git)
            if request.param != "github":
                house.there.protect("main", Rules())
            yield house
        return
    with FakeGitea(tmp_path / "server") as gitea:
        house = gitea_house(tmp_path, gitea, person, git)
        if request.param != "gitea":
            house.there.styles.discard(Style.FAST_FORWARD)
        yield house


@pytest.fixture
def candidate(house: House, candidate: Candidate) -> Candidate:
    """A server merges pull requests alone."""
    house.forge.open_pr(BRANCH, "t", "b")
    return candidate


def bring(house: House, branch: str, head: Sha) -> None:
    """A branch with its pull request."""
    house.push(branch, head)
    house.forge.open_pr(branch, "t", "b")


def assert_landed(house: House, candidate: Candidate, *, among: Sequence[Candidate] = ()) -> None:
    """It is on main, as itself; a forge that only merges brings it by a commit of its own with the same tree."""
    landed = house.forge.landed(among or [candidate])
    assert landed is not None
    assert (landed.candidate, landed.sha, landed.tree) == (candidate, house.main, candidate.tree)
    if not (isinstance(house, RemoteHouse) and house.there.only_merges):
        assert landed == as_it_is(candidate)


def test_push_moves_a_branch_only_from_where_it_was(house: House, head: Sha) -> None:
    other = house.clone.commit_files(house.main, {"b": b"1"}, "B")
    assert house.forge.tip(BRANCH) == head
    house.forge.push(house.clone.path, head, BRANCH, None)  # there already: nothing to do
    with pytest.raises(OutsideError):
        house.forge.push(house.clone.path, other, BRANCH, None)
    with pytest.raises(OutsideError):
        house.forge.push(house.clone.path, other, BRANCH, house.main)
    assert house.forge.tip(BRANCH) == head
    house.forge.push(house.clone.path, other, BRANCH, head)
    assert house.forge.tip(BRANCH) == other


def test_a_push_that_was_given_up_never_lands(house: House, head: Sha) -> None:
    """Also one that was sent before, from the value that the branch still has."""
    other = house.clone.commit_files(house.main, {"b": b"1"}, "B")
    late, again = PushCall(TaskId(1), 7), PushCall(TaskId(1), 9)
    for token in ("first", "second"):
        house.forge.revoke_push(late, token)
    with pytest.raises(OutsideError, match="given up"):
        house.forge.push(house.clone.path, other, BRANCH, head, call=late)
    assert house.forge.tip(BRANCH) == head
    house.forge.push(house.clone.path, other, BRANCH, head, call=again)
    assert house.forge.tip(BRANCH) == other
    house.forge.revoke_push(again, "third")
    house.forge.revoke_push(late, "stale")  # whoever comes late with it changes nothing
    with pytest.raises(OutsideError, match="given up"):
        house.forge.push(house.clone.path, head, BRANCH, other, call=again)
    house.forge.push(house.clone.path, head, BRANCH, other, call=PushCall(TaskId(2), 3))


def test_a_candidate_that_was_given_up_is_not_prepared(house: House, candidate: Candidate) -> None:
    assert house.forge.prepared(candidate)
    house.forge.revoke_merge(candidate, "newer")
    assert not house.forge.prepared(candidate)


def test_delete_removes_a_branch_only_from_where_it_was(house: House, head: Sha) -> None:
    with pytest.raises(OutsideError):
        house.forge.delete_branch(BRANCH, house.main)
    house.forge.delete_branch(BRANCH, head)
    assert house.forge.tip(BRANCH) is None
    house.forge.delete_branch(BRANCH, head)


def test_main_is_moved_by_merging_alone(house: House, head: Sha) -> None:
    before = house.main
    with pytest.raises(OutsideError, match="merging alone"):
        house.forge.push(house.clone.path, head, "main", before)
    with pytest.raises(OutsideError, match="never removed"):
        house.forge.delete_branch("main", before)
    assert house.main == before


def test_ancestry(house: House, head: Sha) -> None:
    assert house.forge.contains(head, house.main)
    assert not house.forge.contains(house.main, head)
    assert not house.forge.contains(head, Sha("1" * 40))


def test_without_a_branch_there_is_no_pull_request(house: House) -> None:
    with pytest.raises(OutsideError, match="no branch nothing"):
        house.forge.open_pr("nothing", "t", "b")
    with pytest.raises(OutsideError, match="no pull request 7"):
        house.forge.close_pr(7)


def test_main_moves_to_exactly_the_candidate(house: House, candidate: Candidate) -> None:
    assert house.forge.landed([candidate]) is None
    house.forge.merge(candidate, None)
    assert_landed(house, candidate)
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, None)
    assert_landed(house, candidate)


def test_a_stale_actor_is_refused_after_revoking(house: House, candidate: Candidate) -> None:
    house.forge.revoke_merge(candidate, "newer")
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, None)
    assert house.forge.landed([candidate]) is None
    assert house.main == candidate.base_sha


def test_revoking_what_was_never_prepared_keeps_a_late_prepare_out(house: House, head: Sha) -> None:
    candidate = house.candidate(head)
    house.forge.revoke_merge(candidate, "newer")
    with pytest.raises(OutsideError, match="moved on"):
        house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, None)
    assert house.main == candidate.base_sha


def test_preparing_again_is_harmless(house: House, candidate: Candidate) -> None:
    house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    house.forge.merge(candidate, None)
    assert_landed(house, candidate)


def test_tasks_have_fences_of_their_own(house: House, candidate: Candidate) -> None:
    other = house.candidate(house.clone.commit_files(house.main, {"b": b"1"}, "B"), task=2)
    house.forge.prepare_merge(other, house.clone.path, "other")
    house.forge.revoke_merge(other, "newer")
    house.forge.merge(candidate, None)
    assert_landed(house, candidate)


def test_another_tasks_merge_is_not_ours(house: House, candidate: Candidate) -> None:
    other = house.candidate(house.clone.commit_files(house.main, {"b": b"1"}, "B"), task=2)
    bring(house, "other", other.head_sha)
    house.forge.prepare_merge(other, house.clone.path, "other")
    house.forge.merge(other, None)
    assert house.forge.landed([candidate]) is None
    assert_landed(house, other, among=[candidate, other])


def test_a_revoked_candidate_never_comes_back(house: House, candidate: Candidate) -> None:
    house.forge.revoke_merge(candidate, "newer")
    with pytest.raises(OutsideError, match="moved on"):
        house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, None)


def test_an_older_main_is_refused(house: House, candidate: Candidate) -> None:
    pushed = house.outsider_pushes({"theirs.txt": "1\n"})
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, None)
    assert house.main == pushed
    assert house.forge.landed([candidate]) is None


def test_an_earlier_candidate_stays_out_when_the_next_one_is_prepared(
    house: House, candidate: Candidate
) -> None:
    moved = house.outsider_pushes({"theirs.txt": "1\n"})
    house.clone.fetch()
    house.forge.revoke_merge(candidate, "newer")
    second = house.candidate(candidate.head_sha, sequence=2, main=moved)
    assert house.forge.prepared(second) is False
    house.forge.prepare_merge(second, house.clone.path, BRANCH)
    house.forge.revoke_merge(candidate, "late")
    with pytest.raises(OutsideError):
        house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, None)
    house.forge.merge(second, None)
    assert_landed(house, second, among=[candidate, second])


def test_a_branch_has_one_open_pull_request(house: House, head: Sha) -> None:
    assert {house.forge.open_pr(BRANCH, "t", "b").number for _ in range(3)} == {1}
    house.forge.close_pr(1)
    house.forge.close_pr(1)
    assert house.forge.open_pr(BRANCH, "t", "b").number == 2
    assert [(pull.number, pull.state) for pull in house.forge.pull_requests(BRANCH)] == [
        (1, "closed"),
        (2, "open"),
    ]
    assert list(house.forge.pull_requests("another")) == []
    for known in house.forge.pull_requests(BRANCH):
        assert house.forge.pull_request(known.number) == known
    assert house.forge.pull_request(99) is None


def test_a_candidate_that_is_not_the_merge_it_claims_to_be(house: House, candidate: Candidate) -> None:
    with pytest.raises(OutsideError, match="is not the merge"):
        house.forge.merge(replace(candidate, base_sha=candidate.head_sha), None)
