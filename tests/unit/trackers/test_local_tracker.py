"""Tickets of our own database: what a tracker would show, kept once and without secrets."""

from pathlib import Path

import pytest

from orchestrator.domain.errors import OrchestratorError
from orchestrator.domain.ids import RepoName, TaskId, WorkItem
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.observability.redactor import Redactor
from orchestrator.runtime.clock import SystemClock
from orchestrator.trackers.local import LocalTracker
from orchestrator.trackers.tracker import Tracker


def task(work_item: str) -> Task:
    return Task(
        TaskId(1), WorkItem(work_item), RepoName("shop"), "title", "", (), Stage.REVIEW, 1, 3, None, None, None, None,
        None, None, None, None, None, None, "2026-01-05T10:00:00.000000Z", "2026-01-05T10:00:00.000000Z",
    )  # fmt: skip


def test_stages_and_comments_once_each(tmp_path: Path) -> None:
    local = LocalTracker(tmp_path, SystemClock(), Redactor(["hunter2-hunter2"]))
    tracker: Tracker = local
    for _ in range(2):
        tracker.show_stage(task("ORCH-7"), Stage.REVIEW, "m1")
        tracker.comment(task("ORCH-7"), "pushed with hunter2-hunter2", "m2")
    tracker.comment(task("ORCH-8"), "another ticket", "m1")
    history = local.history(WorkItem("ORCH-7"))
    assert [(entry["kind"], entry.get("stage"), entry.get("text")) for entry in history] == [
        ("stage", "review", None),
        ("comment", None, "pushed with ***"),
    ]
    assert all(entry["at"].endswith("Z") for entry in history)
    assert len(local.history(WorkItem("ORCH-8"))) == 1
    assert local.history(WorkItem("ORCH-9")) == []


@pytest.mark.parametrize("work_item", ["../ORCH-7", "/etc/passwd", "a/b", "", "..", "a\0b", "x" * 5000])
def test_no_work_item_leads_out_of_the_folder(tmp_path: Path, work_item: str) -> None:
    state = tmp_path / "state"
    local = LocalTracker(state, SystemClock(), Redactor())
    with pytest.raises(OrchestratorError):
        local.comment(task(work_item), "text", "m")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
