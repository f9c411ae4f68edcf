"""Several `orch serve` on one PostgreSQL database and one state folder: a fleet, but for the machines."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest

from orchestrator.runtime.process import pid_alive
from tests.fixtures_orch import CONFIG, Orch, ended
from tests.postgres_server import dump, put_back
from tests.waiting import PATIENCE_S, wait_until

SCRIPT = """\
developer:
  - steps:
      - wait: {seconds}
      - write: {{path: "done-{{work_item}}.txt", content: done}}
      - commit: {{message: done}}
"""
AT_WORK = "SELECT DISTINCT claimed_by FROM jobs WHERE status = 'running'"
CLOSED = "SELECT repo, reason FROM installation_marks WHERE cause IS NOT NULL"
NEVER = "1h"  # of every timer: what moves was signalled
TIMERS = ("QUEUE", "REAPER", "RECONCILER", "OUTBOX", "DRIFT", "INBOX")


@pytest.fixture
def shop(orch: Orch, empty_postgres_url: str) -> Iterator[Orch]:
    """A registered repository; nothing of a fleet is found by a timer."""
    orch.settings |= {f"ORCH_{name}_INTERVAL_S": NEVER for name in TIMERS}
    orch.settings |= {"ORCH_DATABASE_URL": empty_postgres_url, "ORCH_MAX_AGENTS": "1", "ORCH_MAX_CHECKS": "1"}
    yield orch
    for runner in orch.supervisors():
        os.kill(runner, signal.SIGKILL)


def registered(orch: Orch, *, seconds: float = 0) -> Orch:
    """With an agent that takes so long to develop."""
    config = CONFIG.replace(
        'kind = "scripted"', f'kind = "scripted"\ncommand = ["{orch.folder}/script.yaml"]'
    )
    (orch.folder / "script.yaml").write_text(SCRIPT.format(seconds=seconds), encoding="utf-8")
    said = orch("init", cwd=orch.checkout(files={".orchestrator.toml": config}).folder)
    assert said.code == 0, said.err
    return orch


def rows(orch: Orch, query: str) -> list[Any]:
    with closing(psycopg.connect(orch.settings["ORCH_DATABASE_URL"])) as connection:
        return connection.execute(query.encode()).fetchall()


def stages(orch: Orch) -> list[str]:
    return [stage for (stage,) in rows(orch, "SELECT stage FROM tasks ORDER BY id")]


def all_done(orch: Orch, number: int) -> bool:
    """So many tickets are there, and delivered."""
    return stages(orch) == ["done"] * number


def running_in(orch: Orch, stage: str) -> bool:
    """An agent is at work there."""
    query = f"SELECT count(*) FROM agent_runs JOIN jobs ON jobs.id = job_id WHERE outcome IS NULL AND stage = '{stage}'"
    return rows(orch, query) == [(1,)] and bool(orch.supervisors())


@pytest.mark.long
def test_each_ticket_is_delivered_once_and_both_have_worked(shop: Orch) -> None:
    """The second has room where the first has none, and hears of it."""
    registered(shop)
    with ExitStack() as stack:
        both = [stack.enter_context(shop.serving()) for _ in range(2)]
        filed = [shop("task", "add", f"Ticket {n}", "--label", "fast", "--json").code for n in range(4)]
        assert filed == [0] * 4
        workers: set[str] = set()

        def all_done() -> bool:
            workers.update(boot_id for (boot_id,) in rows(shop, AT_WORK))
            return stages(shop) == ["done"] * 4

        wait_until(all_done)
        assert [ended(process).code for process in both] == [0, 0]
    runs = Counter(
        rows(shop, "SELECT agent_runs.task_id, kind FROM agent_runs JOIN jobs ON jobs.id = job_id")
    )
    assert set(runs.values()) == {1}
    assert len(workers) == 2
    merges = rows(shop, "SELECT task_id FROM effects WHERE name = 'merge_pr' AND state = 'applied'")
    assert Counter(merges) == Counter({(task,): 1 for task in range(1, 5)})


def test_an_agent_whose_service_is_killed_is_taken_over_by_the_other(shop: Orch) -> None:
    """It is not paid for twice, and its ticket ends."""
    shop.settings["ORCH_REAPER_INTERVAL_S"] = "0.5"
    registered(shop, seconds=3)
    with shop.serving() as first:
        assert shop("task", "add", "Ticket", "--label", "fast").code == 0
        wait_until(lambda: running_in(shop, "development"))
        with shop.serving() as second:
            first.send_signal(signal.SIGKILL)
            wait_until(lambda: stages(shop) == ["done"])
            assert ended(second).code == 0
    developers = rows(
        shop, "SELECT outcome FROM agent_runs JOIN jobs ON jobs.id = job_id WHERE kind = 'developer'"
    )
    assert len(developers) == 1


@pytest.mark.long
def test_a_cancel_ends_the_agent_of_another_process(shop: Orch) -> None:
    registered(shop, seconds=600)
    with shop.serving() as first:
        assert shop("task", "add", "Ticket", "--label", "fast").code == 0
        wait_until(lambda: running_in(shop, "development"))
        agents = shop.supervisors()
        with shop.serving() as second:  # which is asked from now on
            said = shop("task", "cancel", "SHOP-1", "--json")
            assert said.data["outcome"] == "applied", said.err
            wait_until(lambda: not any(map(pid_alive, agents)))
            assert stages(shop) == ["cancelled"]
            assert ended(second).code == 0
        assert ended(first).code == 0


@pytest.mark.long
def test_a_command_without_a_service_nearby_wakes_those_elsewhere(shop: Orch) -> None:
    """As on another machine: the address file is another one's."""
    registered(shop)
    with shop.serving() as service:
        shop.api_file.unlink()
        filed = shop("task", "add", "Ticket", "--label", "fast", "--json")
        assert filed.data["served"] is True
        wait_until(lambda: stages(shop) == ["done"])
        assert f"orch serve on {os.uname().nodename} (pid {service.pid}," in shop("doctor").out
        assert ended(service).code == 0


