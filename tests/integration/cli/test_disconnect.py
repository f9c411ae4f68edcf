"""`orch disconnect`: no more tickets, nothing dropped without a word, and the way back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.played.common.hooks import Hook
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub
from tests.fixtures_git import Hand
from tests.fixtures_git_server import NAME, repository_at
from tests.fixtures_orch import Here, Orch


@pytest.fixture
def mine(orch: Orch) -> Hand:
    return orch.checkout()


def test_a_repository_is_left_and_connected_again(here: Here, mine: Hand) -> None:
    assert here("init", cwd=mine.folder).code == 0
    left = here("disconnect", "shop", "--reason", "moved away", "--json")
    assert (left.code, left.data["open"], left.data["already"]) == (0, [], False)
    refused = here("task", "add", "Say hello")
    assert refused.code == 2
    assert "was disconnected" in refused.err
    assert "disconnected" in here("repo", "list").out
    assert "(so it was)" in here("disconnect", "shop").out

    assert here("init", cwd=mine.folder).code == 0
    assert "disconnected" not in here("repo", "list").out
    assert here("task", "add", "Say hello", "--json").data["work_item"] == "SHOP-1"


def test_open_tasks_are_not_dropped(here: Here, mine: Hand) -> None:
    assert here("init", cwd=mine.folder).code == 0
    for title in ("One", "Two"):
        assert here("task", "add", title).code == 0
    refused = here("disconnect", "shop")
    assert refused.code == 2
    assert "SHOP-1, SHOP-2" in refused.err
    assert here("task", "add", "Three").code == 0
    said = here("disconnect", "shop", "--open", "finish")
    assert "Go on to their end: SHOP-1, SHOP-2, SHOP-3" in said.out
    said = here("disconnect", "shop", "--open", "cancel")
    assert "Are being cancelled: SHOP-1, SHOP-2, SHOP-3" in said.out
    assert here("disconnect", "shop", "--tickets").code == 2
    assert here("disconnect", "nosuch").code == 2


KINDS = {"gitea": FakeGitea, "github": FakeGitHub}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str, tmp_path: Path, orch: Orch) -> Iterator[FakeGitea | FakeGitHub]:
    with KINDS[kind](tmp_path / "server") as fake:
        token = tmp_path / "token"
        token.write_text(fake.token)
        orch.settings |= {
            f"ORCH_{kind.upper()}_URL": fake.url,
            f"ORCH_{kind.upper()}_TOKEN_FILE": str(token),
            "ORCH_BASE_URL": "https://orch.example",
        }
        yield fake


def test_the_webhook_is_removed_where_that_is_allowed(
    kind: str, server: FakeGitea | FakeGitHub, here: Here, mine: Hand
) -> None:
    there = repository_at(server, mine)
    address = f"https://orch.example/webhooks/{kind}"
    there.webhooks += [Hook(address, "s", ("push",), 1), Hook("https://elsewhere.example", "s", ("push",), 2)]
    assert here("init", f"--{kind}", NAME, cwd=mine.folder).code == 0
    said = here("disconnect", "shop")
    assert said.code == 0
    assert f"remove by hand what delivers at {address}" in said.out
    assert len(there.webhooks) == 2
    there.rights["orchbot"] = "admin"
    assert "its webhook (1) is removed" in here("disconnect", "shop").out
    assert [hook.number for hook in there.webhooks] == [2]
    server.revoke_token()
    assert "was not removed" in here("disconnect", "shop").out


@pytest.mark.long
def test_a_service_that_runs_is_asked(orch: Orch, mine: Hand) -> None:
    assert orch("init", cwd=mine.folder).code == 0
    with orch.serving():
        said = orch("disconnect", "shop", "--json")
        assert (said.code, said.data["repo"]) == (0, "shop")
        assert orch("task", "add", "Say hello").code == 2
