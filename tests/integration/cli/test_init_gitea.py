"""`orch init --gitea`, and a ticket delivered at the server by `orch run`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.played.gitea import FakeGitea, How, Repository, Style
from tests.fixtures_git import Hand
from tests.fixtures_git_server import NAME, repository_at
from tests.fixtures_orch import CONFIG, Here, Orch
from tests.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path, orch: Orch) -> Iterator[FakeGitea]:
    with FakeGitea(tmp_path / "server") as fake:
        token = tmp_path / "token"
        token.write_text(fake.token + "\n")
        orch.settings |= {"ORCH_GITEA_URL": fake.url, "ORCH_GITEA_TOKEN_FILE": str(token)}
        orch.settings |= {"ORCH_FORGE_SETTLE_S": "0"}
        yield fake


@pytest.fixture
def mine(orch: Orch, server: FakeGitea) -> tuple[Hand, Repository]:
    hand = orch.checkout(files={"README.md": "Shop\n"})
    return hand, repository_at(server, hand)


def test_a_ticket_is_delivered_at_the_server(
    orch: Orch, server: FakeGitea, mine: tuple[Hand, Repository]
) -> None:
    hand, there = mine
    said = orch("init", "--gitea", NAME, "--json", cwd=hand.folder)
    assert said.code == 0, said.err
    assert (said.data["repository"], said.data["forge"]) == ("shop", f"{server.url}/{NAME}")
    assert hand.git("config", "remote.orch.url") == f"{server.url}/{NAME}"
    assert server.token not in said.out + said.err + (hand.folder / ".git/config").read_text()

    refused = orch("run", "Say hello", cwd=hand.folder)
    assert refused.code == 2
    assert "has no .orchestrator.toml on main" in refused.err
    before = hand.commit("Deliver tickets", {".orchestrator.toml": CONFIG})
    hand.git("push", "-q", str(there.path), "HEAD:main")

    doctor = orch("doctor", cwd=hand.folder)
    assert "its configuration is in order" in doctor.out
    done = orch("run", "Say hello", cwd=hand.folder)
    assert done.code == 0, done.out + done.err
    main = Hand(there.path)
    assert main.git("rev-parse", "main^1") == before
    [pull] = there.pulls
    assert (pull.merged, pull.title) == (True, "SHOP-1: Say hello")


def test_again_it_is_known_by_its_remote(
    server: FakeGitea, here: Here, mine: tuple[Hand, Repository]
) -> None:
    hand, _ = mine
    assert here("init", "--gitea", NAME, cwd=hand.folder).code == 0
    again = here("init", cwd=hand.folder)
    assert again.code == 0
    assert "Is registered as shop" in again.out
    other = here("init", "--gitea", "acme/other", cwd=hand.folder)
    assert other.code == 2
    assert f"registered with the forge {server.url}/{NAME} already" in other.err


@pytest.mark.long
def test_while_a_service_runs_it_registers(
    orch: Orch, server: FakeGitea, mine: tuple[Hand, Repository]
) -> None:
    with orch.serving():
        said = orch("init", "--gitea", NAME, cwd=mine[0].folder)
        assert said.code == 0, said.err
        again = orch("init", "--gitea", NAME, "--name", "twice", str(mine[0].folder))
        assert again.code == 2


@pytest.mark.parametrize("database_kind", ["sqlite", "postgres"], indirect=True)
def test_doctor_tells_of_settings_at_the_server(
    server: FakeGitea, here: Here, mine: tuple[Hand, Repository]
) -> None:
    hand, there = mine
    assert here("init", "--gitea", NAME, cwd=hand.folder).code == 0
    assert "main is not protected" in here("doctor", cwd=hand.folder).out
    there.protections["main"] = {"enable_push": False, "required_approvals": 1}
    said = here("doctor", cwd=hand.folder).out
    assert "main asks for approvals (1)" in said
    assert "not protected" not in said
    there.protections["main"]["dismiss_stale_approvals"] = True
    assert here("doctor", cwd=hand.folder).code == 0  # shown to administrators alone
    there.rights["orchbot"] = "admin"
    said = here("doctor", cwd=hand.folder)
    assert (said.code, "dismisses stale ones" in said.out) == (1, True)
    there.archived = True
    said = here("doctor", cwd=hand.folder)
    assert said.code == 1
    assert "It is archived." in said.out
    server.revoke_token()
    assert "refuses our token" in here("doctor", cwd=hand.folder).out


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("archived", "it is archived"),
        ("read only", "the token's user may not write to it"),
        ("no way to merge", "it allows neither fast-forward nor merge commits"),
        ("unseen", "may the token's user see it"),
        ("token", "refuses our token"),
        ("renamed", "was the repository renamed"),
        ("name", "names no repository"),
        ("empty", "has no commit on main yet"),
    ],
)
def test_what_cannot_be_worked_on_is_not_registered(
    server: FakeGitea, here: Here, mine: tuple[Hand, Repository], wrong: str, told: str
) -> None:
    hand, there = mine
    name = NAME
    if wrong == "archived":
        there.archived = True
    elif wrong == "read only":
        there.rights["orchbot"] = "read"
    elif wrong == "no way to merge":
        there.styles -= {Style.MERGE, Style.FAST_FORWARD}
    elif wrong == "unseen":
        there.rights.clear()
    elif wrong == "token":
        server.revoke_token()
    elif wrong == "renamed":
        server.rename(there, "store")
    elif wrong == "name":
        name = "../shop"
    else:
        there.git("update-ref", "-d", "refs/heads/main")
    said = here("init", "--gitea", name, cwd=hand.folder)
    assert said.code in (2, 3)
    assert told.lower() in said.err.lower()
    assert not (hand.folder / ".orchestrator.toml").exists()
    assert (
        here("init", str(hand.folder), "--json").data["registered_now"] is True
    )  # nothing stands in the way


def test_without_a_server_there_is_nothing_to_name(here: Here, orch: Orch) -> None:
    said = here("init", "--gitea", NAME, cwd=orch.checkout().folder)
    assert said.code == 2
    assert "No Gitea or Forgejo is configured" in said.err


def test_a_renamed_repository_is_named_by_doctor_and_moved(
    server: FakeGitea, here: Here, orch: Orch, mine: tuple[Hand, Repository]
) -> None:
    hand, there = mine
    assert here("repo", "list").code == 2
    assert here("init", "--gitea", NAME, cwd=hand.folder).code == 0
    hand.commit("Deliver tickets", {".orchestrator.toml": CONFIG})
    hand.git("push", "-q", str(there.path), "HEAD:main")
    server.rename(there, "store")
    doctor = here("doctor", cwd=hand.folder)
    assert doctor.code == 1
    assert "orch repo move shop --to acme/store" in doctor.out
    assert f"{server.url}/{NAME}" in here("repo", "list").out
    repository_at(server, orch.checkout("other", files={"OTHER.md": "Other\n"}), "acme/other")
    refused = here("repo", "move", "shop", "--to", "acme/other")
    assert refused.code == 2
    assert "acme/other is not shop as it was: its main does not contain" in refused.err
    moved = here("repo", "move", "shop", "--to", "acme/store")
    assert (moved.code, moved.err) == (0, "")
    assert f"git remote set-url orch {server.url}/acme/store" in moved.out
    assert here("repo", "move", "shop", "--to", "../store").code == 2
    assert here("repo", "move", "nosuch", "--to", "acme/store").code in (2, 3)


@pytest.mark.long
def test_a_renamed_repository_is_moved_by_a_service_that_runs(
    orch: Orch, server: FakeGitea, mine: tuple[Hand, Repository]
) -> None:
    hand, there = mine
    assert orch("init", "--gitea", NAME, cwd=hand.folder).code == 0
    with orch.serving():
        wait_until(lambda: there.sha("refs/orch/installation"))
        server.rename(there, "store")
        moved = orch("repo", "move", "shop", "--to", "acme/store", "--json", "--reason", "renamed")
        assert moved.code == 0, moved.err
        assert moved.data["location"] == f"{server.url}/acme/store"
        other = orch("repo", "move", "shop", "--to", "acme/nosuch")
        assert other.code == 3
    assert "acme/store" in orch("repo", "list").out


ASKING = CONFIG + '[forge]\nrequired_checks = ["build", "lint", "on pull requests alone"]\n'


def test_doctor_tells_of_checks_that_are_misspelled_or_cannot_be_read(
    server: FakeGitea, here: Here, mine: tuple[Hand, Repository]
) -> None:
    hand, there = mine
    head = hand.commit("Deliver tickets", {".orchestrator.toml": ASKING})
    hand.git("push", "-q", str(there.path), "HEAD:main")
    assert here("init", "--gitea", NAME, cwd=hand.folder).code == 0
    for name in ("build", "Lint"):
        server.say("dana", "POST", there, f"/statuses/{head}", {"context": name, "state": "success"})
    said = here("doctor", cwd=hand.folder)
    assert "No check of main is called lint" in said.out
    assert "Did you mean Lint?" in said.out
    assert "called build" not in said.out
    assert "pull requests alone" not in said.out
    server.fail("GET", r"/statuses$", How.BEFORE, status=403, times=1)
    said = here("doctor", cwd=hand.folder)
    assert said.code == 1
    assert "Its checks cannot be read" in said.out


def test_doctor_tells_of_a_local_forge_that_has_nobody_to_ask(here: Here, orch: Orch) -> None:
    hand = orch.checkout(files={".orchestrator.toml": ASKING})
    assert here("init", cwd=hand.folder).code == 0
    said = here("doctor", cwd=hand.folder)
    assert said.code == 1
    assert "a local one, which has none" in said.out
    assert here("disconnect", "shop").code == 0
    assert "a local one" not in here("doctor", cwd=hand.folder).out
