"""`orch init --github`, and a ticket delivered there by `orch run`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.played.github import FakeGitHub, Repository, Rules
from tests.fixtures_git import Hand
from tests.fixtures_git_server import NAME, repository_at
from tests.fixtures_orch import CONFIG, Here, Orch


@pytest.fixture
def server(tmp_path: Path, orch: Orch) -> Iterator[FakeGitHub]:
    with FakeGitHub(tmp_path / "server") as fake:
        token = tmp_path / "token"
        token.write_text(fake.token + "\n")
        orch.settings |= {"ORCH_GITHUB_URL": fake.url, "ORCH_GITHUB_TOKEN_FILE": str(token)}
        orch.settings |= {"ORCH_FORGE_SETTLE_S": "0"}
        yield fake


@pytest.fixture
def mine(orch: Orch, server: FakeGitHub) -> tuple[Hand, Repository]:
    hand = orch.checkout(files={"README.md": "Shop\n"})
    return hand, repository_at(server, hand)


@pytest.mark.long
def test_a_ticket_is_delivered_at_the_server(
    orch: Orch, server: FakeGitHub, mine: tuple[Hand, Repository]
) -> None:
    hand, there = mine
    before = hand.commit("Deliver tickets", {".orchestrator.toml": CONFIG})
    hand.git("push", "-q", str(there.path), "HEAD:main")
    with orch.serving():  # the service registers it
        said = orch("init", "--github", NAME, "--json", cwd=hand.folder)
    assert said.code == 0, said.err
    assert (said.data["repository"], said.data["forge"]) == ("shop", f"{server.url}/{NAME}")
    assert hand.git("config", "remote.orch.url") == f"{server.url}/{NAME}"
    assert server.token not in said.out + said.err + (hand.folder / ".git/config").read_text()

    done = orch("run", "Say hello", cwd=hand.folder)
    assert done.code == 0, done.out + done.err
    assert Hand(there.path).git("rev-parse", "main^1") == before
    [pull] = there.pulls
    assert (pull.merged, pull.title) == (True, "SHOP-1: Say hello")


def test_doctor_tells_of_settings_at_the_server(
    server: FakeGitHub, here: Here, mine: tuple[Hand, Repository]
) -> None:
    hand, there = mine
    assert here("init", "--github", NAME, cwd=hand.folder).code == 0
    assert "main is not protected" in here("doctor", cwd=hand.folder).out
    there.protect("main", Rules(approvals=1, others=("merge_queue",)))
    said = here("doctor", cwd=hand.folder).out
    assert "main asks for approvals (1)" in said
    assert "main has a merge queue" in said
    assert "not protected" not in said
    server.revoke_token()
    assert "refuses our token" in here("doctor", cwd=hand.folder).out


@pytest.mark.long(
    but=["read only-the token's user may not write to it", "two forges-a repository has one forge"]
)
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("archived", "it is archived"),
        ("read only", "the token's user may not write to it"),
        ("unseen", "may the token's user see it"),
        ("renamed", "was the repository renamed"),
        ("two forges", "a repository has one forge"),
    ],
)
def test_what_cannot_be_worked_on_is_not_registered(
    server: FakeGitHub, here: Here, mine: tuple[Hand, Repository], wrong: str, told: str
) -> None:
    hand, there = mine
    more: tuple[str, ...] = ()
    if wrong == "archived":
        there.archived = True
    elif wrong == "read only":
        there.rights["orchbot"] = "read"
    elif wrong == "unseen":
        there.rights.clear()
    elif wrong == "renamed":
        server.rename(there, "store")
    else:
        more = ("--gitea", NAME)
    said = here("init", "--github", NAME, *more, cwd=hand.folder)
    assert said.code in (2, 3)
    assert told in said.err.lower()
    assert not (hand.folder / ".orchestrator.toml").exists()


def test_without_a_token_there_is_nothing_to_name(here: Here, orch: Orch) -> None:
    said = here("init", "--github", NAME, cwd=orch.checkout().folder)
    assert said.code == 2
    assert "No GitHub is configured" in said.err
