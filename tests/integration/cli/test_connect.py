"""`orch connect`: what it makes at a server, and that a change there is told of here."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import trial
from orchestrator.played.common.hooks import Hook
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub
from orchestrator.played.plane import FakePlane
from orchestrator.played.plane.server import KEY
from tests.fixtures_git_server import NAME, repository_at
from tests.fixtures_orch import Here, Orch

SECRET = "a-secret-of-the-webhook"


@pytest.fixture(params=["gitea", "github"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(kind: str, tmp_path: Path, orch: Orch) -> Iterator[FakeGitea | FakeGitHub]:
    fakes: dict[str, Callable[[Path], Any]] = {"gitea": FakeGitea, "github": FakeGitHub}
    with fakes[kind](tmp_path / "server") as fake:
        told = {"URL": fake.url, "TOKEN": fake.token}
        orch.settings |= {f"ORCH_{kind.upper()}_{name}": value for name, value in told.items()}
        orch.settings["ORCH_PORT"] = str(free_port())
        yield fake


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_its_webhook_is_made_once_and_tried(kind: str, server: FakeGitea | FakeGitHub, orch: Orch) -> None:
    hand = orch.checkout()
    there = repository_at(server, hand)
    there.rights["orchbot"] = "admin"
    assert orch("init", f"--{kind}", NAME, cwd=hand.folder).code == 0

    first = orch("connect", kind, "--json")
    [known] = there.webhooks
    made = orch.home / "secrets" / f"{kind}-webhook"
    assert first.code == 0, first.out
    assert known.secret == made.read_text().strip()
    assert made.stat().st_mode & 0o777 == 0o600
    assert any("does not know the webhook's secret" in one["text"] for one in first.data["findings"])
    assert known.secret not in first.out + first.err

    orch.settings[f"ORCH_{kind.upper()}_WEBHOOK_SECRET_FILE"] = str(made)
    there.webhooks.append(Hook("https://elsewhere.example/hook", "theirs", ("push",), 2))
    with orch.serving():
        said = orch("connect", kind, "shop")
    assert said.code == 0, said.out + said.err
    assert "a change there was told of here" in said.out
    assert known.url == f"http://127.0.0.1:{orch.settings['ORCH_PORT']}/webhooks/{kind}"
    assert [hook.secret for hook in there.webhooks] == [made.read_text().strip(), "theirs"]
    assert not [line for line in there.git("branch", "--list").splitlines() if trial.BRANCH in line]
    assert server.token not in said.out + said.err


def test_who_may_not_make_one_is_told_what_to_paste(
    kind: str, server: FakeGitea | FakeGitHub, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"ORCH_{kind.upper()}_WEBHOOK_SECRET", SECRET)
    hand = here.orch.checkout()
    repository_at(server, hand)
    assert here("init", f"--{kind}", NAME, cwd=hand.folder).code == 0
    said = here("connect", kind, "--wait", "0.2")
    assert said.code == 0, said.err
    assert "may not manage the webhooks" in said.out
    assert f"/webhooks/{kind}, content type application/json" in said.out
    assert "was not told of here" in said.out
    assert SECRET not in said.out + said.err


def test_one_that_is_switched_off_is_put_right(
    kind: str, server: FakeGitea | FakeGitHub, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"ORCH_{kind.upper()}_WEBHOOK_SECRET", SECRET)
    hand = here.orch.checkout()
    there = repository_at(server, hand)
    there.rights["orchbot"] = "admin"
    address = f"http://127.0.0.1:{here.orch.settings['ORCH_PORT']}/webhooks/{kind}"
    there.webhooks += [Hook(address, "old", (), number, active=False) for number in (1, 2)]
    assert here("init", f"--{kind}", NAME, cwd=hand.folder).code == 0
    assert "No active webhook delivers at" in here("doctor").out
    said = here("connect", kind, "--wait", "0.2")
    assert "No active webhook delivers at" not in here("doctor").out
    assert (there.webhooks[0].active, there.webhooks[0].secret) == (True, SECRET)
    assert "push" in there.webhooks[0].events
    assert "more webhooks deliver there (2)" in said.out


def test_where_nothing_is_configured_or_registered(
    kind: str, server: FakeGitea | FakeGitHub, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("init", cwd=here.orch.checkout().folder).code == 0
    said = here("connect", kind, "nobody")
    assert "no repository of these names is registered" in said.out
    for name in ("URL", "TOKEN"):
        monkeypatch.delenv(f"ORCH_{kind.upper()}_{name}")
    said = here("connect", kind)
    assert (said.code, "is configured; nothing was done" in said.err) == (2, True)


def test_plane_gets_the_label_and_says_what_to_paste_then_is_tried(orch: Orch) -> None:
    orch.settings["ORCH_PORT"] = str(free_port())
    with FakePlane() as server:
        project = server.project()
        project.labels.clear()
        orch.settings |= {"ORCH_PLANE_URL": server.url, "ORCH_PLANE_TOKEN": KEY}
        assert orch("init", "--plane", "acme/SHOP", cwd=orch.checkout().folder).code == 0
        first = orch("connect", "plane")
        assert first.code == 0, first.err
        assert "made the label orch" in first.out
        address = f"http://127.0.0.1:{orch.settings['ORCH_PORT']}/webhooks/plane"
        assert f"add a webhook: {address}" in first.out

        orch.settings["ORCH_PLANE_WEBHOOK_SECRET"] = server.hook(address).secret
        with orch.serving():
            said = orch("connect", "plane")
        assert "a change there was told of here" in said.out, said.out + said.err
        assert "made the label" not in said.out
        assert not project.items
