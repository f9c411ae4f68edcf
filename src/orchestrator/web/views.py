"""Values as JSON data: what the API answers and what the command line prints with ``--json``.

The names are a published contract: added, never changed. Text stays as it was stored; whoever shows it escapes it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.domain.event import Event
from orchestrator.domain.task import Task
from orchestrator.operations.deciding import Receipt
from orchestrator.operations.effects import EffectOnShow
from orchestrator.operations.reading import TaskStory, Why

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Plain = dict[str, object]


def plain(value: object) -> object:
    """Records, enumerations, paths and bytes turned into what JSON knows; bytes are read as UTF-8."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return record(value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [plain(item) for item in value]


def task_row(task: Task) -> Plain:
    """A task as a line of a list: without its text, which may be large."""
    row = record(task)
    del row["body"]
    return row


def task_page(tasks: list[Task], limit: int, *, newest_first: bool) -> Plain:
    """A page of tasks; ``next_before`` or, oldest first, ``next_after`` asks for the next, None where there is none."""
    following = tasks[-1].id if tasks and len(tasks) == limit else None
    return {
        "tasks": [task_row(task) for task in tasks],
        "next_before": following if newest_first else None,
        "next_after": None if newest_first else following,
    }


def effect_page(effects: list[EffectOnShow], limit: int) -> Plain:
    """A page of effects, newest first; ``next_before`` asks for the next, None where there is none."""
    following = effects[-1].id if effects and len(effects) == limit else None
    return {"effects": [record(effect) for effect in effects], "next_before": following}


def event_page(events: Iterable[Event], after: int) -> Plain:
    """Events in order; ``next_after`` asks for what comes later, now or in a while."""
    rows = [record(event) for event in events]
    return {"events": rows, "next_after": rows[-1]["id"] if rows else after}


def story(of: TaskStory) -> Plain:
    """Everything about one task."""
    told = record(of)
    told["runs"] = [{"kind": kind.value, **record(run)} for kind, run in of.runs]
    told["spent"] = {**record(of.spent), "total_tokens": of.spent.total_tokens}
    return told


def why(answer: Why) -> Plain:
    """Why a task stands where it stands, as fields and as one line."""
    return {**record(answer), "line": answer.line()}


def receipt(of: Receipt, outcome: str | None = None) -> Plain:
    """A stored decision; ``outcome`` is None until the engine has applied or refused it."""
    return {
        "task": of.task.work_item,
        "signal": of.kind,
        "signal_id": of.inbox_id,
        "stage": of.task.stage.value,
        "round": of.task.round,
        "outcome": outcome or of.outcome,
    }


def mapping(of: Mapping[str, object]) -> Plain:
    """A mapping as JSON data."""
    return {key: plain(value) for key, value in of.items()}


def record(of: "DataclassInstance") -> Plain:
    """A record as a dict of its fields."""
    return {field.name: plain(getattr(of, field.name)) for field in fields(of)}
