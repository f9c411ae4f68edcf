"""What follows from an ended run, and whose word counts: pure decisions."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.ids import JobId, Sha, TaskId
from orchestrator.domain.job import Job, JobKind, JobStatus, RunOutcome, RunResult, Usage
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate
from orchestrator.monitor import FREE_STARTS, NOT_REPEATED, RATE_LIMIT_PAUSE_S, decide
from orchestrator.repo_config.records import (
    ApprovalsConfig,
    CiConfig,
    EnvironmentConfig,
    ProbeConfig,
    RepoConfig,
)
from orchestrator.stage_engine.situation import configured, judging_commit
from tests.unit.stage_engine.tasks_of_tests import task_in

JOB = Job(
    JobId(1),
    TaskId(1),
    Stage.DEVELOPMENT,
    1,
    JobKind.DEVELOPER,
    JobStatus.RUNNING,
    1,
    3,
    None,
    "",
    None,
    None,
    None,
    None,
)


def ended(outcome: RunOutcome, again: float | None = None) -> RunResult:
    return RunResult(outcome, 1, Usage(), retry_after_s=again)


@given(
    outcome=st.sampled_from(list(RunOutcome)),
    attempts=st.integers(1, 5),
    again=st.none() | st.floats(0.1, 1e5),
)
def test_every_end_of_a_run_has_one_consequence(
    outcome: RunOutcome, attempts: int, again: float | None
) -> None:
    job = replace(JOB, attempts=attempts, claims=attempts)
    decision = decide(job, ended(outcome, again))
    if outcome is RunOutcome.DONE:
        assert decision.status is JobStatus.DONE
    elif outcome is RunOutcome.RATE_LIMITED:
        assert decision.free
        assert decision.status is JobStatus.QUEUED
        assert decision.delay_s == (again or RATE_LIMIT_PAUSE_S)
    elif outcome is RunOutcome.CALLED_OFF:
        assert (decision.status, decision.free) == (JobStatus.QUEUED, True)
    elif outcome in NOT_REPEATED or attempts >= job.max_attempts:
        assert decision.status is JobStatus.FAILED
    else:
        assert decision.status is JobStatus.QUEUED
        assert not decision.free


def test_a_job_that_kills_whoever_starts_it_goes_back_free_of_charge_so_often_and_no_oftener() -> None:
    job = replace(JOB, attempts=1, claims=1)
    while (decision := decide(job, ended(RunOutcome.CALLED_OFF))).status is JobStatus.QUEUED:
        job = replace(job, attempts=job.attempts + (0 if decision.free else 1), claims=job.claims + 1)
        assert job.claims < 100
    assert job.claims == FREE_STARTS + JOB.max_attempts


@pytest.mark.parametrize("outcome", [RunOutcome.OVERLOADED, RunOutcome.API_ERROR])
def test_a_service_that_failed_is_left_alone_for_longer_each_time(outcome: RunOutcome) -> None:
    pauses = [decide(replace(JOB, attempts=n, max_attempts=9), ended(outcome)).delay_s for n in range(1, 5)]
    assert pauses == sorted(set(pauses))
    assert pauses[0] > 0


def candidate(base: str) -> Candidate:
    return Candidate(TaskId(1), 1, Sha("m"), Sha("t"), Sha(base), Sha("h"), "n", 1, "f")


@pytest.mark.parametrize("stage", list(Stage))
def test_configuration_is_the_bases_until_there_is_a_candidate(stage: Stage) -> None:
    task = task_in(stage, base_sha=Sha("base"))
    with_m = stage in (Stage.DEPLOY_STAGING, Stage.DEPLOY)
    assert judging_commit(task, None) == "base"
    assert judging_commit(task, candidate("new")) == ("new" if with_m else "base")


def test_parts_of_the_pipeline_that_a_configuration_asks_for() -> None:
    place = EnvironmentConfig("staging", ("true",), ProbeConfig(command=("true",)))
    plain = RepoConfig("main", CiConfig(("true",)))
    assert configured(None) == configured(plain) == frozenset()
    assert configured(replace(plain, staging=place)) == {"image", "staging"}
    assert configured(replace(plain, production=place)) == {"image", "production"}
    approvals = ApprovalsConfig(analysis=True, deploy=True)
    assert configured(replace(plain, approvals=approvals)) == {"approvals.analysis", "approvals.deploy"}
