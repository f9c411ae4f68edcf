"""Tasks for tests that need a value and no database."""

from typing import Any

from orchestrator.domain.ids import RepoName, TaskId, WorkItem
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task


def task_in(stage: Stage, **more: Any) -> Task:
    """A task in a stage; whatever is not said is empty."""
    known = {
        "id": TaskId(1),
        "work_item": WorkItem("S-1"),
        "repo": RepoName("sample"),
        "labels": (),
        "round": 1,
        "epoch": 1,
    }
    return Task(**{**dict.fromkeys(Task.__slots__), **known, "stage": stage, **more})
