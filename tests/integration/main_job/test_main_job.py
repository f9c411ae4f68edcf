"""A ticket becomes merged, deployed software, by the real Claude Code and the scripted model."""

from pathlib import Path

import pytest

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.job import JobKind, JobStatus, RunOutcome
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.operations.reading import TaskStory
from tests.fixtures_main_job import CANARY, REPO, MainJob, shipped_with

ROLES = ["analyst", "architect", "developer", "reviewer", "tester", "deployer"]
TITLE = "Count the letters of a word"
LIMIT = {"error": 429, "retry_after": 1, "message": "This request would exceed your rate limit"}


def roles(story: TaskStory) -> list[str]:
    return [kind.value for kind, _ in story.runs]


def test_a_ticket_becomes_merged_deployed_software(
    main_job: MainJob, capfd: pytest.CaptureFixture[str]
) -> None:
    before = main_job.main()
    story = main_job.deliver(TITLE, 'GET /letters?word=word answers {"letters": 4}.')
    assert story.task.stage is Stage.DONE, main_job.said

    tested = story.candidates[-1].sha
    assert main_job.main() == tested
    parents = main_job.git.text(["--git-dir", main_job.forge, "log", "-1", "--format=%P", "main"]).split()
    assert parents[0] == before
    for environment in (main_job.sample.staging, main_job.sample.production):
        assert main_job.ask(environment).sha == tested
        assert main_job.ask(environment, "/letters?word=four").text == '{"letters": 4}'
    applied = [effect.name for effect in story.effects if effect.state is EffectState.APPLIED]
    assert applied.count(EffectName.MERGE_PR) == 1
    assert applied.count(EffectName.DEPLOY_INIT) == 2  # staging, production

    baseline = main_job.app.operations.baseline(REPO)
    assert baseline is not None
    assert baseline.merged_sha == tested
    assert 0 < baseline.percent <= 100

    assert roles(story) == ROLES
    for _, run in story.runs:
        assert run.outcome is RunOutcome.DONE
        assert run.model == "claude-sonnet-4-5"
        assert run.usage.input_tokens > 0
        assert run.usage.output_tokens > 0
        assert run.usage.cost_usd
    assert story.spent.total_tokens == sum(run.usage.total_tokens for _, run in story.runs)
    assert story.spent.cost_usd == pytest.approx(sum(run.usage.cost_usd or 0 for _, run in story.runs))
    assert list(dict.fromkeys(str(entry["scenario"]) for entry in main_job.sessions())) == ROLES

    assert not main_job.left_running(story)
    assert not main_job.holding(CANARY)
    assert CANARY not in "".join(capfd.readouterr())


@pytest.mark.long
def test_a_rejected_development_comes_back_and_is_delivered(main_job: MainJob) -> None:
    story = main_job.deliver("Keep a record of changes", "scripted: reject the first development")
    assert story.task.stage is Stage.DONE, main_job.said
    assert roles(story) == [*ROLES[:4], "developer", "reviewer", *ROLES[4:]]
    assert main_job.main() == story.candidates[-1].sha
    work_item = story.task.work_item
    assert "Round 2" in main_job.file_on_main(f"docs/changes/{work_item}.md")
    assert "verdict: approved" in main_job.file_on_main(f"docs/work-items/{work_item}/12-review.md")
    asked = [seen.opening for seen in main_job.model.seen if seen.scenario == "developer"]
    assert "asks for its first development to be rejected" in asked[-1]  # the findings reached the developer
    assert not main_job.left_running(story)


@pytest.mark.long
def test_a_rate_limit_parks_the_job_and_costs_no_attempt(tmp_path: Path, main_job_url: str | None) -> None:
    # Between the developer's second file and its commit; the program itself tries twice.
    limited = shipped_with(tmp_path / "faults", JobKind.DEVELOPER, LIMIT, LIMIT, at=2)
    more = {"CLAUDE_CODE_MAX_RETRIES": "1"}
    with MainJob(tmp_path, [limited], more, database_url=main_job_url) as main_job:
        story = main_job.deliver(TITLE)
        assert story.task.stage is Stage.DONE, main_job.said
        developers = [run for kind, run in story.runs if kind is JobKind.DEVELOPER]
        assert [run.outcome for run in developers] == [RunOutcome.RATE_LIMITED, RunOutcome.DONE]
        assert [run.attempt for run in developers] == [1, 1]
        (job,) = [job for job in story.jobs if job.kind is JobKind.DEVELOPER]
        assert job.attempts == 1
        assert main_job.main() == story.candidates[-1].sha
        assert main_job.ask(main_job.sample.production, "/letters?word=four").text == '{"letters": 4}'


def test_a_refused_key_calls_a_person_and_is_not_tried_again(
    tmp_path: Path, main_job_url: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    refused = {"error": 401, "message": "invalid x-api-key"}
    scenarios = shipped_with(tmp_path / "faults", JobKind.ANALYST, *[refused] * 50)
    with MainJob(tmp_path, [scenarios], database_url=main_job_url) as main_job:
        before = main_job.main()
        story = main_job.deliver(TITLE)
        assert story.task.hold is Hold.ESCALATED
        assert story.task.stage is Stage.ANALYSIS
        assert "refused the credentials. Check the agent's API key, then retry the task" in main_job.said
        ((kind, run),) = story.runs
        assert (kind, run.outcome) == (JobKind.ANALYST, RunOutcome.AUTH)
        (job,) = [job for job in story.jobs if job.kind is JobKind.ANALYST]
        assert job.status is JobStatus.FAILED
        assert len(main_job.sessions()) <= 2  # the program repeats a refused call once before it is ended
        assert main_job.main() == before
        assert not main_job.left_running(story)
        assert not main_job.holding(CANARY)
        log = capfd.readouterr().err
        assert f"{story.task.work_item} analysis" in log  # a person was called
        assert CANARY not in log
