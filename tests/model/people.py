"""What happens without any actor of ours: calls land late, strangers push, people cancel, go on, unfreeze, lend."""

from collections.abc import Iterator
from typing import Any

from tests.model.authority import COMMAND, ENVIRONMENT, UNDOING, lands, put
from tests.model.commits import Journal, live_owner, write_stage
from tests.model.guards import Guards
from tests.model.pipeline import (
    ADVANCE,
    DEPLOY,
    DEVELOPMENT,
    ENDS,
    STAGING,
    TESTING,
    UNDOES,
    targets,
)
from tests.model.state import FREEZE, STRANGER, State

Label = tuple[Any, ...]
Steps = Iterator[tuple[Label, State]]


def outside(state: State, guards: Guards, journal: Journal, first: str) -> Steps:
    """Every step of the world around the actors."""
    budget = state.budget
    for index, call in enumerate(state.calls):
        rest = state._replace(calls=state.calls[:index] + state.calls[index + 1 :])
        new, accepted = lands(rest, call, guards)
        yield ("late", call.what, f"t{call.task}", call.key, "LANDS" if accepted else "is refused"), new
        if call.what in ENVIRONMENT and accepted and budget.late:
            spent = rest._replace(budget=budget._replace(late=budget.late - 1))
            yield ("late", call.what, "is claimed", COMMAND), lands(spent, call, guards, slow=True)[0]
        if call.what == UNDOING:
            yield (call.what, f"t{call.task}", "FAILS"), rest
    if budget.pushes:
        world = state.world._replace(main=(*state.world.main, STRANGER))
        yield (
            ("an outsider pushes to main",),
            state._replace(world=world, budget=budget._replace(pushes=budget.pushes - 1)),
        )
    for task, kept in enumerate(state.tasks):
        if kept.stage in ENDS:
            continue
        yield from _said(state, task)
        if kept.hold == "escalated":
            yield (
                ("a person lets go on", f"t{task}"),
                put(state, task, kept._replace(hold="", rejected=0, renewed=0)),
            )
        if kept.stage == DEVELOPMENT and first == TESTING and not kept.hold and not live_owner(state, task):
            new = state
            while new.tasks[task].stage != TESTING:
                (target,) = targets(new.tasks[task].stage, ADVANCE)
                new = write_stage(new, task, target, ADVANCE, guards, journal)
            yield ("developed, reviewed and tested anew", f"t{task}"), new
    yield from _freeze(state, guards)


def _said(state: State, task: int) -> Steps:
    kept, budget = state.tasks[task], state.budget
    if budget.cancels and not kept.cancel:
        yield (
            ("a person cancels", f"t{task}"),
            put(state, task, kept._replace(cancel=True))._replace(
                budget=budget._replace(cancels=budget.cancels - 1)
            ),
        )
    if budget.strays and kept.stage == STAGING:
        yield (
            ("somebody moves the branch", f"t{task}", "away" if not kept.away else "back"),
            put(state, task, kept._replace(away=not kept.away))._replace(
                budget=budget._replace(strays=budget.strays - 1)
            ),
        )


def _freeze(state: State, guards: Guards) -> Steps:
    world = state.world
    if not world.freeze:
        return
    asked = state.tasks if guards.every_undo_asked else (state.tasks[world.freeze - 1],)
    undoing = any(row.what == UNDOES for kept in asked for row in kept.rows)
    if undoing and guards.undo_settled_before_lending:
        return
    early = undoing and world.merge_slot == world.freeze  # lent or lifted before the undo has settled
    slot = 0 if world.merge_slot == FREEZE or early else world.merge_slot
    yield ("an operator unfreezes",), state._replace(world=world._replace(freeze=0, lent=0, merge_slot=slot))
    if slot:
        return
    for task, kept in enumerate(state.tasks):
        if world.lent != task + 1 and kept.stage not in (STAGING, DEPLOY, *ENDS):
            lent = world._replace(lent=task + 1, merge_slot=FREEZE)
            yield ("an operator lends the slot to", f"t{task}"), state._replace(world=lent)
