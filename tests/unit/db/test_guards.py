"""The schema as the last guard: whatever the code does, these rows cannot be written (laws 2 and 11)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
import pytest

from orchestrator.db.migrate import migrations
from tests.fixtures_db import REFUSED, Store

NOW = "utc_now()"
SHA = "a" * 40
TASK = (
    "INSERT INTO tasks (id, work_item, repo, title, stage, created_at, updated_at) "
    f"VALUES (1, 'SMP-1', 'sample', 'Say hello', 'created', {NOW}, {NOW})"
)
SECOND = TASK.replace("(1, 'SMP-1'", "(2, 'SMP-2'")
EPOCH = "INSERT INTO transition_epoch VALUES (1, 5)"
ENVIRONMENT = "INSERT INTO environment_epoch VALUES ('production', 5)"
JOB = (
    "INSERT INTO jobs (task_id, stage, round, kind, status, created_at) "
    f"VALUES (1, 'development', 1, 'developer', 'queued', {NOW})"
)
MARK = "INSERT INTO installation_marks (repo, generation) VALUES ('sample', 5)"
SLOT = f"INSERT INTO slots VALUES ('merge:sample', 'sample', 'task', 1, {NOW})"
EVENT = f"INSERT INTO events (task_id, type, actor, at) VALUES (1, 'note', 'operator', {NOW})"
BASELINE = (
    "INSERT INTO coverage_baseline (repo, merged_sha, percent, measured, at) "
    f"VALUES ('sample', '{SHA}', 80.0, 80.0, {NOW})"
)
RUN = (
    "INSERT INTO agent_runs (job_id, task_id, attempt, agent, run_dir, started_at) "
    f"VALUES (1, 1, 1, 'scripted', '/run', {NOW})"
)
INBOX = (
    "INSERT INTO inbox (source, dedup_key, kind, task_id, received_at) "
    f"VALUES ('api', 'k', 'cancel', 1, {NOW})"
)
DELIVERY = "INSERT INTO deliveries (inbox_id, source, delivery_id) VALUES ({}, 'gitea', 'd')"
OUTBOX = f"INSERT INTO outbox (stable_id, task_id, kind, payload, created_at) VALUES ('s', 1, 'alert', '{{}}', {NOW})"
CANDIDATE = (
    f"INSERT INTO candidates VALUES (1, 1, '{SHA}', '{SHA}', '{SHA}', '{SHA}', 'nonce', 1, 'fence', {NOW})"
)


def effect(state: str, *, name: str = "merge_pr", sequence: int = 1, key: str = "k", task: int = 1) -> str:
    settled = NOW if state in ("applied", "revoked") else "NULL"
    return (
        "INSERT INTO effects "
        "(id, task_id, name, key, round, state, epoch, sequence, token, actor, intent_at, settled_at) VALUES "
        f"({sequence}, {task}, '{name}', '{key}', 1, '{state}', 1, {sequence}, 't', 'monitor', {NOW}, {settled})"
    )


def stage(target: str) -> str:
    return f"UPDATE tasks SET stage = '{target}' WHERE id = 1"


def column(table: str, change: str) -> str:
    return f"UPDATE {table} SET {change}"


@dataclass(frozen=True)
class Refused:
    """What stands there, what is tried, and what the database says."""

    given: Sequence[str]
    tried: str
    because: str
    allowed: str = ""  # the nearest thing that is permitted, to show that the guard is no wall


MERGED = [TASK, effect("applied")]
FREEZE = f"INSERT INTO repo_freeze VALUES ('sample', 'ill', 1, NULL, {NOW})"
KEPT = SLOT.replace("'task', 1", "'freeze', NULL")
UNDOING = [TASK, SECOND, effect("intended", name="deploy_undo"), FREEZE]
LEND = column("repo_freeze", "lent_to = 2")
PLACE = f"INSERT INTO slots VALUES ('environment:production', 'sample', 'task', 1, {NOW})"
START = (
    effect("intended", name="deploy_init")
    .replace("settled_at)", "evidence)")
    .replace("NULL)", """'{"environment": "production"}')""")
)
SETTLE = column("effects", f"state = 'applied', settled_at = {NOW}")
TRIGGERS = {
    **{
        f"after_the_merge_no_{target}": Refused([*MERGED, stage("deploy")], stage(target), "goes forward")
        for target in (
            "created",
            "analysis",
            "architecture",
            "development",
            "review",
            "testing",
            "deploy-staging",
            "cancelled",
        )
    },
    "deploy_without_the_merge": Refused([TASK], stage("deploy"), "merge_pr is not applied", stage("testing")),
    "done_without_the_merge": Refused([TASK], stage("done"), "merge_pr is not applied"),
    "deploy_on_a_mere_intent": Refused(
        [TASK, effect("intended")], stage("deploy"), "merge_pr is not applied"
    ),
    **{
        f"{target}_while_{state}": Refused(
            [TASK, effect(state, name="push")],
            stage(target),
            "an effect is unsettled",
            "UPDATE effects SET state = 'applied', settled_at = ''",
        )
        for state in ("intended", "revoking", "in_doubt")
        for target in ("cancelled", "development", "review")
    },
    "done_while_an_undo_is_unsettled": Refused(
        [*MERGED, effect("intended", name="deploy_undo", sequence=2)], stage("done"), "an effect is unsettled"
    ),
    **{
        f"{target}_with_a_slot": Refused([*given, SLOT], stage(target), "still holds a slot", stage(near))
        for target, near, given in (
            ("development", "review", [TASK]),
            ("testing", "deploy-staging", [TASK]),
            ("cancelled", "analysis", [TASK]),
            ("done", "deploy", MERGED),
        )
    },
    "cancelled_is_final": Refused(
        [TASK, stage("cancelled")], stage("development"), "terminal stage is final"
    ),
    "done_is_final": Refused([*MERGED, stage("done")], stage("deploy"), "terminal stage is final"),
    "an_epoch_stays": Refused(
        [TASK, EPOCH],
        column("transition_epoch", "epoch = 5"),
        "only rises",
        column("transition_epoch", "epoch = 6"),
    ),
    "an_epoch_falls": Refused([TASK, EPOCH], column("transition_epoch", "epoch = 4"), "only rises"),
    "an_epoch_changes_hands": Refused(
        [TASK, SECOND, EPOCH], column("transition_epoch", "task_id = 2, epoch = 9"), "only rises"
    ),
    "an_epoch_is_deleted": Refused([TASK, EPOCH], "DELETE FROM transition_epoch", "never forgotten"),
    "a_generation_that_falls": Refused(
        [MARK],
        column("installation_marks", "generation = 4"),
        "a repository's generation only rises",
        column("installation_marks", "generation = 5"),
    ),
    "a_ledger_number_that_does_not_rise": Refused(
        [],
        column("installation", "sequence = sequence"),
        "the ledger's number only rises",
        column("installation", "sequence = sequence + 1"),
    ),
    "an_environment_stays": Refused(
        [ENVIRONMENT],
        column("environment_epoch", "epoch = 5"),
        "only rises",
        column("environment_epoch", "epoch = 6"),
    ),
    "an_effect_is_deleted": Refused([TASK, effect("applied")], "DELETE FROM effects", "never forgotten"),
    "an_event_changes": Refused([TASK, EVENT], column("events", "actor = 'nobody'"), "never changed"),
    "a_baseline_falls": Refused(
        [BASELINE],
        BASELINE.replace(SHA, "b" * 40).replace("80.0, 80", "79.9, 80"),
        "may only rise",
        BASELINE.replace(SHA, "b" * 40),
    ),
    "a_baseline_is_rewritten": Refused(
        [BASELINE], column("coverage_baseline", "percent = 90"), "never rewritten"
    ),
    "done_while_its_deploy_may_be_undone": Refused(
        [
            *MERGED,
            effect("applied", name="deploy_init", sequence=2, key="d"),
            column("effects", """evidence = '{"conditional_undo": {"sequence": 3}}' WHERE id = 2"""),
        ],
        stage("done"),
        "its deploy may still be undone",
        effect("revoked", name="deploy_undo", sequence=3, key="u"),
    ),
    "a_start_without_its_place": Refused([TASK], START, "nothing is started there", PLACE),
    "a_start_in_anothers_place": Refused(
        [TASK, SECOND, PLACE], START.replace("(1, 1,", "(1, 2,"), "nothing is started there", START
    ),
    "a_place_is_freed_under_a_start": Refused(
        [TASK, PLACE, START], "DELETE FROM slots", "the place stays", SETTLE
    ),
    "a_frozen_slot_is_freed": Refused(
        [TASK, FREEZE, KEPT], "DELETE FROM slots", "its merge slot is never free", "DELETE FROM repo_freeze"
    ),
    "a_frozen_slot_is_taken": Refused(
        [TASK, SECOND, FREEZE], SLOT.replace("'task', 1", "'task', 2"), "is not lent to this task", LEND
    ),
    "a_frozen_slot_is_moved": Refused(
        [TASK, SECOND, FREEZE, KEPT],
        column("slots", "holder = 'task', task_id = 2"),
        "is not lent to this task",
        LEND,
    ),
    "a_slot_is_kept_for_no_freeze": Refused([TASK], KEPT, "no freeze to keep the slot for"),
    "a_slot_is_given_to_no_freeze": Refused(
        [TASK, SLOT], column("slots", "holder = 'freeze', task_id = NULL"), "no freeze to give the slot to"
    ),
    "a_freeze_is_lifted_over_an_undo": Refused(
        UNDOING, "DELETE FROM repo_freeze", "the freeze stays", SETTLE
    ),
    "a_freeze_is_lent_over_an_undo": Refused(UNDOING, LEND, "the slot is not lent", SETTLE),
    "a_freeze_is_lent_to_one_that_ended": Refused(
        [TASK, SECOND, FREEZE, column("tasks", "stage = 'cancelled' WHERE id = 2")],
        LEND,
        "lent to a task of another repository",
    ),
    "a_loan_outlives_its_task": Refused(
        [TASK, SECOND, FREEZE, LEND],
        column("tasks", "stage = 'cancelled' WHERE id = 2"),
        "still lent to the task",
        column("repo_freeze", "lent_to = NULL"),
    ),
}
UNIQUE = {
    "two_merges_of_one_task": Refused(
        [TASK, effect("applied")],
        effect("applied", sequence=2, key="other"),
        "effects.task_id",
        effect("applied", sequence=2, name="image"),
    ),
    "two_rows_of_one_act": Refused(
        [TASK, effect("intended")],
        effect("intended", sequence=2),
        "effects.task_id",
        effect("intended", sequence=2, key="other"),
    ),
    "one_sequence_twice": Refused([TASK, effect("intended")], effect("intended", key="other"), "effects."),
    "two_active_jobs": Refused([TASK, JOB], JOB, "jobs.task_id", JOB.replace("queued", "done")),
    "two_open_tasks_of_one_ticket": Refused(
        [TASK, column("tasks", "external_id = 'T-1'"), SECOND],
        column("tasks", "external_id = 'T-1' WHERE id = 2"),
        "tasks.tracker, tasks.external_id",
        column("tasks", "external_id = 'T-2' WHERE id = 2"),
    ),
    "one_number_twice": Refused([TASK], TASK.replace("(1,", "(2,"), "tasks.work_item"),
    "a_merge_ratchets_twice": Refused([BASELINE], BASELINE, "coverage_baseline.repo"),
    "one_transition_twice": Refused(
        [
            TASK,
            EVENT,
            column("events", "type = type WHERE id = 0"),
            f"INSERT INTO events (type, actor, transition_id, at) VALUES ('note', 'a', 'T', {NOW})",
        ],
        f"INSERT INTO events (type, actor, transition_id, at) VALUES ('note', 'a', 'T', {NOW})",
        "transition_id",
    ),
    "one_slot_twice": Refused([TASK, SECOND, SLOT], SLOT.replace("'task', 1", "'task', 2"), "slots.name"),
    "one_message_in_twice": Refused([TASK, INBOX], INBOX, "inbox.dedup_key"),
    "one_delivery_twice": Refused(
        [TASK, INBOX, INBOX.replace("'k'", "'l'"), DELIVERY.format(1)],
        DELIVERY.format(2),
        "deliveries.delivery_id",
    ),
    "one_message_out_twice": Refused([TASK, OUTBOX], OUTBOX, "outbox.stable_id"),
    "one_run_folder_twice": Refused([TASK, JOB, RUN], RUN, "agent_runs.run_dir"),
    "one_nonce_twice": Refused(
        [TASK, SECOND, CANDIDATE],
        CANDIDATE.replace("(1, 1", "(2, 1").replace(SHA, "b" * 40, 1),
        "candidates.",
    ),
    "one_prefix_twice": Refused(
        [],
        f"INSERT INTO repositories (name, forge, location, prefix, added_at) VALUES ('o', 'local', '/', 'SMP', {NOW})",
        "repositories.prefix",
    ),
}
CHECKS = {
    "a_title_of_spaces": Refused([TASK], column("tasks", "title = '  '"), "length(trim(title))"),
    "labels_that_are_no_list": Refused([TASK], column("tasks", "labels = 'x'"), "json_valid(labels)"),
    "an_unknown_stage": Refused([TASK], stage("merging"), "stage IN"),
    "a_round_below_one": Refused([TASK], column("tasks", "round = 0"), "round >= 1"),
    "an_unknown_track": Refused([TASK], column("tasks", "track = 'slow'"), "track IN"),
    "an_unknown_hold": Refused([TASK], column("tasks", "hold = 'nap', hold_since = ''"), "hold IN"),
    "a_hold_without_its_time": Refused([TASK], column("tasks", "hold = 'slot'"), "(hold IS NULL)"),
    "an_unknown_forge": Refused([], column("repositories", "forge = 'cvs'"), "forge IN"),
    "a_repository_without_a_name": Refused([], column("repositories", "name = ''"), "length(name)"),
    "a_repository_without_a_prefix": Refused([], column("repositories", "prefix = ''"), "length(prefix)"),
    "a_number_below_one": Refused([], column("repositories", "next_number = 0"), "next_number >= 1"),
    "a_job_round_below_one": Refused([TASK, JOB], column("jobs", "round = 0"), "round >= 1"),
    "an_unknown_kind": Refused([TASK, JOB], column("jobs", "kind = 'poet'"), "kind IN"),
    "an_unknown_status": Refused([TASK, JOB], column("jobs", "status = 'asleep'"), "status"),
    "attempts_below_none": Refused([TASK, JOB], column("jobs", "attempts = -1"), "attempts >= 0"),
    "looked_at_less_than_never": Refused(
        [TASK, INBOX, DELIVERY.format(1)], column("deliveries", "attempts = -1"), "attempts >= 0"
    ),
    "deferred_less_than_never": Refused(
        [TASK, INBOX, DELIVERY.format(1)], column("deliveries", "deferrals = -1"), "deferrals >= 0"
    ),
    "fewer_claims_than_attempts": Refused([TASK, JOB], column("jobs", "attempts = 1"), "claims >= attempts"),
    "no_attempt_allowed": Refused([TASK, JOB], column("jobs", "max_attempts = 0"), "max_attempts >= 1"),
    "running_for_nobody": Refused(
        [TASK, JOB],
        column("jobs", "status = 'running'"),
        "status = 'running'",
        column("jobs", "status = 'running', claimed_by = 'b'"),
    ),
    "queued_for_somebody": Refused([TASK, JOB], column("jobs", "claimed_by = 'b'"), "status = 'running'"),
    "a_run_before_the_first": Refused([TASK, JOB, RUN], column("agent_runs", "attempt = 0"), "attempt >= 1"),
    **{
        f"{tokens}_below_none": Refused(
            [TASK, JOB, RUN], column("agent_runs", f"{tokens} = -1"), f"{tokens} >= 0"
        )
        for tokens in ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    },
    "an_outcome_without_its_time": Refused(
        [TASK, JOB, RUN], column("agent_runs", "outcome = 'done'"), "(outcome IS NULL)"
    ),
    "event_data_that_is_no_json": Refused(
        [TASK],
        EVENT.replace("actor, at", "actor, data, at").replace("'operator'", "'operator', 'x'"),
        "json_valid(data)",
    ),
    "a_task_that_waits_for_itself": Refused(
        [TASK], "INSERT INTO job_deps VALUES (1, 1)", "task_id <> depends_on"
    ),
    "more_than_everything_covered": Refused([], BASELINE.replace("80.0, 80", "100.1, 80"), "percent BETWEEN"),
    "less_than_nothing_measured": Refused([], BASELINE.replace("80.0, 80.0", "80.0, -1"), "measured BETWEEN"),
    "a_lesson_from_nowhere": Refused(
        [], f"INSERT INTO lessons (source, kind, text, at) VALUES ('gossip', 'k', 't', {NOW})", "source IN"
    ),
    "a_second_installation": Refused(
        [], f"INSERT INTO installation (one, installation_id, created_at) VALUES (2, 'x', {NOW})", "one = 1"
    ),
    "a_negative_epoch": Refused([TASK], "INSERT INTO transition_epoch VALUES (1, -1)", "epoch >= 0"),
    "a_negative_generation": Refused(
        [], "INSERT INTO installation_marks (repo, generation) VALUES ('sample', -1)", "generation >= 0"
    ),
    "an_unknown_cause": Refused([MARK], column("installation_marks", "cause = 'magic'"), "cause IN"),
    "a_closing_without_its_reason": Refused(
        [MARK], column("installation_marks", "cause = 'forge', closed_at = ''"), "(cause IS NULL)"
    ),
    "a_negative_environment": Refused([], "INSERT INTO environment_epoch VALUES ('x', -1)", "epoch >= 0"),
    "an_unknown_effect": Refused([TASK], effect("intended", name="party"), "name IN"),
    "an_unknown_state": Refused([TASK], effect("guessed"), "state"),
    "evidence_that_is_no_json": Refused(
        [TASK, effect("intended")], column("effects", "evidence = 'x'"), "evidence"
    ),
    "a_fact_that_is_no_json": Refused([TASK, effect("intended")], column("effects", "fact = 'x'"), "fact"),
    "applied_without_its_time": Refused(
        [TASK, effect("intended")], column("effects", "state = 'applied'"), "settled_at"
    ),
    "settled_while_intended": Refused(
        [TASK, effect("intended")], column("effects", "settled_at = 'x'"), "settled_at"
    ),
    "a_slot_of_a_stranger": Refused([TASK], SLOT.replace("'task'", "'stranger'"), "holder"),
    "a_slot_of_no_task": Refused([TASK], SLOT.replace("'task', 1", "'task', NULL"), "holder = 'task'"),
    "a_frozen_slot_with_a_task": Refused([TASK], SLOT.replace("'task', 1", "'freeze', 1"), "holder = 'task'"),
    "step_evidence_that_is_no_json": Refused(
        [TASK], f"INSERT INTO steps VALUES (1, 'review', 1, 's', 'x', {NOW})", "json_valid(evidence)"
    ),
    "an_edge_taken_less_than_never": Refused(
        [TASK], "INSERT INTO task_edges VALUES (1, 'a', 'b', -1, -1)", "taken >= 0"
    ),
    "more_forgiven_than_taken": Refused(
        [TASK], "INSERT INTO task_edges VALUES (1, 'a', 'b', 1, 2)", "forgiven BETWEEN"
    ),
    "a_check_that_shrugs": Refused(
        [TASK], f"INSERT INTO checks VALUES (1, 'review', 1, 'ci', 's', 'maybe', '{{}}', {NOW})", "verdict IN"
    ),
    "check_detail_that_is_no_json": Refused(
        [TASK],
        f"INSERT INTO checks VALUES (1, 'review', 1, 'ci', 's', 'pass', 'x', {NOW})",
        "json_valid(detail)",
    ),
    "a_signal_that_is_no_json": Refused(
        [TASK, INBOX], column("inbox", "payload = 'x'"), "json_valid(payload)"
    ),
    "a_message_that_is_no_json": Refused(
        [TASK, OUTBOX], column("outbox", "payload = 'x'"), "json_valid(payload)"
    ),
    "a_message_of_no_kind": Refused([TASK, OUTBOX], column("outbox", "kind = 'fax'"), "kind IN"),
    "an_approval_of_nothing": Refused(
        [TASK], f"INSERT INTO approvals VALUES (1, 'nod', 's', 1, 'x', 'p', {NOW})", "kind IN"
    ),
}
FOREIGN = {
    "a_task_of_no_repository": Refused([], TASK.replace("'sample'", "'other'"), "FOREIGN KEY"),
    "a_job_of_no_task": Refused([], JOB, "FOREIGN KEY"),
    "an_effect_of_no_task": Refused([], effect("intended"), "FOREIGN KEY"),
    "an_epoch_of_no_task": Refused([], EPOCH, "FOREIGN KEY"),
    "a_slot_of_a_missing_task": Refused([], SLOT, "FOREIGN KEY"),
    "a_task_with_jobs_is_deleted": Refused([TASK, JOB], "DELETE FROM tasks", "FOREIGN KEY"),
}


GUARDED = """
SELECT attname FROM pg_attribute JOIN
    (SELECT conrelid AS place, conname AS name, conkey AS columns FROM pg_constraint
     UNION ALL SELECT indrelid, relname, indkey FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid) AS guards
