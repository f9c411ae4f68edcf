"""What a person does when nothing moves by itself any more: accepts a restore, says "go on", lends and lifts freezes,
in the end gives up.

Bounded: a task that a person has to help more than :data:`PATIENCE` times is cancelled, or left frozen where it is
merged.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.domain.errors import OperatorError, OutsideError
from orchestrator.wiring import App
from tests.proofs.letters import Post
from tests.proofs.templates import TITLES, file_two
from tests.proofs.world import REPO, World, closed, held

PATIENCE = 12
# After a restore: the branch holds what the copy knows nothing of. The agents here cannot take it out, so a retry is
# of no use.
AHEAD = "this stage may change files below"

Act = tuple[str, str]  # verb, work item ("" for the repository)


class Person:
    """One person over one scenario."""

    def __init__(self, world: World, post: Post | None = None) -> None:
        """``post``: what they say to tracker and forge goes by it."""
        self._world = world
        self._post = post
        self._helped: Counter[str] = Counter()

    def next(self) -> list[Act]:
        """What is to be done now; nothing where the scenario is over."""
        tasks = held(self._world)
        if self._world.lost and (said := self._after_a_restore(tasks)):
            return said
        frozen = bool(self._world.rows("SELECT 1 FROM repo_freeze"))
        open_tasks = {item: row for item, row in tasks.items() if row["stage"] not in ("done", "cancelled")}
        broken = [item for item, row in open_tasks.items() if row["stage"] == "deploy"]
        waiting = [item for item in open_tasks if item not in broken]
        if frozen and waiting and self._helped["unfreeze"] < PATIENCE:
            self._helped["unfreeze"] += 1
            first = (
                self._helped["unfreeze"] % 2 == 1
            )  # lets the next ticket mend it, before everybody may go on
            return [("lend", waiting[0]) if first else ("unfreeze", "")]
        if self._post is not None and (said := self._by_post(self._post, open_tasks)):
            return said
        called = [item for item in waiting if open_tasks[item]["hold"] in ("escalated", "blocked")]
        if called:
            ahead = [item for item in called if AHEAD in (open_tasks[item]["hold_reason"] or "")]
            return [("cancel", item) for item in ahead] or [
                act for item in called if (act := self._help(item, "cancel")) is not None
            ]
        if not waiting:
            self._world.sicken()  # what kept the broken version from coming up has been put right
        called = [item for item in broken if open_tasks[item]["hold"] == "escalated"]
        return [act for item in called if (act := self._help(item, None)) is not None]

    def _after_a_restore(self, tasks: Mapping[str, Any]) -> list[Act]:
        """Accept it; then file again what the copy knows nothing of, and what has not come back."""
        if closed(self._world):
            self._helped["accept"] += 1
            return [("accept", "")] if self._helped["accept"] <= 2 * PATIENCE else []
        return [] if {*TITLES} <= {row["title"] for row in tasks.values()} else [("file", "")]

    def _by_post(self, post: Post, tasks: Mapping[str, Any]) -> list[Act]:
        """Approve what waits for it, and open a pull request again."""
        asked = [item for item, row in tasks.items() if row["hold"] == "person"]
        shut = [item for item, row in tasks.items() if "closed by hand" in (row["hold_reason"] or "")]
        for item in asked:
            self._helped[f"say {item}"] += 1
            (post.say if self._helped[f"say {item}"] <= 2 * PATIENCE else post.cancel)(item)
        for item in shut:
            post.shut(item, closed=False)
        return [("say", item) for item in asked + shut]

    def _help(self, item: str, at_last: str | None) -> Act | None:
        self._helped[item] += 1
        if self._helped[item] <= PATIENCE:
            return ("retry", item)
        return (at_last, item) if at_last and self._helped[item] <= 2 * PATIENCE else None


def acting(acts: list[Act]) -> Callable[[App], None]:
    """A script that does these. What the desk refuses is not insisted on: the world may have moved on."""

    def script(app: App) -> None:
        for verb, item in acts:
            try:
                _do(app, verb, item)
            except OperatorError:
                continue

    return script


def _do(app: App, verb: str, item: str) -> None:
    if verb == "accept":
        _accept(app)
    elif verb == "file":
        file_two(app)
    elif verb == "unfreeze":
        app.operations.unfreeze(REPO, person="Ann", reason="the fix is behind it")
    elif verb == "lend":
        app.operations.lend(REPO, item, person="Ann", reason="it mends what is broken")
    elif verb == "retry":
        app.operations.retry(item, person="Ann", reason="go on")
    elif verb == "cancel":
        app.operations.cancel(item, person="Ann", reason="no longer wanted")


def _accept(app: App) -> None:
    """As ``orch restore accept`` does with a service that runs. What cannot be read then is read the next time."""
    try:
        app.restore.accept(person="Ann", reason="the disk was lost")
    except OutsideError:
        return
