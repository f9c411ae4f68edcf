"""Broken after the merge, and mended by another task: the broken one's gate is judged again when the fix is done.

Not before (N8): while the fix is on trial production may run it, healthy, and still lose it again. Once a task is done
whose M contains this one's, production contains both for ever, whatever later starts are undone.
"""

from collections.abc import Callable

from orchestrator.db import effects, evidence, leases, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.ids import WorkItem
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.rules.transitions import CHECK_PRODUCTION, PROMOTE, START_PRODUCTION, StepKind
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.plans import candidate_of
from orchestrator.stage_engine.situation import Outcome, Situation, Tools

LOOKED_AT = "closing"  # begins the mark that says after which fix the gate was judged again


def due_to_be_closed(tx: Tx, task: Task) -> WorkItem | None:
    """The fix that is done and after which the broken task has not been looked at; None for any other task."""
    if task.stage is not Stage.DEPLOY or task.hold is not Hold.ESCALATED:
        return None
    fix = effects.done_since(tx, task.id)
    looked_at = fix is not None and evidence.passed(tx, task.id, task.round, f"{LOOKED_AT}:{fix}")
    return None if looked_at else fix


class Closing:
    """Has production looked at again for a task that is broken after its merge."""

    def __init__(self, tools: Tools, moves: Moves) -> None:
        self._tools = tools
        self._moves = moves

    def by_the_fix(self, at: Situation) -> Outcome | None:
        """Look again, once for each fix that is done; None where there is nothing new to look at."""
        if at.active is not None:
            return None
        with self._tools.database.read() as tx:
            fix = due_to_be_closed(tx, at.task)
        return self.look_again(at, fix) if fix is not None else None

    def look_again(
        self, at: Situation, fix: WorkItem, answered: Callable[[Tx], None] | None = None
    ) -> Outcome:
        """Have the gate judged anew on what production runs now; nothing of the task itself is started any more."""
        with self._tools.database.read() as tx:
            merged = candidate_of(tx, at).sha

        def also(tx: Tx) -> None:
            if answered is not None:
                answered(tx)
            evidence.mark_step(tx, at.task, f"{LOOKED_AT}:{fix}")
            for step in (PROMOTE, START_PRODUCTION):
                evidence.mark_step(tx, at.task, step.name, {"left_to": fix})
            # It may have passed before the runner of a deploy of ourselves undid it; and should the look fail, what an
            # older one saw must not be judged in its place.
            for done in (
                f"{StepKind.JOB}:{JobKind.PRODUCTION_HEALTH}",
                f"{StepKind.GATE}:{CHECK_PRODUCTION}",
            ):
                evidence.forget_step(tx, at.task, done)

        if "production" in at.has:
            why = f"{fix} is done"
            return self._moves.enqueue(at, JobKind.PRODUCTION_HEALTH, subject=merged, brief=why, also=also)
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            also(tx)
            tasks.release_hold(tx, at.task.id)
        return Outcome.MOVED
