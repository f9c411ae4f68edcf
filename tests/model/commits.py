"""What a transaction of the engine does to the database: one commit, or nothing.

Every function takes the state and returns the new one; the caller has tested the epoch. A stage is written by
:func:`write_stage` and by nothing else, along an edge of ``STAGE_TRANSITIONS``.
"""

from typing import Any

from orchestrator.stage_engine.moves import FREEING as CODE_FREES
from tests.model.authority import broken, put
from tests.model.guards import Guards
from tests.model.pipeline import (
    DEPLOY,
    DEVELOPMENT,
    DONE,
    EDGES,
    ENDS,
    MERGES,
    STARTS,
    UNDOES,
    Written,
)
from tests.model.state import FREEZE, Row, State, World, commit_of, landed

FREEING = frozenset(stage.value for stage in CODE_FREES)


class Journal:
    """Which edges were written and which moves ledger rows made: compared with the code's tables."""

    def __init__(self) -> None:
        self.edges: set[Written] = set()
        self.moves: set[tuple[str, str]] = set()


def others_stale(state: State, task: int) -> State:
    """The epoch has risen: whoever held an older one is stale from now on."""
    actors = tuple(
        actor._replace(current=False) if actor.current and actor.task == task else actor
        for actor in state.actors
    )
    return state._replace(actors=actors)


def write_stage(
    state: State, task: int, target: str, kind: str, guards: Guards, journal: Journal, **fields: Any
) -> State:
    """Stage, slots and freeze in one; raises the epoch."""
    kept = state.tasks[task]
    edge = (kept.stage, target, kind)
    if edge not in EDGES:
        raise AssertionError(f"the model wrote {edge}, which STAGE_TRANSITIONS does not know")
    journal.edges.add(edge)
    if kept.rows:
        state = broken(state, "a stage written over an unsettled effect")
    base = kept.base if target == DEPLOY else ()
    new = kept._replace(stage=target, step=0, shown=0, base=base, **fields)
    if target in ENDS:
        new = new._replace(cancel=False, away=False, hold="")
    elif target == DEVELOPMENT:
        new = new._replace(away=False)  # whoever develops starts from the branch as it is
    state = put(state, task, new)
    state = state._replace(world=_places(state.world, task, target, guards))
    return others_stale(state, task)


def _places(world: World, task: int, target: str, guards: Guards) -> World:
    mine = task + 1
    if target in FREEING and (guards.slots_freed or target == DONE):
        if world.staging_slot == mine:
            world = world._replace(staging_slot=0)
        if world.merge_slot == mine:
            back = world.freeze and guards.lent_slot_returns
            world = world._replace(merge_slot=FREEZE if back else 0)
    elif target == DEPLOY and world.staging_slot == mine:
        world = world._replace(staging_slot=0)
    if target == DEPLOY and not guards.merge_slot_to_done and world.merge_slot == mine:
        world = world._replace(merge_slot=0)
    if target in ENDS and world.lent == mine:
        world = world._replace(lent=0)
    if target == DONE and world.freeze == mine:
        world = world._replace(
            freeze=0, lent=0, merge_slot=0 if world.merge_slot == FREEZE else world.merge_slot
        )
    return world


def may_enter(world: World, task: int) -> bool:
    """Whether the merge slot and staging can be had, both or neither."""
    if world.staging_slot:
        return False
    if world.freeze:
        return world.lent == task + 1 and world.merge_slot == FREEZE
    return world.merge_slot == 0


def take_slots(state: State, task: int) -> State:
    """Both slots, in the commit testing → deploy-staging."""
    world = state.world._replace(merge_slot=task + 1, staging_slot=task + 1)
    return state._replace(world=world)


def unsettled_start(state: State) -> bool:
    """Whether a start or an undo in production is unsettled: no generation is drawn then."""
    return any(row.what in (STARTS, UNDOES) for task in state.tasks for row in task.rows)


def insert_row(state: State, task: int, row: Row) -> State:
    """Store an intent; a row that is there already stays as it is."""
    kept = state.tasks[task]
    if any((known.what, known.key) == (row.what, row.key) for known in kept.rows):
        return state
    kept = kept._replace(rows=(*kept.rows, row))
    if row.what == MERGES:
        kept = kept._replace(intended=max(kept.intended, row.key))
    elif row.what in (STARTS, UNDOES):
        kept = kept._replace(generation=max(kept.generation, row.key))
        if row.what == STARTS:
            kept = kept._replace(before=row.judged[1])
    return put(state, task, kept)


def move_row(state: State, task: int, row: Row, to: str, journal: Journal) -> tuple[State, Row] | None:
    """Another unsettled state; None where the row is no longer as it was read."""
    kept = state.tasks[task]
    if row not in kept.rows:
        return None
    _moved(row.state, to, journal)
    new = row._replace(state=to)
    rows = tuple(new if known == row else known for known in kept.rows)
    return put(state, task, kept._replace(rows=rows)), new


def settle_row(state: State, task: int, row: Row, outcome: str, journal: Journal) -> State | None:
    """Take the row off the unsettled ones; None where somebody else has done so."""
    kept = state.tasks[task]
    known = next((other for other in kept.rows if (other.what, other.key) == (row.what, row.key)), None)
    if known is None:
        return None
    _moved(known.state, outcome, journal)
    return put(state, task, kept._replace(rows=tuple(other for other in kept.rows if other != known)))


def _moved(source: str, target: str, journal: Journal) -> None:
    if source != target:
        journal.moves.add((source, target))


def later_merge(state: State, task: int) -> bool:
    """Whether the ledger knows a merge of another task after this one's."""
    main = state.world.main
    after = main[main.index(commit_of(task, state.tasks[task].candidate)) :]
    return any(
        other.merged and landed(after, index) for index, other in enumerate(state.tasks) if index != task
    )


def freeze_for(state: State, task: int) -> State:
    """Freeze the repository; a frozen one stays frozen for its first reason. A loan to the task has ended."""
    world = state.world
    if not world.freeze:
        world = world._replace(freeze=task + 1)
    if world.lent == task + 1:
        world = world._replace(lent=0)
    return state._replace(world=world)


def slot_to_freeze(state: State, task: int) -> State:
    """The broken task's merge slot becomes the freeze's."""
    world = state.world
    if world.merge_slot == task + 1:
        world = world._replace(merge_slot=FREEZE)
    return state._replace(world=world)


def live_owner(state: State, task: int) -> bool:
    """Whether somebody alive holds the task's lease."""
    return any(actor.current and actor.task == task for actor in state.actors)