def test_a_service_ends_by_itself_where_a_newer_version_has_taken_over(shop: Orch) -> None:
    """It says so, and its agent goes on for whoever comes next."""
    shop.settings["ORCH_HEARTBEAT_INTERVAL_S"] = "0.2"
    registered(shop, seconds=600)
    with shop.serving() as service:
        assert shop("task", "add", "Ticket", "--label", "fast").code == 0
        wait_until(lambda: running_in(shop, "development"))
        with closing(psycopg.connect(shop.settings["ORCH_DATABASE_URL"], autocommit=True)) as connection:
            connection.execute("UPDATE schema_version SET number = number + 1")
        _, err = service.communicate(timeout=PATIENCE_S)
        assert service.returncode == 2
        assert "A newer version has brought the database to schema" in err
        assert shop.supervisors()
        said = shop("serve")
        assert said.code == 2
        assert "Start the newer version" in said.err


def test_a_worker_leaves_its_agent_at_work_when_it_is_stopped_and_finds_it_again(shop: Orch) -> None:
    """The services run no agents. One without a state folder of its own is no worker."""
    shop.settings |= {"ORCH_MAX_AGENTS": "0", "ORCH_RECONCILER_INTERVAL_S": "0.5"}
    registered(shop, seconds=4)
    worker = replace(shop, home=shop.folder / "worker", settings={**shop.settings, "ORCH_MAX_AGENTS": "1"})
    with shop.serving() as service:
        assert "is in use by orch serve" in shop("worker").err
        assert shop("task", "add", "Ticket", "--label", "fast").code == 0
        with worker.started("worker") as first:
            wait_until(lambda: running_in(worker, "development"))
            assert ended(first).code == 0
        assert running_in(worker, "development")
        with worker.started("worker") as second:
            wait_until(lambda: stages(shop) == ["done"])
            assert worker("worker", "--check", "--json").data["alive"] is True
            assert "  orch worker on" in shop("doctor").out
            assert ended(second).code == 0
        assert ended(service).code == 0
    runs = rows(shop, "SELECT kind, home <> '' FROM agent_runs JOIN jobs ON jobs.id = job_id ORDER BY 1")
    assert runs == [(kind, True) for kind in ("analyst", "developer", "reviewer", "tester")]


def test_a_worker_whose_folder_is_newer_than_the_database_that_was_put_back_closes_nothing_for_others(
    shop: Orch,
) -> None:
    """It is refused and says which folder of which host is meant; one in an empty folder works on."""
    shop.settings |= {"ORCH_MAX_AGENTS": "0", "ORCH_RECONCILER_INTERVAL_S": "0.5"}
    registered(shop)
    worker = replace(shop, home=shop.folder / "worker", settings={**shop.settings, "ORCH_MAX_AGENTS": "1"})
    new = replace(worker, home=shop.folder / "new")
    url, kept = shop.settings["ORCH_DATABASE_URL"], shop.folder / "orch.sql"
    with shop.serving() as service, worker.started("worker") as first:
        for delivered in (1, 2):
            assert shop("task", "add", "Ticket", "--label", "fast").code == 0
            wait_until(partial(all_done, shop, delivered))
            if delivered == 1:
                dump(url, kept)
        assert [ended(first).code, ended(service).code] == [0, 0]
    put_back(url, kept)
    with shop.serving() as service:
        assert shop("restore", "accept", "--reason", "put back", "--as", "Ann").code == 0
        with worker.started("worker") as old:
            wait_until(lambda: old.poll() is not None or rows(shop, CLOSED))
            assert rows(shop, CLOSED) == []
            _, told = old.communicate(timeout=PATIENCE_S)
        assert old.returncode == 2
        assert f"{worker.home} on {os.uname().nodename}, holds a run, SHOP-2-" in told
        assert "a new, empty one" in told
        refused = worker("restore", "accept", "--reason", "x")
        assert (refused.code, "This state folder is a worker's" in refused.err) == (2, True)
        assert "restore folder" not in refused.err
        with new.started("worker") as second:
            assert shop("task", "add", "Another", "--label", "fast").code == 0
            wait_until(lambda: stages(shop)[-1] == "done")
            assert ended(second).code == 0
        assert ended(service).code == 0


@pytest.mark.of_the_file
def test_a_worker_wants_a_database_that_it_shares(orch: Orch) -> None:
    said = orch("worker")
    assert (said.code, "shares a PostgreSQL database" in said.err) == (2, True)
