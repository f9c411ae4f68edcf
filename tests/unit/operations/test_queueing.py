"""What a queued job waits for, as `orch why`, `GET /queue` and `GET /metrics` say it."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from orchestrator.db import jobs
from orchestrator.domain.job import JobKind
from orchestrator.domain.shares import Shares
from orchestrator.domain.stage import Stage
from orchestrator.web.metrics import gauges
from tests.fixtures_desk import BOOT, Desk, desk_at

SHARES = Shares(total=5, by_repo=(("*", 2),), by_kind=(("claude", 1),))


@pytest.fixture
def capped(tmp_path: Path) -> Iterator[Desk]:
    desk = desk_at(tmp_path / "state", shares=SHARES)
    desk.repository()
    yield desk
    desk.database.close()


def queue(
    desk: Desk, *, agent: str = "claude", kind: JobKind = JobKind.DEVELOPER, claimed: bool = False
) -> str:
    task = desk.file()
    desk.move(task.work_item, Stage.DEVELOPMENT)
    with desk.database.write() as tx:
        jobs.enqueue(tx, desk.operations.task(task.work_item), jobs.NewJob(kind, agent=agent))
        if claimed:
            assert jobs.claim_next_job(tx, BOOT) is not None
    return str(task.work_item)


def rows(desk: Desk, block: str) -> list[dict[str, object]]:
    return cast(list[dict[str, object]], desk.operations.queue()[block])


def test_a_job_under_a_full_cap_names_it(capped: Desk) -> None:
    queue(capped, claimed=True)
    waiting = queue(capped)
    why = capped.operations.why(waiting).waits_for
    assert why == (
        "waits for a free worker: developer, attempt 1; 1 of 1 agents of kind claude run (ORCH_MAX_AGENTS_BY_KIND)"
    )
    (row,) = rows(capped, "queued")
    assert (row["priority"], row["waits_for"]) == (
        0,
        "1 of 1 agents of kind claude run (ORCH_MAX_AGENTS_BY_KIND)",
    )
    assert rows(capped, "running")[0]["waits_for"] is None


def test_a_job_with_room_only_waits_for_its_turn(capped: Desk) -> None:
    queue(capped, claimed=True)
    waiting = queue(capped, agent="codex")
    assert capped.operations.why(waiting).waits_for == "waits for a free worker: developer, attempt 1"
    assert rows(capped, "queued")[0]["waits_for"] is None


def test_a_job_that_was_put_off_names_the_time(capped: Desk) -> None:
    waiting = queue(capped)
    with capped.database.write() as tx:
        job = jobs.claim_next_job(tx, BOOT)
        assert job is not None
        jobs.requeue(tx, job, BOOT, error="limit", brief="", delay_s=600, free=True)
    assert "; not before 20" in capped.operations.why(waiting).waits_for


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (JobKind.DEVELOPER, "2 of 2 agents run here (ORCH_MAX_AGENTS)"),
        (JobKind.CI, "1 of 1 checks run here (ORCH_MAX_CHECKS)"),
    ],
)
def test_a_job_names_the_places_of_the_process(desk: Desk, kind: JobKind, said: str) -> None:
    waiting = queue(desk, kind=kind)
    assert said not in desk.operations.why(waiting).waits_for
    desk.worker.update(agents=2, max_agents=2, checks=1, max_checks=1)
    assert desk.operations.why(waiting).waits_for.endswith(said)


def test_caps_are_shown_with_their_use(capped: Desk) -> None:
    queue(capped, claimed=True)
    assert rows(capped, "shares") == [
        {"share": "all", "running": 1, "limit": 5},
        {"share": "repo/shop", "running": 1, "limit": 2},
        {"share": "agent/claude", "running": 1, "limit": 1},
    ]
    shown = gauges(capped.operations)
    assert shown["orch_share_running"] == {"all": 1, "repo/shop": 1, "agent/claude": 1}
    assert shown["orch_share_limit"] == {"all": 5, "repo/shop": 2, "agent/claude": 1}


def test_without_caps_there_is_nothing_to_show(desk: Desk) -> None:
    queue(desk, claimed=True)
    assert rows(desk, "shares") == []
