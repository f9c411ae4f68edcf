"""The guards of the protocol as switches, and what goes wrong without each.

A guard names where it lives in the code: a statement of db/sql, a trigger of the schema, or a Python callable with a
fragment of its text. A test looks each place up, so that a guard that moves or goes has to be looked for again here.
"""

from dataclasses import dataclass, replace

EFFECTS = "orchestrator.db.effects"
LEDGER = "orchestrator.effects.ledger:Ledger"
ENGINE = "orchestrator.stage_engine"
LOCAL = "orchestrator.forges.local:LocalForge"


@dataclass(frozen=True, slots=True)
class Guards:
    """All on: the protocol. One off: an attack that works."""

    acquire_raises_epoch: bool = True
    epoch_on_intent: bool = True
    epoch_on_settle: bool = True
    epoch_locked: bool = True  # test and write are one transaction
    every_writer_names_epoch: bool = True  # nobody writes a stage on the stage alone
    intent_before_act: bool = True
    unsettled_first: bool = True  # nothing is done before the task's unsettled effects
    probe_every_candidate: bool = True  # a merge is probed by all the task's candidates, not by the last one
    only_probe_settles: bool = True  # a refusal is no outcome
    revoke_first: bool = True
    revoke_newer_token: bool = True
    probe_after_revoke: bool = True
    durable_revoking: bool = True
    revoking_stays: bool = True  # until it is settled; nobody acts on it again
    act_leaves_fence: bool = True
    merge_once: bool = True  # the authority compares main's old value at all
    merge_from_parent: bool = True  # … with M's first parent, not with a value read later
    turned_by_main: bool = True  # an intended merge is given up when main has moved
    claim_once: bool = True  # STARTED exists once for a generation
    undo_in_ledger: bool = True
    undo_claim_once: bool = True
    undo_driven_forward: bool = True
    undo_ends_command: bool = True
    undo_settled_at_its_end: bool = True  # … of its command, not when that has begun
    slots_freed: bool = True  # with cancel, rejection and requeue
    merge_slot_to_done: bool = True
    lent_slot_returns: bool = True
    undo_settled_before_lending: bool = True  # … or lifting: the freeze stays while an undo is under way
    every_undo_asked: bool = True  # … any task's, not only that of the task which froze the repository
    one_start_at_a_time: bool = True  # no generation is drawn while a start there is unsettled
    closed_by_done_fix: bool = True  # the broken task ends when the fix is done, not before
    retry_draws_generation: bool = True
    retry_only_newest: bool = True  # nothing older is started once a later M is on main
    retry_judged_with_slot: bool = True  # … and this is judged in the commit that takes the merge slot

    def without(self, name: str) -> "Guards":
        """The protocol with one guard taken out."""
        return replace(self, **{name: False})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a guard stands in the code."""

    kind: str  # "statement" | "trigger" | "python"
    name: str
    says: str = ""  # a fragment that its text holds


def statement(name: str, says: str = "") -> Place:
    return Place("statement", name, says)


def trigger(name: str) -> Place:
    return Place("trigger", name)


def python(name: str, says: str = "") -> Place:
    return Place("python", name, says)


PLACES: dict[str, tuple[Place, ...]] = {
    "acquire_raises_epoch": (
        python("orchestrator.db.leases:acquire", "raise_epoch("),
        statement("leases.raise_epoch", "epoch + 1"),
        trigger("transition_epoch_never_falls"),
    ),
    "epoch_on_intent": (python(f"{EFFECTS}:intend", "leases.check("),),
    "epoch_on_settle": (
        python(f"{EFFECTS}:settle", "leases.check("),
        python(f"{EFFECTS}:move", "leases.check("),
        python(f"{ENGINE}.moves:Moves.move", "leases.check("),
    ),
    "epoch_locked": (
        python("orchestrator.db.leases:check", "lock_epoch("),
        python("orchestrator.db.sqlite", "BEGIN IMMEDIATE"),
        statement("tasks.update_stage_cas", "= :epoch"),
    ),
    "every_writer_names_epoch": (
        python("orchestrator.db.tasks:update_task_stage_cas", "leases.raise_epoch"),
        statement("tasks.update_stage_cas", "stage = :expected_stage"),
    ),
    "intent_before_act": (python(f"{ENGINE}.acts:Acts.take", "self._intents.intend("),),
    "unsettled_first": (python(f"{ENGINE}.engine:StageEngine", "effects.unsettled("),),
    "probe_every_candidate": (python("orchestrator.effects.merge:MergeEffect.probe", "self._candidates("),),
    "only_probe_settles": (python(f"{LEDGER}._act", 'self._probe(effect, intent, "second")'),),
    "revoke_first": (python(f"{LEDGER}.give_up", "self._revoke("), python(f"{LOCAL}.revoke_merge")),
    "revoke_newer_token": (
        python("orchestrator.effects.merge:MergeEffect.revoke", "revoked-"),
        python("orchestrator.forges.local_fence:Fence.excludes"),
    ),
    "probe_after_revoke": (python(f"{LEDGER}._revoke", '"after_revoke")'),),
    "durable_revoking": (
        python(f"{LEDGER}.give_up", "EffectState.REVOKING"),
        statement("effects.move", "state = :expected"),
    ),
    "revoking_stays": (
        python(f"{LEDGER}.drive", "EffectState.REVOKING"),
        python(f"{LEDGER}._doubt", "EffectState.INTENDED"),
        trigger("effects_move_forward"),
    ),
    "act_leaves_fence": (python("orchestrator.forges.local_fence:Fence.prepared"),),
    "merge_once": (python(f"{LOCAL}.merge", "candidate.base_sha, candidate.sha"),),
    "merge_from_parent": (python(f"{LOCAL}.merge", "candidate.base_sha, candidate.sha"),),
    "turned_by_main": (python("orchestrator.effects.merge:MergeEffect.turned", "candidate.base_sha"),),
    "claim_once": (python("orchestrator.runtime.files", "os.link("),),
    "undo_in_ledger": (
        python(f"{ENGINE}.broken:Broken.undo", "self._intend_undo("),
        python(f"{ENGINE}.broken:Broken._intend_undo", "self._plans.undo("),
    ),
    "undo_claim_once": (python("orchestrator.effects.deploy:DeployEffect.probe", "Claimant.CHILD"),),
    "undo_driven_forward": (
        python(f"{ENGINE}.engine:StageEngine._next", "self._acts.drive("),
        python("orchestrator.effects.deploy:DeployEffect.turned", "StartGivenUp) else None"),
        trigger("stage_waits_for_effects"),
    ),
    "undo_ends_command": (python("orchestrator.deploy.runner"),),
    "undo_settled_at_its_end": (
        python("orchestrator.effects.deploy:DeployEffect.probe", "self._deployer.exit("),
        statement("effects.unsettled_undo", "'intended'"),
    ),
    "slots_freed": (
        python(f"{ENGINE}.moves:_give_back", "FREEING"),
        trigger("stage_frees_its_slots"),
    ),
    "merge_slot_to_done": (python(f"{ENGINE}.moves:_give_back", "slots_of_deploy("),),
    "lent_slot_returns": (
        python("orchestrator.db.slots:free_all", "give_to_freeze("),
        statement("slots.give_to_freeze", "repo_freeze"),
        trigger("frozen_slot_is_never_free"),
    ),
    "undo_settled_before_lending": (
        python(f"{ENGINE}.serial_gate:lift", "_refuse_over_an_undo("),
        python(f"{ENGINE}.serial_gate:lend", "_refuse_over_an_undo("),
        python(f"{ENGINE}.serial_gate:_refuse_over_an_undo", "effects.undo_under_way("),
        trigger("freeze_stays_for_an_undo"),
        trigger("freeze_is_not_lent_over_an_undo"),
    ),
    "every_undo_asked": (statement("effects.unsettled_undo", "tasks.repo = :repo"),),
    "one_start_at_a_time": (
        python(f"{EFFECTS}:draw_generation", "effects.unsettled_in_environment"),
        statement("effects.unsettled_in_environment", "'intended', 'revoking', 'in_doubt'"),
    ),
    "closed_by_done_fix": (
        python(f"{ENGINE}.closing:due_to_be_closed", "effects.done_since("),
        python("orchestrator.effects.trial:why_on_trial", "effects.done_since("),
        python("orchestrator.check_runner:CheckRunner._watch", "why_on_trial("),
        statement("effects.done_since", "stage = 'done'"),
    ),
    "retry_draws_generation": (
        python(f"{EFFECTS}:draw_generation"),
        statement("effects.highest_generation", "deploy_undo"),
    ),
    "retry_only_newest": (python(f"{ENGINE}.retries:Retries._after_the_merge", "if not superseded"),),
    "retry_judged_with_slot": (
        python(f"{ENGINE}.retries:Retries._start_again", "_take_places("),
        python(f"{ENGINE}.retries:Retries._take_places", "serial_gate.take_again("),
        python(f"{ENGINE}.serial_gate:take_again", "effects.merged_since("),
        statement("effects.later_merge", "json_extract(later.evidence, '$.candidate.sequence') AS BIGINT) >"),
    ),
}
