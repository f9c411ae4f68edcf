"""What goes the same way at every server: what people do there, answers that say nothing, and the token."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.errors import AuthorityUnreachable, GitError, OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.domain.task import Candidate
from orchestrator.played.common.faults import How
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Completed, SystemProcesses
from tests.fixtures_git import BRANCH, person_at
from tests.fixtures_git_server import RemoteHouse, remote_house
from tests.fixtures_gitea import gitea_forge
from tests.fixtures_github import github_forge
from tests.waiting import PATIENCE_S

KINDS: dict[str, tuple[Callable[[Path], Any], Callable[..., Any]]] = {
    "gitea": (FakeGitea, gitea_forge),
    "github": (FakeGitHub, github_forge),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(tmp_path: Path, kind: str) -> Iterator[Any]:
    with KINDS[kind][0](tmp_path / "server") as fake:
        yield fake


@pytest.fixture
def house(tmp_path: Path, server: Any, kind: str, git: Git) -> RemoteHouse:
    person = person_at(tmp_path / "person", {"README.md": "Sample\n"})
    return remote_house(tmp_path, server, person, git, KINDS[kind][1])


@pytest.fixture
def candidate(house: RemoteHouse, candidate: Candidate) -> Candidate:
    """A server merges pull requests alone."""
    house.forge.open_pr(BRANCH, "t", "b")
    return candidate


@pytest.mark.parametrize("how", [How.LOST, How.AFTER, How.GARBAGE])
def test_a_pull_request_whose_answer_is_lost_is_adopted(
    house: RemoteHouse, server: Any, head: Sha, how: How
) -> None:
    server.fail("POST", r"/pulls$", how)
    try:
        house.forge.open_pr(BRANCH, "t", "b")
    except OutsideError:
        assert how in (How.LOST, How.GARBAGE)
    assert house.forge.open_pr(BRANCH, "t", "b").number == 1
    assert len(house.there.pulls) == 1


def test_a_pull_request_whose_request_lands_late_is_opened_once(
    house: RemoteHouse, server: Any, head: Sha
) -> None:
    late = server.fail("POST", r"/pulls$", How.LATE, seconds=60.0)
    with pytest.raises(AuthorityUnreachable):
        house.forge.open_pr(BRANCH, "t", "b")
    assert house.there.pulls == []
    pull = house.forge.open_pr(BRANCH, "t", "b")
    late.go_on.set()
    assert late.landed.wait(PATIENCE_S)
    assert [one.number for one in house.there.pulls] == [pull.number]


def test_a_pull_request_closed_by_hand_is_not_merged(
    house: RemoteHouse, server: Any, candidate: Candidate
) -> None:
    server.close_by_hand(house.there, house.there.pulls[0])
    assert [pull.state for pull in house.forge.pull_requests(BRANCH)] == ["closed"]
    with pytest.raises(OutsideError, match="is closed"):
        house.forge.merge(candidate, 1)
    assert house.forge.tip(BRANCH) == candidate.head_sha


@pytest.mark.parametrize("gone", [False, True], ids=["pushed over", "removed"])
def test_a_branch_that_somebody_has_moved_is_left_alone(
    house: RemoteHouse, server: FakeGitea, candidate: Candidate, gone: bool
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
    house: RemoteHouse, server: Any, candidate: Candidate
) -> None:
    house.there.git("update-ref", "refs/heads/release", candidate.base_sha)
    house.there.pulls[0].base = "release"
    assert list(house.forge.pull_requests(BRANCH)) == []
    for number in (1, None):
        with pytest.raises(OutsideError, match="no pull request"):
            house.forge.merge(candidate, number)
    assert house.main == candidate.base_sha


def test_all_pages_of_open_pull_requests_are_read(house: RemoteHouse, kind: str, head: Sha) -> None:
    others = {"gitea": 51, "github": 101}[kind]  # more than a page
    for number in range(others):
        house.there.git("update-ref", f"refs/heads/b{number}", head)
        house.there.open("t", "b", "dana", "main", f"b{number}", head)
    house.there.open("t", "b", "orchbot", "main", BRANCH, head)
    assert len(house.forge._pulls.opened("main")) == others + 1
    assert [pull.number for pull in house.forge.pull_requests(BRANCH)] == [others + 1]
    assert [pull.number for pull in house.forge.pull_requests("b0")] == [1]


def test_a_renamed_repository_is_noticed_and_its_new_address_not_followed(
    house: RemoteHouse, server: Any, candidate: Candidate
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


def test_a_revoked_token_is_no_fact(house: RemoteHouse, server: Any, candidate: Candidate) -> None:
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


@pytest.mark.long(but=["gitea-503", "github-429"])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_server_in_trouble_is_no_fact(
    house: RemoteHouse, server: Any, candidate: Candidate, status: int
) -> None:
    for path in (r"/api/v", r"/info/refs", r"/git-upload-pack"):
        for method in ("GET", "POST", "PATCH", "PUT"):
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
    house: RemoteHouse, server: Any, candidate: Candidate
) -> None:
    house.there.rights.clear()
    with pytest.raises(AuthorityUnreachable, match="may the token's user see it"):
        house.forge.close_pr(1)
    with pytest.raises(AuthorityUnreachable):
        house.forge.pull_requests(BRANCH)


def test_a_server_that_is_down_is_no_fact(tmp_path: Path, kind: str, git: Git) -> None:
    play, make = KINDS[kind]
    with play(tmp_path / "server") as server:
        house = remote_house(tmp_path, server, person_at(tmp_path / "person", {"a": "1"}), git, make)
    with pytest.raises(AuthorityUnreachable):
        house.forge.tip("main")
    with pytest.raises(AuthorityUnreachable):
        house.forge.pull_requests(BRANCH)


class Watched(SystemProcesses):
    """Every command line and every environment."""

    def __init__(self) -> None:
        super().__init__()
        self.argvs: list[str] = []

    def run(self, argv: Sequence[str], **more: Any) -> Completed:
        self.argvs.append(" ".join(argv))
        return super().run(argv, **more)


def test_the_token_stands_in_no_command_line_file_address_or_message(
    house: RemoteHouse, server: Any, candidate: Candidate, caplog: pytest.LogCaptureFixture
) -> None:
    processes, secret = Watched(), server.token
    told: list[str] = []
    mirror = house.root / "watched.git"
    forge = house.make(server, Git(processes), mirror)
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
