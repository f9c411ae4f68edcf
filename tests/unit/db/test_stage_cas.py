"""Stage writes: compare-and-swap on stage and epoch, or nothing at all (law 2)."""

import ast
import re
from pathlib import Path

import pytest

import orchestrator
from orchestrator.db import leases, tasks
from orchestrator.domain.errors import ConstraintRefused
from orchestrator.domain.ids import BootId, TaskId
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_db import Store

PACKAGE = Path(orchestrator.__file__).parent
WRITES_A_STAGE = {"tasks.update_stage_cas", "tasks.update_stage"}
WRITES_A_NEW_ROW = {"tasks.add", "restored.add_task"}
NAME_LINE = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


def cas(store: Store, task_id: TaskId, source: Stage, target: Stage, epoch: int) -> bool:
    with store.database.write() as tx:
        return tasks.update_task_stage_cas(tx, task_id, source, target, epoch=epoch)


def test_a_win_writes_stage_epoch_and_edge(store: Store) -> None:
    task = store.new_task()
    store.clock.advance(5)
    assert cas(store, task.id, Stage.CREATED, Stage.ANALYSIS, 0)
    moved = store.task(task.id)
    assert (moved.stage, moved.epoch, moved.round) == (Stage.ANALYSIS, 1, 1)
    assert moved.updated_at > task.updated_at
    with store.database.read() as tx:
        assert tasks.times_taken(tx, task.id, Stage.CREATED, Stage.ANALYSIS) == 1


@pytest.mark.parametrize(
    ("source", "epoch"),
    [(Stage.ANALYSIS, 0), (Stage.CREATED, 1), (Stage.CREATED, -1), (Stage.ANALYSIS, 1)],
    ids=str,
)
def test_a_loser_writes_nothing_at_all(store: Store, source: Stage, epoch: int) -> None:
    """Even where the caller goes on to commit: neither stage, epoch, round nor edge."""
    task = store.new_task()
    assert not cas(store, task.id, source, Stage.DEVELOPMENT, epoch)
    assert store.task(task.id) == task
    assert store.rows("SELECT * FROM task_edges") == []


def test_a_missing_task_is_lost(store: Store) -> None:
    assert not cas(store, TaskId(77), Stage.CREATED, Stage.ANALYSIS, 0)


def test_the_same_stage_again_is_another_epoch(store: Store) -> None:
    """A B A: the actor that judged the first A finds the stage unchanged and loses all the same."""
    task = store.new_task(stage=Stage.DEVELOPMENT)
    store.move(task.id, Stage.REVIEW)
    back = store.move(task.id, Stage.DEVELOPMENT)
    assert back.stage is task.stage
    assert not cas(store, task.id, task.stage, Stage.TESTING, task.epoch)
    assert store.task(task.id) == back


def test_an_acquisition_in_between_is_enough_to_lose(store: Store) -> None:
    """Nobody moved the task, but somebody else owns it now."""
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        assert leases.raise_epoch(
            tx, Lease(task.id, Actor.REAPER, BootId("boot"), task.epoch + 1, task.stage)
        )
    assert not cas(store, task.id, task.stage, Stage.REVIEW, task.epoch)
    assert cas(store, task.id, task.stage, Stage.REVIEW, task.epoch + 1)