ON attrelid = place AND attnum = ANY (columns) WHERE name = :name
"""


def because(store: Store, error: Exception, words: str) -> bool:
    """Whether the refusal speaks of what it should. PostgreSQL names a guard where SQLite shows it: then the columns
    that it guards are looked up."""
    if isinstance(error, psycopg.errors.ForeignKeyViolation):
        return words == "FOREIGN KEY"
    if isinstance(error, psycopg.errors.UniqueViolation) and words.endswith("."):
        return words == f"{error.diag.table_name}."
    if isinstance(error, psycopg.errors.CheckViolation | psycopg.errors.UniqueViolation):
        guarded = {row["attname"] for row in store.rows(GUARDED, {"name": error.diag.constraint_name})}
        return bool(guarded & set(re.findall(r"\w+", words)))
    return words in str(error)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name)
        for table in (TRIGGERS, UNIQUE, CHECKS, FOREIGN)
        for name, case in table.items()
    ],
)
def test_the_database_refuses(store: Store, case: Refused) -> None:
    for statement in case.given:
        store.raw(statement)
    with pytest.raises(REFUSED) as refusal:
        store.raw(case.tried)
    assert because(store, refusal.value, case.because)
    if case.allowed:
        assert store.raw(case.allowed) == 1


STATES = ("intended", "revoking", "in_doubt", "applied", "revoked")
FORWARD = {
    ("intended", "applied"), ("intended", "revoking"), ("intended", "in_doubt"),
    ("revoking", "applied"), ("revoking", "revoked"), ("revoking", "in_doubt"),
    ("in_doubt", "applied"), ("in_doubt", "intended"), ("in_doubt", "revoking"),
}  # fmt: skip


@pytest.mark.parametrize("source", STATES)
@pytest.mark.parametrize("target", STATES)
def test_effects_move_forward_only(store: Store, source: str, target: str) -> None:
    settled = NOW if target in ("applied", "revoked") else "NULL"
    store.raw(TASK)
    store.raw(effect(source))
    change = f"UPDATE effects SET state = '{target}', settled_at = {settled}"
    if source == target or (source, target) in FORWARD:
        assert store.raw(change) == 1
    else:
        with pytest.raises(REFUSED, match="does not move that way"):
            store.raw(change)


def test_every_trigger_refuses_in_a_test_above() -> None:
    """A new trigger without a case here fails: its message is looked for among the cases."""
    messages = re.findall(r"RAISE\(ABORT, '((?:[^']|'')+)'\)", "\n".join(migrations().values()))
    expected = [case.because for case in TRIGGERS.values()] + ["does not move that way"]
    assert messages
    assert [m for m in messages if not any(because in m for because in expected)] == []


def test_every_check_refuses_in_a_test_above() -> None:
    """As many cases as there are CHECKs, and each is met by a case that names a part of it."""
    sql = "\n".join(migrations().values())
    found = [
        " ".join(text.split()) for text in re.findall(r"CHECK\s*\((.+?)\)\s*(?:,?\n|,\s*--)", sql, re.DOTALL)
    ]
    expected = [case.because for case in CHECKS.values()]
    assert len(found) > 40
    assert [check for check in found if not any(because in check for because in expected)] == []
