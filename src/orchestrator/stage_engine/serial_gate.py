"""The serial gate: who takes a repository's merge slot, whose turn it is, what a freeze does with it (S-12, DESIGN §3).

Every function belongs to one transaction. What must hold: while a repository is frozen its merge slot is never free; it
is the freeze's, or of the one task that it is lent to, or of a broken task whose own deploy is started again.
"""

from dataclasses import replace

from orchestrator.db import effects, events, slots, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName
from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import RepoName, TaskId
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.repo_config.records import RepoConfig
from orchestrator.stage_engine.not_now import NotNow

IN_LINE = frozenset({Hold.SLOT, Hold.FROZEN})  # a freeze that is lifted has taken nobody out of the line


def slots_needed(task: Task, config: RepoConfig) -> list[str]:
    """The shared places that a task holds in deploy-staging; production too: another repository may deploy there."""
    names = [slots.merge_slot(task.repo)]
    for environment in (config.staging, config.production):
        if environment is not None:
            names.append(slots.environment_slot(environment.name))
    return list(dict.fromkeys(names))


def slots_of_deploy(task: Task, config: RepoConfig) -> list[str]:
    """Those that it keeps until production is stable."""
    return slots_needed(task, replace(config, staging=None))


def why_no_turn(tx: Tx, task: Task) -> NotNow | None:
    """A freeze, or somebody who has waited longer; the reason names nobody, so that it changes only when it has to.

    Whom the slot is lent to passes both.
    """
    freeze = slots.frozen(tx, task.repo)
    if freeze is not None:
        lent = freeze.lent_to == task.id
        return None if lent else NotNow(f"the repository is frozen: {freeze.reason}", Hold.FROZEN)
    if tasks.oldest_waiting_for_slot(tx, task.repo) not in (None, task.id):
        return NotNow("others have waited longer for the merge slot", Hold.SLOT)
    return None


def why_no_slot(tx: Tx, task: Task) -> NotNow | None:
    """Why it is certainly not the task's turn; None where the commit that takes the slots has to find out."""
    if (closed := why_no_turn(tx, task)) is not None:
        return closed
    held = slots.get(tx, slots.merge_slot(task.repo))
    if held is None or held.task_id == task.id or (held.frozen and slots.frozen(tx, task.repo) is not None):
        return None
    return NotNow(f"{held.name} is taken", Hold.SLOT)


def take(tx: Tx, task: Task, names: list[str], owner: Actor) -> None:
    """Take every slot or none, the merge slot from the freeze where it is lent.

    :raises NotNow: one is taken, or it is not the task's turn.
    """
    if (closed := why_no_turn(tx, task)) is not None:
        raise closed
    busy = _take(tx, task, names, owner)
    if busy is not None:
        raise NotNow(f"{busy.name} is taken", Hold.SLOT)


def take_place(tx: Tx, task: Task, environment: str, owner: Actor) -> None:
    """Have an environment's place before anything is started there: a task that came here under an earlier version
    has not taken it. Who frees it wakes that task (:func:`whose_turn`).

    :raises NotNow: another task has it.
    """
    busy = _take(tx, task, [slots.environment_slot(environment)], owner)
    if busy is not None:
        raise NotNow(f"{busy.name} is held by {busy.work_item or 'another'}")


def take_again(tx: Tx, task: Task, names: list[str], owner: Actor) -> None:
    """Take the slots, the freeze's too, for the deploy of a merged task to be started once more, or looked at (N10).

    :raises NotNow: another task has it, or something has been merged since.
    """
    busy = _take(tx, task, names, owner)
    if busy is not None:
        raise NotNow(f"{busy.name} is held by {busy.work_item or 'another'}")
    if effects.merged_since(tx, task.id):  # asked with the slot in hand: nothing can be merged any more
        raise NotNow("something has been merged since: what is older is not deployed any more")


def _take(tx: Tx, task: Task, names: list[str], owner: Actor) -> slots.Slot | None:
    """Take these slots, the merge slot from a freeze too, and tell of what is new; or return the one that is busy."""
    before = slots.held_by(tx, task.id)
    if slots.merge_slot(task.repo) in names:
        slots.take_from_freeze(tx, task.repo, task.id)
    busy = slots.take_all(tx, task.repo, task.id, names)
    if busy is None:
        for name in names:
            if name not in before:
                events.append(tx, EventType.SLOT_TAKEN, owner, task=task, data={"slot": name})
    return busy


def give_back(tx: Tx, task: Task, owner: Actor, *, only: str | None = None) -> None:
    """Free what the task holds, or one slot of it. The merge slot of a frozen repository returns to the freeze (N9)."""
    before = slots.held_by(tx, task.id)
    if only is None:
        slots.free_all(tx, task.repo, task.id)
    else:
        slots.free(tx, task.id, only)
    for name in sorted(set(before) - set(slots.held_by(tx, task.id))):
        events.append(tx, EventType.SLOT_FREED, owner, task=task, data={"slot": name})


def whose_turn(tx: Tx, repo: RepoName) -> list[TaskId]:
    """Whom a freed slot concerns: whom the freeze has lent to, who may lack a place at its start (:func:`take_place`),
    and of each repository who has waited longest."""
    freeze = slots.frozen(tx, repo)
    borrower = [freeze.lent_to] if freeze is not None and freeze.lent_to is not None else []
    return [*borrower, *tasks.between_starts(tx), *tasks.first_in_line(tx)]


