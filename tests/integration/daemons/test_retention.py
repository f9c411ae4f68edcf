"""What goes after a month, and above all what stays."""

import os
from pathlib import Path

import pytest

from orchestrator.daemons.retention import KEPT_DAYS, Retention
from orchestrator.deploy.records import DeployStart, Ending, Exit, start_folder, to_bytes
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.domain.task import Task
from orchestrator.places import Folders
from tests.clock import START
from tests.fixtures_db import Store

OLD = START.timestamp() - (KEPT_DAYS + 1) * 86400
YOUNG = START.timestamp() - (KEPT_DAYS - 1) * 86400
ENDED = WorkItem("SMP-99")


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path / "state")


@pytest.fixture
def task(store: Store) -> Task:
    return store.new_task()


def put(path: Path, when: float, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (when, when))
    return path


def start(
    folders: Folders, token: int, *, when: float = OLD, code: int | None = 0, item: WorkItem = ENDED
) -> Path:
    """A start that has ended (None: has not), with the copy that it was given; its own generation is always 1."""
    sha = Sha(f"{token % 7:x}" * 40)
    told = DeployStart("staging", sha, 1, None, None, str(token), ("true",), 1.0, item, token, "installation")
    folder = start_folder(folders.deploys, "staging", sha, 1)
    put(folder / "start.json", when, to_bytes(told))
    put(folder / "STARTED", when)
    put(folder / "log", when)
    put(folder / "artifact" / "program", when)
    if code is not None:
        put(folder / "exit.json", when, to_bytes(Exit(Ending.EXITED, code, "2025-11-01T00:00:00Z")))
    return folder


def copies(folders: Folders) -> set[Path]:
    return {path.parent for path in folders.deploys.glob("*/*/artifact")}


def test_old_logs_go_but_not_an_open_tasks(folders: Folders, task: Task) -> None:
    gone = [put(folders.logs / name, OLD) for name in (f"{ENDED}-ci-0-7.log", f"image-{task.id}9-0.log")]
    kept = [
        put(folders.logs / f"{ENDED}-ci-1-8.log", YOUNG),
        put(folders.logs / f"{task.work_item}-ci-0-1.log", OLD),
        put(folders.logs / f"image-{task.id}-0.log", OLD),
    ]
    assert Retention(folders, [task], START).prune() == len(gone)
    assert [path for path in (*gone, *kept) if path.exists()] == kept


def test_of_an_old_run_the_facts_stay(folders: Folders, task: Task) -> None:
    names = ("STARTED", "exit.json", "brief.json", "output.log", "prompt.md")
    for item, when in ((ENDED, OLD), (WorkItem("SMP-98"), YOUNG), (task.work_item, OLD)):
        for name in names:
            put(folders.runs / f"{item}-1-1-abcd" / name, when)
    for name in ("STARTED", "output.log"):  # nobody has recorded its end
        put(folders.runs / "SMP-97-1-1-abcd" / name, OLD)
    assert Retention(folders, [task], START).prune() == 2
    left = {run.name: {path.name for path in run.iterdir()} for run in folders.runs.iterdir()}
    assert left == {
        f"{ENDED}-1-1-abcd": {"STARTED", "exit.json", "brief.json"},
        "SMP-98-1-1-abcd": set(names),
        f"{task.work_item}-1-1-abcd": set(names),
        "SMP-97-1-1-abcd": {"STARTED", "output.log"},
    }


def test_copies_that_a_service_may_run_from_stay(folders: Folders, task: Task) -> None:
    """Since the newest start that succeeded; tokens are numbers, not words: 10 comes after 9."""
    start(folders, 7)
    opened = start(folders, 8, item=task.work_item)
    unended = start(folders, 9, code=None)
    serving = start(folders, 10)
    failed = start(folders, 11, code=1)
    newest = start(folders, 12, code=None)
    before = {path for path in folders.deploys.rglob("*") if "artifact" not in path.parts}
    assert Retention(folders, [task], START).prune() == 1
    assert copies(folders) == {opened, unended, serving, failed, newest}
    assert {path for path in folders.deploys.rglob("*") if "artifact" not in path.parts} == before


def test_young_copies_stay_and_a_link_is_not_followed(folders: Folders, tmp_path: Path) -> None:
    start(folders, 3)
    linked = start(folders, 2)
    outside = put(tmp_path / "outside" / "program", OLD)
    (linked / "artifact" / "program").unlink()
    (linked / "artifact").rmdir()
    (linked / "artifact").symlink_to(outside.parent)
    young = start(folders, 1, when=YOUNG)
    assert Retention(folders, [], START).prune() == 1
    assert young in copies(folders)
    assert outside.exists()


def test_nothing_there_is_nothing_to_do(folders: Folders) -> None:
    assert Retention(folders, [], START).prune() == 0
