"""The task's pull request as a person has left it: one that was closed by hand holds the task, reopened it goes on.

The forge is asked where it matters: at the beginning of a stage, before a pull request is opened again, before the
slots are taken and before the merge; while the task is held for it; and when the forge has said that it changed.
Closing is a person's act without a command of ours, so it is never overruled: nothing is opened in its place.
"""

from collections.abc import Callable, Sequence

from orchestrator.db import alerts, events, leases, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.event import EventType
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, HoldCause, Holding, Task
from orchestrator.effects.ledger import Proof
from orchestrator.rules.transitions import MERGE, OPEN_PR, Step
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.situation import Outcome, Situation, Tools
from orchestrator.stage_engine.ways_back import WaysBack

STAGES = frozenset({Stage.DEVELOPMENT, Stage.REVIEW, Stage.TESTING, Stage.DEPLOY_STAGING})


class PullRequests:
    """Holds tasks whose pull request was closed, and lets them go on."""

    def __init__(self, tools: Tools, moves: Moves, back: WaysBack) -> None:
        self._tools = tools
        self._moves = moves
        self._back = back

    def look(self, at: Situation, step: Step | None) -> Outcome | None:
        """Hold the task, or release it, where the forge says so; None where there is nothing to do.

        :raises AuthorityUnreachable: the forge cannot be asked.
        """
        if not _matters(at, step):
            return None
        why = self.shut(at)
        if why is not None:
            return Outcome.HELD if held_for_it(at.task) else self.hold(at, why)
        if not held_for_it(at.task):
            return None
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            tasks.release_hold(tx, at.task.id)
            data = {"reason": "the pull request is open again"}
            events.append(tx, EventType.RELEASED, at.lease.owner, task=at.task, data=data)
        return Outcome.MOVED

    def state(self, at: Situation) -> str | None:
        """``open``, ``merged``, ``closed`` or ``gone``; None where the task has none that could be closed."""
        if at.task.pr_number is None or at.task.branch is None or at.task.stage not in STAGES:
            return None
        known = at.place.forge.pull_request(at.task.pr_number)
        return known.state if known is not None else "gone"

    def shut(self, at: Situation) -> str | None:
        """Why the task has to wait for a person, None where its pull request is none or not closed."""
        state = self.state(at)
        if state not in ("closed", "gone"):
            return None
        return f"its pull request {at.task.pr_number} {_what_to_do(at, state)} and the task goes on, or cancel the task"

    def hold(
        self,
        at: Situation,
        why: str,
        *,
        proofs: Sequence[Proof] = (),
        also: Callable[[Tx], None] | None = None,
    ) -> Outcome:
        """Call a person and wait, without the slots; ``also`` adds statements to the commit."""

        def call(tx: Tx) -> None:
            if also is not None:
                also(tx)
            task = at.task
            text = f"{task.work_item} {task.stage}: {why}"
            about = (task.work_item, "pull-request", task.pr_number, at.lease.epoch)
            alerts.call_and_comment(tx, task, text, *about)

        if at.task.stage is Stage.DEPLOY_STAGING:
            held = Holding(Hold.BLOCKED, why, HoldCause.PULL_REQUEST)
            self._back.requeue(at, why, proofs=proofs, hold=held, also=call)
            return Outcome.HELD
        return self._moves.hold(at, Hold.BLOCKED, why, proofs=proofs, also=call, cause=HoldCause.PULL_REQUEST)


def held_for_it(task: Task) -> bool:
    """Whether the task is held because of its pull request."""
    return task.hold_cause is HoldCause.PULL_REQUEST


def _what_to_do(at: Situation, state: str) -> str:
    if state == "gone":
        return "is gone: bring it back"
    branch = str(at.task.branch)
    if at.place.forge.tip(branch) is None:  # which has closed it; a server reopens none without its branch
        return (
            f"was closed with its branch {branch}, which is gone: restore the branch, reopen the pull request"
        )
    return "was closed by hand: reopen it"


def _matters(at: Situation, step: Step | None) -> bool:
    return not at.passed or step is None or step in (OPEN_PR, MERGE) or held_for_it(at.task)