def test_rounds_count_how_often_a_stage_is_entered(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    rounds = []
    for _ in range(3):
        rounds.append(store.move(task.id, Stage.REVIEW).round)
        rounds.append(store.move(task.id, Stage.DEVELOPMENT).round)
    assert rounds == [1, 2, 2, 3, 3, 4]
    assert store.move(task.id, Stage.DEVELOPMENT).round == 5  # written anew where it stands: one more round


def test_a_person_forgives_rejections_but_rounds_go_on(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    for _ in range(2):
        store.move(task.id, Stage.REVIEW)
        store.move(task.id, Stage.DEVELOPMENT)
    edge = (task.id, Stage.REVIEW, Stage.DEVELOPMENT)
    with store.database.write() as tx:
        assert tasks.times_taken(tx, *edge) == 2
        tasks.forgive(tx, task.id)
        assert tasks.times_taken(tx, *edge) == 0
    store.move(task.id, Stage.REVIEW)
    assert store.move(task.id, Stage.DEVELOPMENT).round == 4
    with store.database.read() as tx:
        assert tasks.times_taken(tx, *edge) == 1


def test_a_stage_write_lifts_the_hold_and_stamps_a_cancel(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        assert tasks.hold(tx, task.id, Hold.ESCALATED, "three rejections")
        assert not tasks.hold(tx, task.id, Hold.ESCALATED, "three rejections")
    assert store.task(task.id).hold is Hold.ESCALATED
    moved = store.move(task.id, Stage.CANCELLED)
    assert (moved.hold, moved.hold_reason, moved.hold_since) == (None, None, None)
    assert moved.cancelled_at == "2026-01-05T10:00:00.000000Z"


def statements() -> dict[str, str]:
    """Every named statement of the product in all its forms, comments left out."""
    found: dict[str, str] = {}
    for path in sorted((PACKAGE / "db/sql").rglob("*.sql")):
        parts = NAME_LINE.split(path.read_text(encoding="utf-8"))
        for key, body in zip(parts[1::2], parts[2::2], strict=True):
            name = f"{path.stem}.{key}"
            found[name] = found.get(name, "") + re.sub(r"--.*", "", body)
    return found


def modules() -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}


def test_two_statements_write_a_stage() -> None:
    writing = set()
    for name, sql in statements().items():
        for target in re.findall(
            r"UPDATE\s+(?:OR\s+\w+\s+)?(\w+)\s+SET\s+(.*?)(?:WHERE|$)", sql, re.DOTALL | re.I
        ):
            if target[0].lower() == "tasks" and re.search(r"(?<![\w.])stage\s*=", target[1]):
                writing.add(name)
        if re.search(r"(INSERT|REPLACE)\s+(OR\s+\w+\s+)?INTO\s+tasks\b", sql, re.I):
            assert name in WRITES_A_NEW_ROW
            assert "'created'" in sql
        assert not re.search(r"DELETE\s+FROM\s+tasks\b", sql, re.I), name
    assert writing == WRITES_A_STAGE


def test_only_the_tasks_module_names_them() -> None:
    naming = {
        path.relative_to(PACKAGE).as_posix()
        for path, text in modules().items()
        if any(f'"{name}"' in text for name in WRITES_A_STAGE)
    }
    assert naming == {"db/tasks.py"}


def test_no_python_holds_sql_that_writes_a_task() -> None:
    """SQL lives in named files; what little there is elsewhere does not touch tasks."""
    writing = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path, text in modules().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"\b(UPDATE|REPLACE INTO|INSERT INTO|DELETE FROM)\s+tasks\b", node.value, re.I)
    ]
    assert writing == []


def test_nothing_uses_the_unconditional_write() -> None:
    using = {
        path.relative_to(PACKAGE).as_posix()
        for path, text in modules().items()
        if re.search(r"\bupdate_task_stage\b", text)
    }
    assert using == {"db/tasks.py"}
    assert modules()[PACKAGE / "db/tasks.py"].count("update_task_stage(") == 1


def test_every_statement_is_used_and_every_used_one_exists() -> None:
    text = "\n".join(modules().values())
    known = statements()
    families = "|".join(sorted({name.split(".")[0] for name in known}))
    named = set(re.findall(rf'(?:execute|one|all)\(\s*"((?:{families})\.\w+)"', text))
    assert named == set(known)


def test_the_unconditional_write_bows_to_the_schema(store: Store) -> None:
    """It exists under the seed's name; the triggers hold for it too."""
    task = store.new_task()
    with store.database.write() as tx:
        tasks.update_task_stage(tx, task.id, Stage.REVIEW)
    assert store.task(task.id).stage is Stage.REVIEW
    with pytest.raises(ConstraintRefused, match="merge_pr is not applied"), store.database.write() as tx:
        tasks.update_task_stage(tx, task.id, Stage.DONE)
    assert store.task(task.id).stage is Stage.REVIEW
