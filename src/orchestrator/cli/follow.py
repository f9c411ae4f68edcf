"""Follows one task by its events, from near or far, until it is done or a person is needed."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from orchestrator.cli.desk import Desk
from orchestrator.cli.terminal import age
from orchestrator.demo.progress import line_of
from orchestrator.domain.event import Event, EventType
from orchestrator.domain.ids import EventId
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, HoldCause
from orchestrator.runtime.clock import Clock, parse_stamp
from orchestrator.web.views import Plain

POLL_S = 0.25
_JUST_NOW = timedelta(seconds=2)  # what was filed to be watched is told as the beginning
DONE, FAILED, NEEDS_A_PERSON = 0, 1, 4

Tell = Callable[[str], None]

# A blocked task of `orch run` waits for its configuration or its repository: nobody but a person will mend that, unless
# it waits for checks elsewhere.
_RESTS = {
    Hold.ESCALATED: FAILED,
    Hold.PERSON: NEEDS_A_PERSON,
    Hold.BLOCKED: NEEDS_A_PERSON,
    Hold.FROZEN: NEEDS_A_PERSON,
}


@dataclass(frozen=True, slots=True)
class Rest:
    """Where a task came to rest; ``code`` is None where nobody waited for that."""

    story: Plain
    code: int | None

    @property
    def task(self) -> Mapping[str, object]:
        """The task as it stands."""
        return cast(Mapping[str, object], self.story["task"])


def follow(desk: Desk, work_item: str, *, clock: Clock, tell: Tell, stop: threading.Event) -> Rest:
    """Tell every event of a task as it happens, until it rests or ``stop`` is set."""
    began, began_at, after = clock.boottime(), clock.utc(), 0
    owed = False
    while True:
        page = desk.events(work_item, after)
        for row in cast(list[Plain], page["events"]):
            event = event_of(row)
            owed = _owed(event, owed)
            line = line_of(work_item, event)
            if line is not None:
                before = parse_stamp(event.at) < began_at - _JUST_NOW
                when = f"{age(event.at, clock)} ago" if before else f"{clock.boottime() - began:.1f} s"
                tell(f"[{when:>10}] {line}")
        after = cast(int, page["next_after"])
        if not page["events"]:
            story = desk.story(work_item)
            rest = Rest(story, _code(cast(Mapping[str, object], story["task"])))
            if (rest.code is not None and not (owed and rest.task["hold"])) or stop.is_set():
                return rest
        if not stop.is_set():
            clock.wait(stop, POLL_S)


def event_of(row: Mapping[str, object]) -> Event:
    """An event from the desk's answer."""
    stage, to_stage = row["stage"], row["to_stage"]
    return Event(
        id=EventId(cast(int, row["id"])),
        task_id=None,
        type=EventType(str(row["type"])),
        actor=str(row["actor"]),
        stage=Stage(str(stage)) if stage else None,
        to_stage=Stage(str(to_stage)) if to_stage else None,
        round=cast("int | None", row["round"]),
        epoch=cast("int | None", row["epoch"]),
        data=cast(Mapping[str, object], row["data"]),
        at=str(row["at"]),
    )


def _owed(event: Event, before: bool) -> bool:
    """Whether a person has decided and the engine has still to act on it: then the task does not rest."""
    if event.type in (EventType.SIGNAL_RECEIVED, EventType.SIGNAL_APPLIED):
        return True  # the move that it asks for comes with its application or after it
    if event.type in (EventType.SIGNAL_REFUSED, EventType.HELD, EventType.STAGE_CHANGED):
        return False
    return before


def _code(task: Mapping[str, object]) -> int | None:
    """The exit code where the task rests, None while it moves."""
    stage = Stage(str(task["stage"]))
    if stage.terminal:
        return DONE if stage is Stage.DONE else FAILED
    hold = task["hold"]
    if task.get("hold_cause") == HoldCause.CHECKS:
        return None
    return _RESTS.get(Hold(str(hold))) if hold else None
