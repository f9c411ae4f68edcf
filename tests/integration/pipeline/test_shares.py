"""Caps on agents in the running service."""

from itertools import pairwise

from orchestrator.db import jobs, tasks
from orchestrator.domain.job import JobStatus
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_pipeline import Build
from tests.waiting import wait_until

FULL = "; 0 of 0 agents of kind {} run (ORCH_MAX_AGENTS_BY_KIND)"


def test_a_job_waits_for_the_cap_of_the_program_that_it_will_start(pipeline: Build) -> None:
    """A person's "go on" takes main's configuration, and with it the program that counts, also for what is queued."""
    settings = {"ORCH_MAX_AGENTS_BY_KIND": "command=0,scripted=0"}
    line = pipeline(settings=settings).start()
    item = line.add()
    wait_until(lambda: FULL.format("command") in line.why(item))
    task = line.task(item)
    with line.app.database.write() as tx:
        assert tasks.hold(tx, task.id, Hold.ESCALATED, "somebody has to look at it")
    other = line.show(".orchestrator.toml") + '\n[agents.analyst]\nkind = "scripted"\n'
    line.push_to_main({".orchestrator.toml": other})
    line.retry(item)
    wait_until(lambda: FULL.format("scripted") in line.why(item))
    with line.app.database.read() as tx:
        (queued,) = jobs.of_task(tx, task.id)
    assert (queued.status, queued.claims) == (JobStatus.QUEUED, 0)
    assert line.agents(item) == []


def test_with_room_for_one_agent_tickets_go_one_after_the_other(pipeline: Build) -> None:
    """The cap is smaller than the machine's own; every ticket is delivered all the same."""
    line = pipeline(settings={"ORCH_MAX_AGENTS": "4", "ORCH_MAX_AGENTS_TOTAL": "1"})
    line.start()
    items = [line.add(title) for title in ("One", "Another", "A third")]
    for item in items:
        line.done(item)
    runs = [run for item in items for _, run in line.story(item).runs]
    ends = sorted((run.started_at, run.finished_at or "") for run in runs)
    assert len(ends) >= 3 * len(items)
    assert all(before[1] <= after[0] for before, after in pairwise(ends))
    assert {line.task(item).stage for item in items} == {Stage.DONE}
