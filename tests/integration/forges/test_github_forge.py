"""What is GitHub's own: main moved by a push, or by the server where rules forbid that; and its limits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.domain.errors import AuthorityUnreachable, InstallationChanged, OutsideError
from orchestrator.domain.installation import InstallationMark
from orchestrator.domain.task import Candidate
from orchestrator.played.github import FakeGitHub, How, Rules
from orchestrator.runtime.git import Git
from tests.fixtures_git import BRANCH, as_it_is, person_at
from tests.fixtures_git_server import RemoteHouse, SteppingClock
from tests.fixtures_github import github_forge, github_house

MERGE = r"/pulls/\d+/merge$"
PUSH = r"/git-receive-pack$"
MARK = InstallationMark("ours", 1, "start")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeGitHub]:
    with FakeGitHub(tmp_path / "server") as fake:
        yield fake


@pytest.fixture
def house(tmp_path: Path, server: FakeGitHub, git: Git) -> RemoteHouse:
    return github_house(tmp_path, server, person_at(tmp_path / "person", {"README.md": "Sample\n"}), git)


@pytest.fixture
def candidate(house: RemoteHouse, candidate: Candidate) -> Candidate:
    house.forge.open_pr(BRANCH, "t", "b")
    return candidate


def merges_asked(server: FakeGitHub) -> list[int]:
    return [call.status for call in server.calls("PUT", MERGE)]


def landed_as_tested(house: RemoteHouse, candidate: Candidate) -> bool:
    landed = house.forge.landed([candidate])
    return landed is not None and (landed.sha, landed.tree) == (house.main, candidate.tree)


def test_strangers_pull_requests_as_large_as_they_may_be_hide_none_of_ours(
    house: RemoteHouse, candidate: Candidate
) -> None:
    """A page of them is less than what is read at once."""
    for n in range(25):
        house.there.git("update-ref", f"refs/heads/b{n}", house.main)
        house.there.open(f"Number {n}", "\u00e9" * 65_536, "mallory", "main", f"b{n}", house.main)
    assert house.forge.pull_for(candidate, None).branch == BRANCH


# -- by a push -----------------------------------------------------------------------------------------------------


def test_main_is_the_candidate_itself_and_its_pull_request_is_merged(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate
) -> None:
    house.forge.merge(candidate, 1)
    assert house.forge.landed([candidate]) == as_it_is(candidate)
    assert [pull.state for pull in house.forge.pull_requests(BRANCH)] == ["merged"]
    assert house.forge.tip(BRANCH) == candidate.head_sha
    assert merges_asked(server) == []


@pytest.mark.parametrize("how", [How.LOST, How.AFTER], ids=["answer lost", "500 after"])
def test_only_git_says_what_a_push_to_main_came_to(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate, how: How
) -> None:
    server.fail("POST", PUSH, how)
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, 1)
    assert house.forge.landed([candidate]) == as_it_is(candidate)
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, 1)
    assert house.main == candidate.sha


def test_a_push_to_main_that_was_on_its_way_is_refused_once_it_is_given_up(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate
) -> None:
    """Main has the very value still that the late push starts from: the fence alone refuses it."""
    held = server.fail("POST", PUSH, How.HELD)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(house.other_life().merge, candidate, 1)
        assert held.reached.wait(60)
        house.forge.revoke_merge(candidate, "newer")
        held.go_on.set()
        with pytest.raises(OutsideError, match="moved on"):
            late.result(60)
    assert house.main == candidate.base_sha
    assert house.forge.landed([candidate]) is None


def test_who_does_not_hold_the_mark_pushes_nothing_to_main(house: RemoteHouse, candidate: Candidate) -> None:
    house.forge.claim_installation(None, MARK)
    for held in (InstallationMark("ours", 0, "before"), None):
        with pytest.raises(InstallationChanged):
            house.forge.merge(candidate, 1, held=held)
    assert house.main == candidate.base_sha
    house.forge.merge(candidate, 1, held=MARK)
    assert house.main == candidate.sha


def test_a_pull_request_merged_by_hand_too_early_is_no_hindrance(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate
) -> None:
    server.merge_by_hand(house.there, house.there.pulls[0])
    house.forge.revoke_merge(candidate, "newer")
    house.clone.fetch()
    second = house.candidate(candidate.head_sha, sequence=2)
    house.forge.prepare_merge(second, house.clone.path, BRANCH)
    house.forge.merge(second, 1)
    assert house.forge.landed([candidate, second]) == as_it_is(second)
    assert len(house.there.pulls) == 1


# -- by the server -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [How.LOST, How.AFTER, How.GARBAGE])
def test_only_git_says_what_the_servers_merge_came_to(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate, how: How
) -> None:
    house.there.protect("main", Rules())
    house.there.looks_until_synced = 0
    server.fail("PUT", MERGE, how)
    if how is How.GARBAGE:
        house.forge.merge(candidate, 1)
    else:
        with pytest.raises(OutsideError):
            house.forge.merge(candidate, 1)
    assert landed_as_tested(house, candidate)
    [call] = server.calls("PUT", MERGE)
    assert (call.body["sha"], call.body["merge_method"]) == (candidate.sha, "merge")
    main = house.main
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, 1)
    assert house.main == main


def test_a_merge_that_was_on_its_way_is_refused_once_it_is_given_up(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate
) -> None:
    house.there.protect("main", Rules())
    house.there.looks_until_synced = 0
    held = server.fail("PUT", MERGE, How.HELD)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(house.other_life(patience_s=0.0).merge, candidate, 1)
        assert held.reached.wait(60)
        house.forge.revoke_merge(candidate, "newer")
        held.go_on.set()
        with pytest.raises(OutsideError, match="Head branch was modified"):
            late.result(60)
    assert house.forge.tip(BRANCH) == candidate.head_sha
    assert house.main == candidate.base_sha


def test_the_server_is_asked_again_until_it_has_seen_the_candidate(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate
) -> None:
    house.there.protect("main", Rules())
    house.there.looks_until_synced = 3
    house.forge.merge(candidate, 1)
    assert set(merges_asked(server)[:-1]) == {409}
    assert merges_asked(server)[-1] == 200
    assert landed_as_tested(house, candidate)


def test_patience_is_bounded(house: RemoteHouse, server: FakeGitHub, candidate: Candidate) -> None:
    house.there.protect("main", Rules())
    house.there.looks_until_synced = 10**6
    with pytest.raises(OutsideError, match="Head branch was modified"):
        github_forge(server, house.git, house.root / "more.git", clock=SteppingClock()).merge(candidate, 1)
    assert 10 < len(merges_asked(server)) < 100
    assert house.main == candidate.base_sha


def test_required_checks_are_waited_for_and_then_the_candidate_itself_lands(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate
) -> None:
    """They run on the candidate once it is the pull request's head. Then it may be pushed as well."""
    house.there.protect("main", Rules(checks=("ci",)))
    with pytest.raises(OutsideError, match='"ci" is expected'):
        house.forge.merge(candidate, 1)
    assert house.forge.tip(BRANCH) == candidate.sha
    assert house.main == candidate.base_sha
    house.there.statuses[candidate.sha] = [{"context": "ci", "state": "success"}]
    house.there.guard()
    house.forge.merge(candidate, 1)
    assert house.forge.landed([candidate]) == as_it_is(candidate)


