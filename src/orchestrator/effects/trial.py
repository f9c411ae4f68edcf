"""Whether what an environment runs may still be taken away from a task by somebody else's undo (N8).

What must hold: a task ends with what it has merged in production for ever. So nothing is judged by a later merge that
is not done, for its undo brings back what ran before it; nor by the task's own merge while such a later start stands or
is under way. Once that undo has settled, and where the later merge was never started, production's own word counts.
"""

from orchestrator.db import effects
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName
from orchestrator.domain.task import Task


def why_on_trial(tx: Tx, task: Task, environment: str, *, own: bool) -> str | None:
    """Why a healthy environment says nothing about the task yet, for a person; None where it does.

    :param own: the environment runs exactly the task's own merge, not a later one that contains it.
    """
    later = effects.merged_since(tx, task.id)
    if later is None or effects.done_since(tx, task.id) is not None:
        return None
    if not own:
        return f"{later}, merged after {task.work_item}, is not done, and may still be undone"
    if effects.start_unsettled(tx, environment):
        return f"{later} was merged after {task.work_item}, and what is being started in {environment} is not settled"
    last = effects.last_start(tx, environment)
    if last is None or last.name is EffectName.DEPLOY_UNDO or last.task_id == task.id:
        return None
    return f"what was last started in {environment} is not {task.work_item}'s, and may still be undone"
