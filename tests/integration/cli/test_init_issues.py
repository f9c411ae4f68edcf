"""`orch init --issues`, `orch connect github` for it, and what `orch doctor` says of it."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.played.github import FakeGitHub, How, Repository
from tests.fixtures_git import Hand
from tests.fixtures_git_server import NAME, repository_at
from tests.fixtures_orch import Here, Orch
from tests.integration.cli.test_connect import free_port
from tests.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path, orch: Orch) -> Iterator[FakeGitHub]:
    with FakeGitHub(tmp_path / "server") as fake:
        orch.settings |= {"ORCH_GITHUB_URL": fake.url, "ORCH_GITHUB_TOKEN": fake.token}
        orch.settings["ORCH_PORT"] = str(free_port())
        yield fake


@pytest.fixture
def mine(orch: Orch) -> Hand:
    return orch.checkout(files={"README.md": "Shop\n"})


@pytest.fixture
def there(server: FakeGitHub, mine: Hand) -> Repository:
    made: Repository = repository_at(server, mine)
    return made


def test_issues_are_tickets_from_now_on(
    there: Repository, server: FakeGitHub, here: Here, mine: Hand
) -> None:
    first = here("init", "--github", NAME, "--json", cwd=mine.folder)
    assert first.data["tracker"] is None, first.err
    for _ in range(2):
        said = here("init", "--issues", "--json", cwd=mine.folder)
        assert said.code == 0, said.err
        assert said.data["tracker"] == f"{server.url}/{NAME}"
    both = here("init", "--issues", "--plane", "acme/SHOP", cwd=mine.folder)
    assert (both.code, "come from one place" in both.err) == (2, True)
    doctor = here("doctor", cwd=mine.folder)
    assert "no ticket will be taken: the repository has no label orch" in doctor.out
    assert "no webhooks are taken" in doctor.out
    assert server.token not in said.out + said.err + doctor.out + doctor.err


def test_a_repository_elsewhere_has_none(server: FakeGitHub, here: Here, mine: Hand) -> None:
    said = here("init", "--issues", cwd=mine.folder)
    assert (said.code, "does not lie at GitHub" in said.err) == (2, True)


def test_a_running_service_takes_them_from_then_on(
    there: Repository, server: FakeGitHub, orch: Orch, mine: Hand
) -> None:
    there.rights["orchbot"] = "admin"
    assert orch("init", "--github", NAME, cwd=mine.folder).code == 0
    orch.settings["ORCH_GITHUB_WEBHOOK_SECRET"] = "a-secret-of-the-webhook"
    issue = there.issues.file("Add totals", "orch", by="dana")
    with orch.serving():
        assert orch("init", "--issues", cwd=mine.folder).code == 0
        said = orch("connect", "github", "--json")
        assert said.code == 0, said.out + said.err
        texts = [one["text"] for one in said.data["findings"]]
        assert any(text.startswith("made the labels orch: ") for text in texts)
        assert any("a change there was told of here" in text for text in texts)
        [hook] = there.webhooks
        assert {"issues", "issue_comment"} <= set(hook.events)
        wait_until(lambda: "Taken as SHOP-1." in str([one.body for one in issue.comments]))


def _archived(server: FakeGitHub, there: Repository) -> None:
    there.archived = True


def _switched_off(server: FakeGitHub, there: Repository) -> None:
    there.issues.on = False


def _fast(server: FakeGitHub, there: Repository) -> None:
    server._calendar = lambda: datetime.now(UTC) + timedelta(minutes=3)


def _left(server: FakeGitHub, there: Repository) -> None:
    del there.rights["orchbot"]


def _without_rights(server: FakeGitHub, there: Repository) -> None:
    server.fail("GET", "/issues$", How.BEFORE, status=403, times=100)


def _silent(server: FakeGitHub, there: Repository) -> None:
    server.fail("GET", "/permission$", How.BEFORE, status=403)


def _revoked(server: FakeGitHub, there: Repository) -> None:
    server.revoke_token()


def _away(server: FakeGitHub, there: Repository) -> None:
    server.fail("GET", "", How.BEFORE, status=503, times=100)


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (_switched_off, "are switched off"),
        (_without_rights, "may not read the issues"),
        (_silent, "does not tell who may write"),
        pytest.param(_archived, "is archived", marks=pytest.mark.long),
        pytest.param(_fast, "s ahead of ours", marks=pytest.mark.long),
        pytest.param(_left, "is gone, or not ours to see", marks=pytest.mark.long),
        pytest.param(_revoked, "refuses our token", marks=pytest.mark.long),
        pytest.param(_away, "503", marks=pytest.mark.long),
    ],
)
def test_doctor_finds_what_is_wrong_there(
    server: FakeGitHub,
    there: Repository,
    here: Here,
    mine: Hand,
    happens: Callable[[FakeGitHub, Repository], None],
    told: str,
) -> None:
    assert here("init", "--github", NAME, "--issues", cwd=mine.folder).code == 0
    there.issues.make_label("orch")
    happens(server, there)
    found = here("doctor", "--json", cwd=mine.folder).data["findings"]
    [warned] = [one for one in found if one["about"] == "shop tickets" and one["level"] == "warning"]
    assert told in warned["text"]


def test_who_may_not_make_labels_is_told(
    server: FakeGitHub, there: Repository, here: Here, mine: Hand
) -> None:
    assert here("init", "--github", NAME, "--issues", cwd=mine.folder).code == 0
    server.fail("POST", "/labels$", How.BEFORE, status=403)
    said = here("connect", "github", "--wait", "0.1")
    assert "its labels could not be made: Our user may not write to its issues." in said.out, said.err
    assert "made the labels orch, orch: analysis" in here("connect", "github", "--wait", "0.1").out
    assert "made the labels" not in here("connect", "github", "--wait", "0.1").out