def test_without_a_way_to_merge_nothing_is_done(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate
) -> None:
    house.there.protect("main", Rules())
    house.there.merge_commits = False
    with pytest.raises(OutsideError, match="takes no push.* allows no merge commits"):
        house.forge.merge(candidate, 1)
    assert house.forge.tip(BRANCH) == candidate.head_sha
    assert house.main == candidate.base_sha


# -- its limits ----------------------------------------------------------------------------------------------------


def test_a_spent_hour_is_waited_for_in_silence_and_git_goes_on(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate
) -> None:
    server.remaining = 0
    for _ in range(3):
        with pytest.raises(AuthorityUnreachable, match="limits our requests"):
            house.forge.pull_requests(BRANCH)
    assert len([call for call in server.journal.calls if call.status == 403]) == 1
    assert house.forge.landed([candidate]) is None
    assert house.forge.tip(BRANCH) == candidate.head_sha


def test_what_has_not_changed_costs_nothing(
    house: RemoteHouse, server: FakeGitHub, candidate: Candidate
) -> None:
    first = house.forge.pull_requests(BRANCH)
    left = server.remaining
    assert house.forge.pull_requests(BRANCH) == first
    assert (server.remaining, server.journal.calls[-1].status) == (left, 304)
    server.close_by_hand(house.there, house.there.pulls[0])
    assert [pull.state for pull in house.forge.pull_requests(BRANCH)] == ["closed"]
