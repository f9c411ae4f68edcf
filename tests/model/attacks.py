"""The attacks: what goes wrong when a guard is taken out, or that nothing does.

A muted law only repeats the guard that is missing ("the stage was written over an unsettled effect"); it is muted so
that the search goes on to what that costs. The numbers name the attacks of the two reviews that the protocol answers.
"""

from dataclasses import dataclass

from tests.model.configuration import MERGE_AND_DEPLOY, Configuration
from tests.model.configurations import STAGED
from tests.model.explore import CLEAN, STUCK, VIOLATION
from tests.model.guards import Guards
from tests.model.laws import ALL_LAWS, STAGING_LAW
from tests.model.state import Budget

ORDINARY = Budget(steals=1, late=1, cancels=1, fails=1, sick=1)
STRANGERS = Budget(steals=1, late=1, pushes=1)
WANDERING = Budget(steals=1, strays=2, outages=1)  # a reason to give up that goes away again
BOTH_SICK = Budget(sick=2)
STAGED_BUDGET = Budget(steals=1, late=1, pushes=1, fails=1)
RETRIED = Budget(sick=1, retries=1)
UNDONE_LATE = Budget(late=1, sick=1, retries=1)

SLOTLESS = frozenset(
    {"deploy-staging or deploy without the merge slot", "frozen, but the merge slot is free"}
)

MERGED = "merged and given up"
NO_INTENT = "an effect without a durable intent"
NOT_CONTAINED = "done, but production does not contain it"
OTHERS_DEPLOY = "an undo rolls back another task's deploy"
OVER_UNSETTLED = "a stage written over an unsettled effect"
UNSETTLED = frozenset({OVER_UNSETTLED, "ended with an unsettled effect"})
OLDER = "an older M over a newer one"


@dataclass(frozen=True, slots=True)
class Attack:
    """Guards taken out, the space, and what is found there."""

    without: tuple[str, ...]
    known_as: str
    budget: Budget
    law: str = ""
    result: str = VIOLATION
    tasks: int = 1
    mute: frozenset[str] = frozenset()
    driven: frozenset[str] = MERGE_AND_DEPLOY

    def configuration(self) -> Configuration:
        """The space to be explored."""
        guards = Guards()
        for guard in self.without:
            guards = guards.without(guard)
        name = "- " + " - ".join(self.without)
        return Configuration(
            name, tasks=self.tasks, driven=self.driven, budget=self.budget, guards=guards, mute=self.mute
        )


def _one(
    guard: str, known_as: str, law: str, budget: Budget = ORDINARY, *, mute: frozenset[str] = frozenset()
) -> Attack:
    return Attack((guard,), known_as, budget, law, mute=mute)


def _only(
    guard: str,
    known_as: str,
    law: str,
    budget: Budget = ORDINARY,
    *,
    driven: frozenset[str] = MERGE_AND_DEPLOY,
) -> Attack:
    """With every other law muted: what else it costs, and a proof that this law can be broken at all."""
    return Attack((guard,), known_as, budget, law, mute=ALL_LAWS - {law}, driven=driven)


def _two(
    guard: str, known_as: str, law: str, budget: Budget, *, mute: frozenset[str] = frozenset()
) -> Attack:
    return Attack((guard,), known_as, budget, law, tasks=2, mute=mute)


def _stuck(guard: str, known_as: str, budget: Budget, *, tasks: int = 1) -> Attack:
    return Attack((guard,), known_as, budget, result=STUCK, tasks=tasks)


def _spare(guard: str, known_as: str, budget: Budget, *, tasks: int = 1) -> Attack:
    return Attack((guard,), known_as, budget, result=CLEAN, tasks=tasks)


