"""What is Gitea's own, and what every forge over git does: lost answers, patience, late actors, the mark."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.errors import InstallationChanged, OutsideError
from orchestrator.domain.ids import Sha, TaskId
from orchestrator.domain.installation import InstallationMark
from orchestrator.domain.task import Candidate
from orchestrator.forges.forge import PushCall
from orchestrator.forges.gitea_api import CLOSED_PAGES, PAGE, released
from orchestrator.played.gitea import FakeGitea, How
from orchestrator.rest.api import ANSWER_LIMIT
from orchestrator.runtime.git import Git
from tests.fixtures_git import BRANCH, as_it_is, person_at
from tests.fixtures_git_server import RemoteHouse, SteppingClock
from tests.fixtures_gitea import gitea_forge, gitea_house

MERGE = r"/pulls/\d+/merge$"
PUSH = r"/git-receive-pack$"
MARK = InstallationMark("ours", 1, "start")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeGitea]:
    with FakeGitea(tmp_path / "server") as fake:
        yield fake


@pytest.fixture
def house(tmp_path: Path, server: FakeGitea, git: Git) -> RemoteHouse:
    return gitea_house(tmp_path, server, person_at(tmp_path / "person", {"README.md": "Sample\n"}), git)


@pytest.fixture
def candidate(house: RemoteHouse, candidate: Candidate) -> Candidate:
    """A server merges pull requests alone."""
    house.forge.open_pr(BRANCH, "t", "b")
    return candidate


def merges_asked(server: FakeGitea) -> list[int]:
    return [call.status for call in server.calls("POST", MERGE)]


# -- answers that say little ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "status"),
    [(How.LOST, 0), (How.AFTER, 500), (How.AFTER, 502), (How.GARBAGE, 200)],
    ids=["answer lost", "500 after the merge", "502 after the merge", "an answer of somebody else"],
)
def test_only_git_says_what_a_merge_came_to(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate, how: How, status: int
) -> None:
    house.there.looks_until_checked = 0
    server.fail("POST", MERGE, how, status=status)
    if how is How.GARBAGE:
        house.forge.merge(candidate, 1)
    else:
        with pytest.raises(OutsideError):
            house.forge.merge(candidate, 1)
    assert house.forge.landed([candidate]) == as_it_is(candidate)
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, 1)
    assert house.main == candidate.sha


def test_a_merge_that_the_server_did_not_write_down_has_landed(
    house: RemoteHouse, candidate: Candidate
) -> None:
    """Its pull request stays open for ever (go-gitea/gitea#38560); asked again, it cannot land twice."""
    house.there.unrecorded_merges = 1
    with pytest.raises(OutsideError, match="500"):
        house.forge.merge(candidate, 1)
    assert house.forge.pull_requests(BRANCH)[0].state == "open"
    assert house.forge.landed([candidate]) == as_it_is(candidate)
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, 1)
    assert house.main == candidate.sha


@pytest.mark.parametrize("how", [How.LOST, How.AFTER], ids=["answer lost", "500 after"])
def test_a_push_whose_answer_is_lost_is_seen_by_its_reference(
    house: RemoteHouse, server: FakeGitea, head: Sha, how: How
) -> None:
    other = house.clone.commit_files(house.main, {"b": b"1"}, "B")
    server.fail("POST", PUSH, how)
    with pytest.raises(OutsideError):
        house.forge.push(house.clone.path, other, BRANCH, head, call=PushCall(TaskId(1), 7))
    assert house.forge.tip(BRANCH) == other
    house.forge.push(house.clone.path, other, BRANCH, head, call=PushCall(TaskId(1), 7))


def test_patience_is_bounded(house: RemoteHouse, server: FakeGitea, candidate: Candidate) -> None:
    house.there.looks_until_checked = 10**6
    clock = SteppingClock()
    with pytest.raises(OutsideError, match="try again later"):
        gitea_forge(server, house.git, house.root / "more.git", clock=clock).merge(candidate, 1)
    assert 10 < len(merges_asked(server)) < 100
    assert set(merges_asked(server)) == {405}
    assert house.main == candidate.base_sha


def test_a_policy_of_the_server_is_a_refusal_and_no_reason_to_wait(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate
) -> None:
    rule = {"enable_push": False, "enable_status_check": True, "status_check_contexts": ["ci"]}
    house.there.protections["main"] = rule
    with pytest.raises(OutsideError, match="required status checks"):
        house.forge.merge(candidate, 1)
    assert house.main == candidate.base_sha


@pytest.mark.parametrize(
    ("version", "style"),
    [("1.21.11", "merge"), ("1.22.0", "fast-forward-only"), ("12.0.0+gitea-1.22.0", "fast-forward-only")],
)
def test_the_way_to_merge_follows_from_what_the_server_knows(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate, version: str, style: str
) -> None:
    server.version = version
    house.forge.merge(candidate, 1)
    assert {call.body["Do"] for call in server.calls("POST", MERGE)} == {style}
    assert {call.body["head_commit_id"] for call in server.calls("POST", MERGE)} == {candidate.sha}
    landed = house.forge.landed([candidate])
    assert landed is not None
    assert landed.tree == candidate.tree


