"""What must hold in every state, and what it means that everything has ended."""

from collections.abc import Callable

from tests.model.pipeline import DEPLOY, DONE, ENDS, MERGES, STAGES, STAGING
from tests.model.state import FREEZE, IDLE, State, commit_of, landed

Law = Callable[[State], bool]


def merged_goes_forward(state: State) -> bool:
    """Whose M is on main is never cancelled and never before deploy-staging; the ledger says the same."""
    return all(
        kept.stage in (STAGING, DEPLOY, DONE) or not landed(state.world.main, task)
        for task, kept in enumerate(state.tasks)
    )


def deploy_needs_the_merge(state: State) -> bool:
    """Stage deploy and done only with merge_pr applied and M on main."""
    return all(
        kept.stage not in (DEPLOY, DONE) or (kept.merged and landed(state.world.main, task) == 1)
        for task, kept in enumerate(state.tasks)
    )


def done_runs(state: State) -> bool:
    """Production contains the M of every done task, from then on for ever."""
    return all(
        kept.stage != DONE or commit_of(task, kept.candidate) in state.world.production
        for task, kept in enumerate(state.tasks)
    )


def ends_are_settled(state: State) -> bool:
    """No terminal stage with an unsettled effect."""
    return all(kept.stage not in ENDS or not kept.rows for kept in state.tasks)


def slots_of_those_on_their_way(state: State) -> bool:
    """A slot is never held by a task that is cancelled, done, or before deploy-staging."""
    holders = {state.world.merge_slot, state.world.staging_slot}
    return all(
        kept.stage in (STAGING, DEPLOY) or task + 1 not in holders for task, kept in enumerate(state.tasks)
    )


def merge_slot_held(state: State) -> bool:
    """A task in deploy-staging or deploy holds the merge slot, until its undo has handed it to the freeze."""
    return all(
        kept.stage not in (STAGING, DEPLOY) or kept.hold == "broken" or state.world.merge_slot == task + 1
        for task, kept in enumerate(state.tasks)
    )


def frozen_keeps_the_slot(state: State) -> bool:
    """While the repository is frozen, the merge slot is not free."""
    return not state.world.freeze or state.world.merge_slot != 0


def only_a_freeze_keeps_it(state: State) -> bool:
    """The merge slot is the freeze's only while there is one."""
    return state.world.merge_slot != FREEZE or state.world.freeze != 0


def staged_is_merged(state: State) -> bool:
    """While the merge of M is intended, staging runs M (where staging is driven)."""
    return all(
        row.what != MERGES or kept.stage != STAGING or state.world.staging == commit_of(task, row.key)
        for task, kept in enumerate(state.tasks)
        for row in kept.rows
    )


STATE_LAWS: dict[str, Law] = {
    "merged and given up": merged_goes_forward,
    "deploy without the merge": deploy_needs_the_merge,
    "done, but production does not contain it": done_runs,
    "ended with an unsettled effect": ends_are_settled,
    "a slot held by a task that has no use for it": slots_of_those_on_their_way,
    "deploy-staging or deploy without the merge slot": merge_slot_held,
    "frozen, but the merge slot is free": frozen_keeps_the_slot,
    "the merge slot is kept for a freeze that is gone": only_a_freeze_keeps_it,
}
STAGING_LAW = "merge intended, staging runs something else"

# Broken by a step rather than by a state; noted where it happens.
STEP_LAWS = (
    "an effect without a durable intent",
    "two merges of one task",
    "main moved to an M that was not built on it",
    "two starts of one generation",
    "production runs what is not on main",
    "an older M over a newer one",
    "an undone deploy runs again",
    "a deploy is undone twice",
    "done and its deploy undone",
    "an undo rolls back another task's deploy",
    "staging started without its slot",
    "a stage written over an unsettled effect",
)

ALL_LAWS = frozenset({*STATE_LAWS, *STEP_LAWS, STAGING_LAW})

# The triggers that refuse a stage in the database, and the law here that says the same.
TRIGGERS = {
    "stage_never_back_after_merge": "merged and given up",
    "stage_waits_for_effects": "a stage written over an unsettled effect",
    "stage_frees_its_slots": "a slot held by a task that has no use for it",
    "stage_deploy_needs_the_merge": "deploy without the merge",
    "stage_waits_for_conditional_undo": "",  # deploys of ourselves are not in the model
    "stage_ends_its_loan": "",  # the model's only way to an end is the commit that ends the loan
    "stage_terminal_is_final": "",  # no edge leaves a terminal stage: write_stage knows only the code's edges
}


def laws_for(driven: frozenset[str] | None, mute: frozenset[str]) -> dict[str, Law]:
    """The laws that a configuration is held to."""
    laws = {name: law for name, law in STATE_LAWS.items() if name not in mute}
    if (driven is None or STAGES in driven) and STAGING_LAW not in mute:
        laws[STAGING_LAW] = staged_is_merged
    return laws


def at_rest(state: State) -> bool:
    """Every task has ended: done, cancelled, or broken after its merge and waiting for a person; nothing is held."""
    world = state.world
    ended = all(kept.stage in ENDS or (kept.hold == "broken" and not kept.rows) for kept in state.tasks)
    slots = not world.staging_slot and (world.merge_slot == (FREEZE if world.freeze else 0))
    return ended and slots and all(actor == IDLE for actor in state.actors)
