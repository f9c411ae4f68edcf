"""`orch init --plane`, and what `orch doctor` says of it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.played.plane import FakePlane, How, Project
from orchestrator.played.plane.server import KEY
from tests.fixtures_git import Hand
from tests.fixtures_orch import Here, Orch
from tests.waiting import wait_until

NAME = "acme/SHOP"


@pytest.fixture
def server(tmp_path: Path, orch: Orch) -> Iterator[FakePlane]:
    with FakePlane() as fake:
        key = tmp_path / "key"
        key.write_text(f"{KEY}\n")
        orch.settings |= {"ORCH_PLANE_URL": fake.url, "ORCH_PLANE_TOKEN_FILE": str(key)}
        yield fake


@pytest.fixture
def project(server: FakePlane) -> Project:
    return server.project()


@pytest.fixture
def mine(orch: Orch) -> Hand:
    return orch.checkout(files={"README.md": "Shop\n"})


def test_tickets_come_from_there_from_now_on(
    server: FakePlane, project: Project, here: Here, mine: Hand
) -> None:
    first = here("init", "--json", cwd=mine.folder)
    assert first.data["tracker"] is None
    for _ in range(2):
        said = here("init", "--plane", NAME, "--json", cwd=mine.folder)
        assert said.code == 0, said.err
        assert said.data["tracker"] == f"{server.url}/acme"
    server.project("ANO", "Another")
    other = here("init", "--plane", "acme/ANO", cwd=mine.folder)
    assert (other.code, "already" in other.err) == (2, True)
    doctor = here("doctor", cwd=mine.folder)
    assert f"come from {server.url}/acme" in doctor.out
    assert "no webhooks are taken" in doctor.out
    assert KEY not in said.out + said.err + doctor.out + doctor.err


def test_a_running_service_takes_them_from_then_on(
    server: FakePlane, project: Project, here: Here, orch: Orch, mine: Hand
) -> None:
    assert here("init", cwd=mine.folder).code == 0
    ticket = server.ticket(project, "Add totals", "orch")
    with orch.serving():
        said = here("init", "--plane", NAME, "--json", cwd=mine.folder)
        assert (said.code, said.data["tracker"]) == (0, f"{server.url}/acme"), said.err
        wait_until(lambda: "Taken as SHOP-1." in str([comment.html for comment in ticket.comments]))
        wrong = here("init", "--plane", "acme/NONE", cwd=mine.folder)
        assert (wrong.code, "sees no project" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "told"),
    [("acme/NONE", "sees no project NONE"), ("nowhere/SHOP", "no workspace"), ("SHOP", "names no project")],
)
def test_what_is_no_project_is_not_connected(
    project: Project, here: Here, mine: Hand, name: str, told: str
) -> None:
    said = here("init", "--plane", name, cwd=mine.folder)
    assert (said.code, told in said.err) == (2, True), said.err


def test_without_a_server_there_is_nothing_to_name(here: Here, mine: Hand) -> None:
    said = here("init", "--plane", NAME, cwd=mine.folder)
    assert said.code == 2
    assert "No Plane is configured" in said.err


def _unlabelled(server: FakePlane, project: Project) -> None:
    project.labels.clear()


def _without_an_end(server: FakePlane, project: Project) -> None:
    project.states = [state for state in project.states if state.group != "completed"]


def _fast(server: FakePlane, project: Project) -> None:
    server.world.ahead = timedelta(minutes=3)


def _archived(server: FakePlane, project: Project) -> None:
    server.archive(project)


def _left(server: FakePlane, project: Project) -> None:
    project.members.remove(server.bot)


def _revoked(server: FakePlane, project: Project) -> None:
    server.revoke()


def _away(server: FakePlane, project: Project) -> None:
    server.fail("GET", "", How.BEFORE, status=503, times=100)


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (_unlabelled, "no ticket will be taken"),
        (_without_an_end, "no state of the group completed"),
        (_fast, "s ahead of ours"),
        (_archived, "is archived"),
        (_left, "is gone, or not ours to see"),
        (_revoked, "does not know our key"),
        (_away, "503"),
    ],
)
def test_doctor_finds_what_is_wrong_there(
    server: FakePlane,
    project: Project,
    here: Here,
    mine: Hand,
    happens: Callable[[FakePlane, Project], None],
    told: str,
) -> None:
    assert here("init", "--plane", NAME, cwd=mine.folder).code == 0
    happens(server, project)
    found = here("doctor", "--json", cwd=mine.folder).data["findings"]
    [warned] = [one for one in found if one["about"] == "shop tickets" and one["level"] == "warning"]
    assert told in warned["text"]


@pytest.fixture
def signed(orch: Orch) -> None:
    orch.settings["ORCH_PLANE_WEBHOOK_SECRET"] = "plane_wh_0123456789"


def test_doctor_says_what_webhooks_tell(
    signed: None, project: Project, here: Here, orch: Orch, mine: Hand
) -> None:
    assert here("init", "--plane", NAME, cwd=mine.folder).code == 0
    assert "no webhook has come yet" in here("doctor", cwd=mine.folder).out
    orch.shell("UPDATE tracker_projects SET heard_at = '2026-01-01T00:00:00.000000Z'")
    assert "last told of them at 2026-01-01" in here("doctor", cwd=mine.folder).out
    orch.shell("UPDATE tracker_projects SET told = 'silent'")
    assert "tell nothing any more" in here("doctor", cwd=mine.folder).out