def test_versions_of_both() -> None:
    assert released("1.27.0+dev-12-gabcdef1") == (1, 27)
    assert released("10.0.3+gitea-1.22.0") == (1, 22)
    assert released("nonsense") == ()


# -- late actors ---------------------------------------------------------------------------------------------------


def test_a_merge_that_was_on_its_way_is_refused_once_it_is_given_up(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate
) -> None:
    """Its request left before; it reaches the server after."""
    house.there.looks_until_checked = 0
    held = server.fail("POST", MERGE, How.HELD)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(house.other_life().merge, candidate, 1)
        assert held.reached.wait(60)
        assert house.forge.tip(BRANCH) == candidate.sha
        house.forge.revoke_merge(candidate, "newer")
        assert house.forge.tip(BRANCH) == candidate.head_sha
        held.go_on.set()
        with pytest.raises(OutsideError, match="head out of date"):
            late.result(60)
    assert house.main == candidate.base_sha
    assert house.forge.landed([candidate]) is None


def test_a_push_of_the_candidate_that_was_on_its_way_is_refused_once_it_is_given_up(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate
) -> None:
    """The branch then has the very value again that the late push starts from: the fence alone refuses it."""
    held = server.fail("POST", PUSH, How.HELD)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(house.other_life().merge, candidate, 1)
        assert held.reached.wait(60)
        house.forge.revoke_merge(candidate, "newer")
        held.go_on.set()
        with pytest.raises(OutsideError, match="moved on"):
            late.result(60)
    assert house.forge.tip(BRANCH) == candidate.head_sha
    assert merges_asked(server) == []


def test_a_branch_push_that_was_on_its_way_is_refused_once_it_is_given_up(
    house: RemoteHouse, server: FakeGitea, head: Sha
) -> None:
    other = house.clone.commit_files(house.main, {"b": b"1"}, "B")
    call = PushCall(TaskId(1), 7)
    held = server.fail("POST", PUSH, How.HELD)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(house.other_life().push, house.clone.path, other, BRANCH, head, call=call)
        assert held.reached.wait(60)
        house.forge.revoke_push(call, "newer")
        held.go_on.set()
        with pytest.raises(OutsideError, match="given up"):
            late.result(60)
    assert house.forge.tip(BRANCH) == head


def test_giving_up_waits_for_what_the_server_may_have_begun(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate, head: Sha
) -> None:
    clock = SteppingClock()
    there = gitea_forge(server, house.git, house.root / "more.git", clock=clock, settle_s=7.0)
    there.revoke_merge(candidate, "newer")
    there.revoke_merge(candidate, "again")  # the first may have died before it had waited
    assert clock.waits == [7.0, 7.0]
    never = house.candidate(head, task=2)
    there.revoke_merge(never, "newer")
    assert clock.waits == [7.0, 7.0]


def test_tasks_that_race_for_the_mark_all_get_their_turn(house: RemoteHouse, head: Sha) -> None:
    house.forge.claim_installation(None, MARK)
    made = [house.candidate(head, task=number) for number in range(1, 4)]

    def prepare(candidate: Candidate) -> None:
        house.forge.prepare_merge(candidate, house.clone.path, BRANCH, held=MARK)

    with ThreadPoolExecutor() as pool:
        list(pool.map(prepare, made))
    assert all(house.forge.prepared(candidate) for candidate in made)
    assert house.forge.installation() == MARK


# -- the installation's mark ---------------------------------------------------------------------------------------


def test_the_mark_is_claimed_by_one(house: RemoteHouse) -> None:
    assert house.forge.installation() is None
    house.forge.claim_installation(None, MARK)
    assert house.forge.installation() == MARK
    other = InstallationMark("theirs", 1, "other")
    for held in (None, other):
        with pytest.raises(InstallationChanged):
            house.other_life().claim_installation(held, other)
    after = InstallationMark("ours", 2, "next")
    house.forge.claim_installation(MARK, after)
    assert house.forge.installation() == after


def test_who_does_not_hold_the_mark_prepares_merges_and_revokes_nothing(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate, head: Sha
) -> None:
    house.forge.claim_installation(None, MARK)
    stale = InstallationMark("ours", 0, "before")
    other = house.candidate(head, task=2)
    acts: Sequence[Callable[[Any], object]] = (
        lambda held: house.forge.prepare_merge(other, house.clone.path, BRANCH, held=held),
        lambda held: house.forge.merge(candidate, 1, held=held),
        lambda held: house.forge.revoke_merge(candidate, "t", held=held),
        lambda held: house.forge.revoke_push(PushCall(TaskId(1), 3), "t", held=held),
    )
    for act in acts:
        for held in (stale, None):
            with pytest.raises(InstallationChanged):
                act(held)
    assert house.forge.prepared(candidate)
    assert merges_asked(server) == []
    house.forge.merge(candidate, 1, held=MARK)
    assert house.main == candidate.sha


