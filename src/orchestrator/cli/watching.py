"""Watching a task to its rest, in the service of this process or of another one, and the last words about it.

What must hold: whoever stops watching loses nothing, and is told how to go on.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import cast

from orchestrator.cli.checkout import REMOTE
from orchestrator.cli.desk import Desk, LocalDesk
from orchestrator.cli.entry import INTERRUPTED
from orchestrator.cli.follow import DONE, Rest, Tell, follow
from orchestrator.cli.restore import closed_lines
from orchestrator.cli.service import running
from orchestrator.cli.terminal import note, say, say_json
from orchestrator.config import Settings
from orchestrator.dashboard.next_steps import FROZEN_GUIDE, needs_guide, next_steps
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.observability.log import configure_logging
from orchestrator.places import Folders
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.files import make_private_folder
from orchestrator.web.views import Plain
from orchestrator.wiring import App

LOG = "run.log"


def watch_here(app: App, settings: Settings, work_item: str, tell: Tell, how: str) -> Rest:
    """Run the service inside this process until the task rests; ``how`` the task comes to be watched is told."""
    with _log_to_file(app, settings), running(app, role="run", port=0) as service:
        tell(f"{work_item} {how}. Board: {service.url}/board/{work_item}")
        desk = LocalDesk(app, served=True)
        for line in closed_lines(desk.queue()):
            tell(line)
        rest = follow(desk, work_item, clock=app.clock, tell=tell, stop=service.stop)
        if rest.code is None:
            note("Stopping; an agent at work keeps running.")
    return rest


def watch_there(desk: Desk, work_item: str, tell: Tell) -> Rest:
    """Another process owns the state and does the work."""
    try:
        return follow(desk, work_item, clock=SystemClock(), tell=tell, stop=threading.Event())
    except KeyboardInterrupt:
        return Rest(desk.story(work_item), None)


def is_frozen(desk: Desk, repo: str) -> bool:
    """Whether a repository delivers nothing for now."""
    gate = cast(Mapping[str, list[Plain]], desk.queue()["serial_gate"])
    return any(freeze["repo"] == repo for freeze in gate["frozen"])


def conclude(rest: Rest, branch: str, *, frozen: bool, as_json: bool) -> int:
    """The last words: how it stands and what to do next. The exit code."""
    code = INTERRUPTED if rest.code is None else rest.code
    if as_json:
        say_json({**rest.story, "exit_code": code})
        return code
    task, spent = rest.task, cast(Plain, rest.story["spent"])
    work_item, stage = task["work_item"], task["stage"]
    cost = spent["cost_usd"]
    stands = "is" if Stage(str(stage)).terminal else "stands in"
    say(f"\n{work_item} {stands} {stage}. Spent: {spent['total_tokens']} tokens, ${cost or 0:.2f}.")
    if rest.code is None:
        say("Nothing is lost, and an agent that still runs is taken over.")
        say(f"Go on: `orch watch {work_item}`, or `orch serve` for all tasks.")
    elif rest.code == DONE:
        say(f"Its change is on {branch} of the forge; get it with: git pull {REMOTE} {branch}")
    elif stage != Stage.CANCELLED:
        _say_next(task, frozen)
    return code


def _say_next(task: Mapping[str, object], frozen: bool) -> None:
    stage, hold = Stage(str(task["stage"])), Hold(str(task["hold"]))
    work_item = str(task["work_item"])
    steps = next_steps(work_item, stage, hold, str(task["repo"]), frozen=frozen)
    say(f"It waits ({hold}): {task['hold_reason']}")
    say(f"Look: orch task show {work_item} --events. Then: {', or '.join(steps)}")
    if needs_guide(stage, hold, frozen=frozen):
        say(f"What to do first: {FROZEN_GUIDE}")


@contextmanager
def _log_to_file(app: App, settings: Settings) -> Iterator[None]:
    """The service's log goes to a file, so that the progress can be read."""
    folder = Folders(settings.home).logs
    make_private_folder(folder)
    with (folder / LOG).open("a", encoding="utf-8") as stream:
        configure_logging(settings, (), utc=app.clock.utc, stream=stream)
        try:
            yield
        finally:
            configure_logging(settings, (), utc=app.clock.utc)