ATTACKS = (
    # ownership
    _one("acquire_raises_epoch", "H1", OVER_UNSETTLED),
    _one("acquire_raises_epoch", "H1", MERGED, mute=UNSETTLED),
    _one("epoch_on_intent", "H1", MERGED, mute=UNSETTLED),
    _one("epoch_on_settle", "H1", MERGED, mute=UNSETTLED),
    _one("epoch_locked", "H3", MERGED, mute=UNSETTLED),
    _one("every_writer_names_epoch", "H4", MERGED, mute=UNSETTLED),
    _one("unsettled_first", "H19", MERGED, mute=UNSETTLED),
    _only("unsettled_first", "H19", "ended with an unsettled effect"),
    _only("epoch_on_settle", "H15", "staging started without its slot", STAGED_BUDGET, driven=STAGED),
    _only("epoch_on_intent", "H15", STAGING_LAW, STAGED_BUDGET, driven=STAGED),
    # merging and giving up
    _one("intent_before_act", "law 3", NO_INTENT),
    _one("only_probe_settles", "H2", MERGED),
    _one("revoke_first", "H1", MERGED),
    _only("revoke_first", "H1", "production runs what is not on main"),
    _one("revoke_newer_token", "H1", MERGED),
    _one("probe_after_revoke", "law 4", MERGED),
    _one("act_leaves_fence", "N4", MERGED),
    _one("merge_once", "law 5", "two merges of one task"),
    _one("merge_from_parent", "N1", "main moved to an M that was not built on it", STRANGERS),
    _stuck("turned_by_main", "N3", STRANGERS),
    _stuck("durable_revoking", "N4", WANDERING),
    _stuck("revoking_stays", "N4", WANDERING),
    _spare("probe_every_candidate", "N3b", Budget(steals=1, late=1, pushes=1, cancels=1)),
    # deploys
    _one("claim_once", "H8", "two starts of one generation"),
    _one("undo_in_ledger", "H5", NO_INTENT),
    _one("undo_in_ledger", "H5", "done and its deploy undone", mute=frozenset({NO_INTENT})),
    _only("undo_in_ledger", "H5", NOT_CONTAINED),
    _one("undo_claim_once", "H5", "a deploy is undone twice"),
    _one("undo_driven_forward", "H5", NOT_CONTAINED, mute=UNSETTLED),
    _one("undo_ends_command", "H9", "an undone deploy runs again"),
    _one("undo_settled_at_its_end", "H5", NOT_CONTAINED, UNDONE_LATE),
    _only("undo_settled_at_its_end", "H5", "done and its deploy undone", UNDONE_LATE),
    _stuck("retry_draws_generation", "H7", RETRIED, tasks=2),
    # slots and freeze
    _one("slots_freed", "N9", "a slot held by a task that has no use for it"),
    _two("merge_slot_to_done", "N5", "deploy-staging or deploy without the merge slot", BOTH_SICK),
    _two("merge_slot_to_done", "N5", OLDER, BOTH_SICK, mute=SLOTLESS),
    _two("merge_slot_to_done", "N5", OTHERS_DEPLOY, BOTH_SICK, mute=SLOTLESS | {OLDER}),
    _two("lent_slot_returns", "N9", "frozen, but the merge slot is free", Budget(sick=1, cancels=1)),
    _two(
        "undo_settled_before_lending",
        "N6",
        "the merge slot is kept for a freeze that is gone",
        BOTH_SICK,
        mute=SLOTLESS,
    ),
    Attack(
        ("undo_settled_before_lending", "one_start_at_a_time"),
        "N6",
        BOTH_SICK,
        OTHERS_DEPLOY,
        tasks=2,
        mute=SLOTLESS,
    ),
    _two("every_undo_asked", "N6", "the merge slot is kept for a freeze that is gone", BOTH_SICK),
    _spare("one_start_at_a_time", "N6", BOTH_SICK, tasks=2),
    _two("closed_by_done_fix", "N8", NOT_CONTAINED, BOTH_SICK),
    _two("retry_judged_with_slot", "N10", OLDER, RETRIED),
    Attack(("retry_only_newest", "retry_judged_with_slot"), "N10", RETRIED, OLDER, tasks=2),
    _spare("retry_only_newest", "N10", RETRIED, tasks=2),
)