def keep_for_the_freeze(tx: Tx, task: Task, owner: Actor) -> None:
    """The broken task's merge slot goes to the freeze: with the undo settled, or at once where there is none.
    Production is free then for whoever comes next, the fix first of all."""
    slots.give_to_freeze(tx, task.repo, task.id)
    for name in slots.held_by(tx, task.id):
        if name != slots.merge_slot(task.repo):
            give_back(tx, task, owner, only=name)


def freeze(tx: Tx, task: Task, owner: Actor, reason: str) -> None:
    """Freeze the repository of a broken task; a loan to the task itself has ended."""
    slots.freeze(tx, task.repo, f"{task.work_item} is broken after its merge: {reason}", task.id)
    slots.end_loan(tx, task.id)
    events.append(tx, EventType.REPO_FROZEN, owner, task=task, data={"reason": reason})


def lift_own(tx: Tx, task: Task, owner: Actor) -> list[TaskId]:
    """What was broken runs now: the freeze that it had caused has lost its reason. Whom that concerns.

    Another task of the repository that is broken too keeps it frozen.
    """
    frozen = slots.frozen(tx, task.repo)
    if frozen is None or frozen.task_id != task.id:
        return []
    heir = tasks.broken_beside(tx, task)
    if heir is not None:  # it broke while the repository was frozen already: its reason stands
        why = (
            f"{heir.work_item} is broken after its merge: {heir.hold_reason or 'its deploy is being undone'}"
        )
        slots.pass_freeze_on(tx, task.repo, why, heir.id)
        data = {"reason": why, "before": task.work_item}
        events.append(tx, EventType.REPO_FROZEN, owner, task=heir, data=data)
        return []
    slots.unfreeze(tx, task.repo)
    data = {"repo": task.repo, "reason": f"{task.work_item} is done"}
    events.append(tx, EventType.REPO_UNFROZEN, owner, task=task, data=data)
    return tasks.held_up(tx, task.repo)


def lift(tx: Tx, repo: RepoName, *, person: str, reason: str) -> bool:
    """A person lifts the freeze; False where there was none.

    :raises RequestRefused: an undo in the repository is not settled yet.
    """
    _refuse_over_an_undo(tx, repo)
    lifted = slots.unfreeze(tx, repo)
    if lifted:
        data = {"repo": repo, "person": person, "reason": reason}
        events.append(tx, EventType.REPO_UNFROZEN, Actor.OPERATOR, data=data)
    return lifted


def lend(tx: Tx, repo: RepoName, task: Task, *, person: str, reason: str) -> bool:
    """A person lends the frozen merge slot to the task that mends what is broken; False where that is so already.

    The freeze stays. A loan moves to another task as long as the first has not taken the slot.

    :raises RequestRefused: nothing is frozen, an undo is not settled, the slot is in use, or the task is not fit.
    """
    frozen = slots.frozen(tx, repo)
    if frozen is None:
        raise RequestRefused(f"{repo} is not frozen: there is nothing to lend.", hint="It delivers as it is.")
    _refuse_over_an_undo(tx, repo)
    _refuse_unfit(tx, frozen, task)
    if frozen.lent_to == task.id:
        return False
    held = slots.get(tx, slots.merge_slot(repo))
    if held is not None and not held.frozen:
        raise RequestRefused(
            f"The merge slot of {repo} is with {held.work_item}; it cannot be lent to {task.work_item} now.",
            hint=f"`orch why {held.work_item}` says where it stands.",
        )
    slots.lend(tx, repo, task.id)
    data = {"repo": repo, "broken": frozen.work_item, "before": frozen.lent_item, "person": person}
    events.append(tx, EventType.REPO_LENT, Actor.OPERATOR, task=task, data={**data, "reason": reason})
    return True


def _refuse_over_an_undo(tx: Tx, repo: RepoName) -> None:
    undoing = effects.undo_under_way(tx, repo)
    if undoing is not None:
        raise RequestRefused(
            f"The undo of {undoing} is not settled yet; the freeze stays.",
            hint=f"`orch why {undoing}` says what it waits for.",
        )


def _refuse_unfit(tx: Tx, frozen: slots.Freeze, task: Task) -> None:
    item = task.work_item
    if task.repo != frozen.repo:
        raise RequestRefused(f"{item} is a ticket of {task.repo}, not of {frozen.repo}.")
    if task.id == frozen.task_id:
        raise RequestRefused(
            f"{item} is what broke {frozen.repo}; it cannot mend itself by a loan.",
            hint=f"`orch task retry {item}` starts its deploy again; a fix is another ticket.",
        )
    if task.stage.terminal:
        raise RequestRefused(f"{item} has ended ({task.stage}).")
    if task.stage is Stage.DEPLOY or effects.applied(tx, task.id, EffectName.MERGE_PR) is not None:
        raise RequestRefused(f"{item} is merged already; it needs no slot.")
    if frozen.work_item in [other for other, _ in tasks.unmet_dependencies(tx, task.id)]:
        raise RequestRefused(
            f"{item} depends on {frozen.work_item}, which ends only when the fix is done.",
            hint="File the fix as a ticket that does not depend on what it mends.",
        )
