"""The end of the demo: what is not so is said to be not so."""

import dataclasses

from orchestrator.demo.proof import Proof, show_costs, show_coverage
from orchestrator.domain.ids import JobId, RepoName, RunId, TaskId, WorkItem
from orchestrator.domain.job import AgentRun, JobKind, RunOutcome, Usage
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.operations.reading import TaskStory


def run(usage: Usage, outcome: RunOutcome | None = RunOutcome.DONE) -> AgentRun:
    return AgentRun(
        RunId(1), JobId(1), TaskId(1), 1, "claude", "a-model", "", outcome, 0, usage, "", None, "", None
    )


def story(*runs: AgentRun) -> TaskStory:
    empty: dict[str, object] = {field.name: None for field in dataclasses.fields(Task)}
    known: dict[str, object] = {
        "id": TaskId(1),
        "work_item": WorkItem("GREET-1"),
        "repo": RepoName("greeter"),
        "title": "Greet",
        "stage": Stage.DONE,
        "round": 1,
        "labels": (),
    }
    task = Task(**{**empty, **known})  # type: ignore[arg-type]
    made = tuple((JobKind.DEVELOPER, one) for one in runs)
    return TaskStory(task, (), made, (), (), (), (), Usage())


def test_a_claim_that_does_not_hold_is_kept() -> None:
    lines: list[str] = []
    proof = Proof(lines.append)
    proof.claim(True, "the sun is up")
    assert proof.holds
    proof.claim(False, "pigs fly")
    assert not proof.holds
    assert proof.failures == ["pigs fly"]
    assert lines == ["  yes  the sun is up", "  NO   pigs fly"]


def test_a_baseline_that_fell_is_no_proof() -> None:
    proof = Proof(lambda line: None)
    show_coverage(proof, [], first=80.0, before=None, after=79.99)
    assert proof.failures == ["the baseline did not fall"]


def test_a_baseline_that_was_never_written_is_no_proof() -> None:
    proof = Proof(lambda line: None)
    show_coverage(proof, [], first=None, before=None, after=None)
    assert not proof.holds


def test_costs_are_added_up_and_unknown_ones_are_no_zero() -> None:
    lines: list[str] = []
    show_costs(
        Proof(lines.append),
        [story(run(Usage(10, 5, 100, 0, 0.25)), run(Usage(1, 1, 0, 0, None), None))],
        "a note",
    )
    assert lines[2] == "agent runs (a note)"
    known, unknown, total = lines[4:]
    assert known.split()[-3:] == ["110", "5", "0.2500"]
    assert unknown.split()[-4:] == ["running", "1", "1", "-"]
    assert total.split() == ["sum", "111", "6", "0.2500"]