def test_the_mark_is_looked_at_also_where_the_candidate_is_the_head_already(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate
) -> None:
    house.forge.git.show(candidate, BRANCH)  # type: ignore[attr-defined]
    house.other_life().claim_installation(None, MARK)
    with pytest.raises(InstallationChanged):
        house.forge.merge(candidate, 1)
    assert merges_asked(server) == []


def test_what_was_prepared_and_merged_is_found_again(house: RemoteHouse, candidate: Candidate) -> None:
    before = house.main
    assert [seen.sha for seen in house.forge.candidates()] == [candidate.sha]
    assert house.forge.highest_fence() == house.forge.highest_fence([TaskId(1)]) == candidate.sequence
    assert house.forge.highest_fence([TaskId(2)]) == 0
    house.forge.merge(candidate, 1)
    [seen] = house.other_life().merged_since([before])
    assert (seen.sha, seen.nonce, seen.sequence) == (candidate.sha, candidate.nonce, candidate.sequence)
    assert list(house.forge.merged_since([candidate.sha])) == []


# -- what people do at the server ----------------------------------------------------------------------------------


def test_a_pull_request_merged_by_hand_is_ours_if_it_brought_the_candidate(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate
) -> None:
    house.forge.git.show(candidate, BRANCH)  # type: ignore[attr-defined]
    server.merge_by_hand(house.there, house.there.pulls[0])
    landed = house.forge.landed([candidate])
    assert landed is not None
    assert (landed.sha, landed.tree) == (house.main, candidate.tree)
    assert house.forge.pull_requests(BRANCH)[0].state == "merged"


def test_a_pull_request_merged_by_hand_too_early_has_a_successor(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate
) -> None:
    """What it brought was not the candidate: another one is made on top, and needs a pull request to be merged by."""
    server.merge_by_hand(house.there, house.there.pulls[0])
    assert house.forge.landed([candidate]) is None
    house.forge.revoke_merge(candidate, "newer")
    house.clone.fetch()
    second = house.candidate(candidate.head_sha, sequence=2)
    house.forge.prepare_merge(second, house.clone.path, BRANCH)
    house.forge.merge(second, 1)
    assert house.forge.landed([candidate, second]) == as_it_is(second)
    assert [pull.state for pull in house.forge.pull_requests(BRANCH)] == ["merged", "merged"]


def test_an_older_main_is_noticed_before_the_branch_is_touched(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate
) -> None:
    house.outsider_pushes({"theirs.txt": "1\n"})
    with pytest.raises(OutsideError, match="The branch main is at"):
        house.forge.merge(candidate, 1)
    assert house.forge.tip(BRANCH) == candidate.head_sha
    assert merges_asked(server) == []


def test_extra_pull_requests_are_shown_and_those_of_forks_are_not(house: RemoteHouse, head: Sha) -> None:
    """Two calls at once may open two: the server does not look twice."""
    for _ in range(2):
        house.there.open("t", "b", "orchbot", "main", BRANCH, head)
    assert [pull.number for pull in house.forge.pull_requests(BRANCH)] == [1, 2]
    house.forge.close_pr(2)
    assert [pull.state for pull in house.forge.pull_requests(BRANCH)] == ["open", "closed"]


def test_one_that_was_closed_long_ago_is_known_by_its_number(house: RemoteHouse, head: Sha) -> None:
    """Of the closed ones a list of a branch's shows those that were changed last."""
    ours = house.forge.open_pr(BRANCH, "t", "b")
    house.forge.close_pr(ours.number)
    for number in range(CLOSED_PAGES * PAGE):
        house.there.close(house.there.open("t", "b", "dana", "main", f"theirs-{number}", head))
    assert list(house.forge.pull_requests(BRANCH)) == []
    found = house.forge.pull_request(ours.number)
    assert found is not None and found.state == "closed"


def test_long_texts_of_strangers_keep_no_pull_request_away(
    house: RemoteHouse, server: FakeGitea, head: Sha
) -> None:
    """A page of them would be larger than what is read of an answer, and one is by itself."""
    for number, size in enumerate([1_000_000] * 12 + [ANSWER_LIMIT]):
        house.there.open("t", "x" * size, "mallory", "main", f"theirs-{number}", head)
    ours = house.forge.open_pr(BRANCH, "t", "b")
    assert [pull.number for pull in house.forge.pull_requests(BRANCH)] == [ours.number]
    asked = [call.query["limit"] for call in server.calls("GET", r"/pulls$")]
    assert list(dict.fromkeys(asked)) == ["50", "10", "1"]


def test_a_tickets_words_close_no_ticket_there(house: RemoteHouse, server: FakeGitea) -> None:
    head = house.clone.commit_files(house.main, {"a.txt": b"1\n"}, "A")
    house.push(BRANCH, head)
    house.forge.open_pr(BRANCH, "S-1: Change it", "closes #5\n```\n@everyone")
    [call] = server.calls("POST", r"/pulls$")
    assert call.body["body"] == "````text\ncloses #5\n```\n@everyone\n````"
