"""What is Gitea's own: lost answers, patience, late actors, what people do at the server, and the token."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.errors import AuthorityUnreachable, GitError, InstallationChanged, OutsideError
from orchestrator.domain.ids import Sha, TaskId
from orchestrator.domain.installation import InstallationMark
from orchestrator.domain.task import Candidate
from orchestrator.forges.forge import PushCall
from orchestrator.forges.gitea_api import released
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Completed, SystemProcesses
from tests.fakes.gitea import FakeGitea, How
from tests.fixtures_git import BRANCH, as_it_is, person_at
from tests.fixtures_gitea import GiteaHouse, gitea_forge, gitea_house

MERGE = r"/pulls/\d+/merge$"
PUSH = r"/git-receive-pack$"
MARK = InstallationMark("ours", 1, "start")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeGitea]:
    with FakeGitea(tmp_path / "server") as fake:
        yield fake


@pytest.fixture
def house(tmp_path: Path, server: FakeGitea, git: Git) -> GiteaHouse:
    return gitea_house(tmp_path, server, person_at(tmp_path / "person", {"README.md": "Sample\n"}), git)


@pytest.fixture
def candidate(house: GiteaHouse, candidate: Candidate) -> Candidate:
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
    house: GiteaHouse, server: FakeGitea, candidate: Candidate, how: How, status: int
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
    house: GiteaHouse, candidate: Candidate
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
    house: GiteaHouse, server: FakeGitea, head: Sha, how: How
) -> None:
    other = house.clone.commit_files(house.main, {"b": b"1"}, "B")
    server.fail("POST", PUSH, how)
    with pytest.raises(OutsideError):
        house.forge.push(house.clone.path, other, BRANCH, head, call=PushCall(TaskId(1), 7))
    assert house.forge.tip(BRANCH) == other
    house.forge.push(house.clone.path, other, BRANCH, head, call=PushCall(TaskId(1), 7))


@pytest.mark.parametrize("how", [How.LOST, How.AFTER, How.GARBAGE])
def test_a_pull_request_whose_answer_is_lost_is_adopted(
    house: GiteaHouse, server: FakeGitea, head: Sha, how: How
) -> None:
    server.fail("POST", r"/pulls$", how)
    try:
        house.forge.open_pr(BRANCH, "t", "b")
    except OutsideError:
        assert how in (How.LOST, How.GARBAGE)
    assert house.forge.open_pr(BRANCH, "t", "b").number == 1
    assert len(house.there.pulls) == 1


def test_patience_is_bounded(house: GiteaHouse, server: FakeGitea, candidate: Candidate) -> None:
    house.there.looks_until_checked = 10**6
    clock = SteppingClock()
    with pytest.raises(OutsideError, match="try again later"):
        gitea_forge(server, house.git, house.root / "more.git", clock=clock).merge(candidate, 1)
    assert 10 < len(merges_asked(server)) < 100
    assert set(merges_asked(server)) == {405}
    assert house.main == candidate.base_sha


class SteppingClock(SystemClock):
    """Nobody waits; the time moves on all the same."""

    def __init__(self) -> None:
        self.moved = 0.0
        self.waits: list[float] = []

    def boottime(self) -> float:
        return super().boottime() + self.moved

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        self.waits.append(seconds or 0.0)
        self.moved += seconds or 0.0
        return event.is_set()


def test_a_policy_of_the_server_is_a_refusal_and_no_reason_to_wait(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
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
    house: GiteaHouse, server: FakeGitea, candidate: Candidate, version: str, style: str
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
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
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
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
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
    house: GiteaHouse, server: FakeGitea, head: Sha
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
    house: GiteaHouse, server: FakeGitea, candidate: Candidate, head: Sha
) -> None:
    clock = SteppingClock()
    there = gitea_forge(server, house.git, house.root / "more.git", clock=clock, settle_s=7.0)
    there.revoke_merge(candidate, "newer")
    there.revoke_merge(candidate, "again")  # the first may have died before it had waited
    assert clock.waits == [7.0, 7.0]
    never = house.candidate(head, task=2)
    there.revoke_merge(never, "newer")
    assert clock.waits == [7.0, 7.0]


def test_tasks_that_race_for_the_mark_all_get_their_turn(house: GiteaHouse, head: Sha) -> None:
    house.forge.claim_installation(None, MARK)
    made = [house.candidate(head, task=number) for number in range(1, 4)]

    def prepare(candidate: Candidate) -> None:
        house.forge.prepare_merge(candidate, house.clone.path, BRANCH, held=MARK)

    with ThreadPoolExecutor() as pool:
        list(pool.map(prepare, made))
    assert all(house.forge.prepared(candidate) for candidate in made)
    assert house.forge.installation() == MARK


# -- the installation's mark ---------------------------------------------------------------------------------------


def test_the_mark_is_claimed_by_one(house: GiteaHouse) -> None:
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
    house: GiteaHouse, server: FakeGitea, candidate: Candidate, head: Sha
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
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
) -> None:
    house.forge.git.show(candidate, BRANCH)  # type: ignore[attr-defined]
    house.other_life().claim_installation(None, MARK)
    with pytest.raises(InstallationChanged):
        house.forge.merge(candidate, 1)
    assert merges_asked(server) == []


def test_what_was_prepared_and_merged_is_found_again(house: GiteaHouse, candidate: Candidate) -> None:
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
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
) -> None:
    house.forge.git.show(candidate, BRANCH)  # type: ignore[attr-defined]
    server.merge_by_hand(house.there, house.there.pulls[0])
    landed = house.forge.landed([candidate])
    assert landed is not None
    assert (landed.sha, landed.tree) == (house.main, candidate.tree)
    assert house.forge.pull_requests(BRANCH)[0].state == "merged"


def test_a_pull_request_merged_by_hand_too_early_has_a_successor(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
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


def test_a_pull_request_closed_by_hand_is_not_merged(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
) -> None:
    server.close_by_hand(house.there, house.there.pulls[0])
    assert [pull.state for pull in house.forge.pull_requests(BRANCH)] == ["closed"]
    with pytest.raises(OutsideError, match="is closed"):
        house.forge.merge(candidate, 1)
    assert house.forge.tip(BRANCH) == candidate.head_sha


@pytest.mark.parametrize("gone", [False, True], ids=["pushed over", "removed"])
def test_a_branch_that_somebody_has_moved_is_left_alone(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate, gone: bool
) -> None:
    theirs = None if gone else candidate.base_sha
    house.there.git(
        "update-ref", *(["-d"] if gone else []), f"refs/heads/{BRANCH}", *([theirs] if theirs else [])
    )
    with pytest.raises(OutsideError):
        house.forge.merge(candidate, 1)
    assert house.forge.tip(BRANCH) == theirs
    house.forge.revoke_merge(candidate, "newer")
    assert house.forge.tip(BRANCH) == theirs
    assert house.forge.pull_requests(BRANCH)[0].state == ("closed" if gone else "open")


def test_a_pull_request_that_was_pointed_at_another_branch_is_not_merged(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
) -> None:
    house.there.git("update-ref", "refs/heads/release", candidate.base_sha)
    house.there.pulls[0].base = "release"
    assert list(house.forge.pull_requests(BRANCH)) == []
    for number in (1, None):
        with pytest.raises(OutsideError, match="no pull request"):
            house.forge.merge(candidate, number)
    assert merges_asked(server) == []


def test_an_older_main_is_noticed_before_the_branch_is_touched(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
) -> None:
    house.outsider_pushes({"theirs.txt": "1\n"})
    with pytest.raises(OutsideError, match="The branch main is at"):
        house.forge.merge(candidate, 1)
    assert house.forge.tip(BRANCH) == candidate.head_sha
    assert merges_asked(server) == []


def test_extra_pull_requests_are_shown_and_those_of_forks_are_not(house: GiteaHouse, head: Sha) -> None:
    """Two calls at once may open two: the server does not look twice."""
    for _ in range(2):
        house.there.open("t", "b", "orchbot", "main", BRANCH, head)
    assert [pull.number for pull in house.forge.pull_requests(BRANCH)] == [1, 2]
    house.forge.close_pr(2)
    assert [pull.state for pull in house.forge.pull_requests(BRANCH)] == ["open", "closed"]


def test_all_pages_of_open_pull_requests_are_read(house: GiteaHouse, server: FakeGitea, head: Sha) -> None:
    for number in range(61):
        house.there.git("update-ref", f"refs/heads/b{number}", head)
        house.there.open("t", "b", "dana", "main", f"b{number}", head)
    house.there.open("t", "b", "orchbot", "main", BRANCH, head)
    assert [pull.number for pull in house.forge.pull_requests(BRANCH)] == [62]
    assert [pull.number for pull in house.forge.pull_requests("b0")] == [1]


def test_a_renamed_repository_is_noticed_and_its_new_address_not_followed(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
) -> None:
    server.rename(house.there, "store")
    asked: Sequence[Callable[[], object]] = (
        lambda: house.forge.tip("main"),
        lambda: house.forge.landed([candidate]),
        lambda: house.forge.pull_requests(BRANCH),
        lambda: house.forge.merge(candidate, 1),
    )
    for ask in asked:
        with pytest.raises(AuthorityUnreachable, match="renamed"):
            ask()
    assert not [call for call in server.journal.calls if "store" in call.path]


# -- the server does not answer, or not us -------------------------------------------------------------------------


def test_a_revoked_token_is_no_fact(house: GiteaHouse, server: FakeGitea, candidate: Candidate) -> None:
    server.revoke_token()
    for ask in (
        lambda: house.forge.tip("main"),
        lambda: house.forge.landed([candidate]),
        lambda: house.forge.prepared(candidate),
        lambda: house.forge.pull_requests(BRANCH),
        lambda: house.forge.merge(candidate, 1),
    ):
        with pytest.raises(AuthorityUnreachable, match="token"):
            ask()
    with pytest.raises(OutsideError, match="token"):
        house.forge.revoke_merge(candidate, "newer")


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_in_trouble_is_no_fact(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate, status: int
) -> None:
    for path in (r"/api/v1/", r"/info/refs", r"/git-upload-pack"):
        for method in ("GET", "POST", "PATCH"):
            server.fail(method, path, How.BEFORE, status=status, times=99, headers={"Retry-After": "1"})
    for ask in (
        lambda: house.forge.tip("main"),
        lambda: house.forge.landed([candidate]),
        lambda: house.forge.pull_requests(BRANCH),
        lambda: house.forge.merge(candidate, 1),
        lambda: house.forge.close_pr(1),
    ):
        with pytest.raises(AuthorityUnreachable):
            ask()


def test_a_repository_that_we_may_not_see_any_more_is_no_closed_pull_request(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate
) -> None:
    house.there.rights.clear()
    with pytest.raises(AuthorityUnreachable, match="may the token's user see it"):
        house.forge.close_pr(1)
    with pytest.raises(AuthorityUnreachable):
        house.forge.pull_requests(BRANCH)


def test_a_server_that_is_down_is_no_fact(tmp_path: Path, git: Git) -> None:
    with FakeGitea(tmp_path / "server") as server:
        house = gitea_house(tmp_path, server, person_at(tmp_path / "person", {"a": "1"}), git)
    with pytest.raises(AuthorityUnreachable):
        house.forge.tip("main")
    with pytest.raises(AuthorityUnreachable):
        house.forge.pull_requests(BRANCH)


# -- the token -----------------------------------------------------------------------------------------------------


class Watched(SystemProcesses):
    """Every command line and every environment."""

    def __init__(self) -> None:
        super().__init__()
        self.argvs: list[str] = []

    def run(self, argv: Sequence[str], **more: Any) -> Completed:
        self.argvs.append(" ".join(argv))
        return super().run(argv, **more)


def test_the_token_stands_in_no_command_line_file_address_or_message(
    house: GiteaHouse, server: FakeGitea, candidate: Candidate, caplog: pytest.LogCaptureFixture
) -> None:
    processes, secret = Watched(), server.token
    told: list[str] = []
    mirror = house.root / "watched.git"
    forge = gitea_forge(server, Git(processes), mirror)
    forge.merge(candidate, 1)
    forge.landed([candidate])
    server.revoke_token()
    for act in (lambda: forge.tip("main"), lambda: forge.close_pr(1), lambda: forge.landed([candidate])):
        try:
            act()
        except OutsideError as error:
            told += [str(error), getattr(error, "stderr", ""), repr(error.__cause__)]
            cause = error.__cause__
            told += [cause.stderr] if isinstance(cause, GitError) else []
    basic = next(c.headers["authorization"] for c in server.journal.calls if "info/refs" in c.path)
    found = [*processes.argvs, *told, caplog.text, forge.fetch_url()]
    found += [p.read_text("latin-1") for p in mirror.rglob("*") if p.is_file() and not p.is_socket()]
    found += [f"{call.path} {call.query}" for call in server.journal.calls]
    assert told
    assert not [text for text in found if secret in text or basic.split()[1] in text]
    assert secret not in str(dict(os.environ))
