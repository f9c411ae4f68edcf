"""Where model and code must say the same: edges, steps, ledger moves, triggers, fences, and where each guard stands."""

import importlib
import inspect
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import permutations
from pathlib import Path

import pytest

from orchestrator.db import effects, leases, tasks
from orchestrator.db.database import Tx
from orchestrator.db.statements import statement
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import LostRace, OutsideError
from orchestrator.domain.ids import BootId, Sha, TaskId
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate
from orchestrator.forges.local_fence import CANDIDATE, REVOKED, Fence, fence_of
from orchestrator.rules.transitions import STAGE_STEPS
from tests.fixtures_db import Store
from tests.model.attacks import ATTACKS
from tests.model.authority import lands, shows
from tests.model.commits import FREEING
from tests.model.configuration import Configuration
from tests.model.configurations import LONG, SHORT
from tests.model.guards import PLACES, Guards, Place
from tests.model.laws import ALL_LAWS, STATE_LAWS, TRIGGERS
from tests.model.pipeline import CREATED, EFFECT_MOVES, PREPARES, UNUSED_MOVES, parts_of
from tests.model.state import IDLE, Budget, Call, State, Task, World

GUIDE = Path(__file__).parents[2] / "docs/explanation/model.md"

# Guards that the model needs and the code does not have yet. Whoever builds one moves it to PLACES.
NOT_BUILT: set[str] = set()

SETTLED = {state.value for state in EffectState if state.settled}
EFFECT = (
    "INSERT INTO effects (task_id, name, key, round, state, epoch, sequence, token, actor, intent_at, settled_at) "
    "VALUES (:task, :name, 'k', 1, :state, 1, 1, 't', 'monitor', utc_now(), :settled)"
)
MOVE = "UPDATE effects SET state = :state, settled_at = :settled"
STAGE = "UPDATE tasks SET stage = :stage WHERE id = :task"
SLOT = "INSERT INTO slots VALUES ('merge:sample', 'sample', 'task', :task, utc_now())"


# --- the pipeline -----------------------------------------------------------------------------------------------------


pytestmark = pytest.mark.of_the_file  # triggers are read by their text; a server's are held to them elsewhere


@pytest.mark.parametrize("configuration", [*SHORT, *LONG], ids=lambda chosen: chosen.name)
def test_the_models_parts_stand_for_all_steps_in_order(configuration: Configuration) -> None:
    parts = parts_of(configuration.driven, CREATED)
    for stage, steps in STAGE_STEPS.items():
        assert [name for part in parts[stage.value] for name in part.stands_for] == [
            step.name for step in steps
        ]


def test_driving_every_effect_leaves_none_to_a_judgement() -> None:
    parts = parts_of(None, CREATED)
    judged = [
        name for stage in parts for part in parts[stage] if part.kind == "judge" for name in part.stands_for
    ]
    assert judged
    assert not [name for name in judged if name.startswith(("effect:", "candidate:"))]


# --- the database -----------------------------------------------------------------------------------------------------


@pytest.fixture
def task_id(store: Store) -> TaskId:
    return store.new_task().id


def _accepted(store: Store, sql: str, **values: object) -> str:
    """'' where the database takes it, else what it says."""
    try:
        store.raw(sql, values)
    except sqlite3.IntegrityError as refusal:
        return str(refusal)
    return ""


def _effect(store: Store, task_id: TaskId, state: str, name: str = "merge_pr") -> None:
    settled = "2026-01-01" if state in SETTLED else None
    store.raw(EFFECT, {"task": task_id, "name": name, "state": state, "settled": settled})


@pytest.mark.parametrize("source", [state.value for state in EffectState])
def test_the_database_allows_the_moves_that_the_model_knows(
    store: Store, task_id: TaskId, source: str
) -> None:
    allowed = set()
    for target in (state.value for state in EffectState if state.value != source):
        other = store.new_task(f"{source} to {target}").id
        store.raw(
            EFFECT.replace("1, 't'", f"{int(other)}, 't'"),
            {
                "task": other,
                "name": "push",
                "state": source,
                "settled": "2026" if source in SETTLED else None,
            },
        )
        move = f"{MOVE} WHERE task_id = {int(other)}"
        if not _accepted(store, move, state=target, settled="2026" if target in SETTLED else None):
            allowed.add((source, target))
    assert allowed == {(old, new) for old, new in EFFECT_MOVES if old == source}


def test_what_the_model_never_does_is_permitted_all_the_same() -> None:
    assert UNUSED_MOVES < EFFECT_MOVES


def test_the_database_guards_stages_with_the_triggers_that_the_laws_name(store: Store) -> None:
    found = store.rows("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'tasks'")
    assert {row["name"] for row in found if "UPDATE OF stage" in row["sql"]} == set(TRIGGERS)
    assert {law for law in TRIGGERS.values() if law} <= ALL_LAWS


@pytest.mark.parametrize("target", list(Stage))
def test_slots_are_freed_where_the_database_insists(store: Store, task_id: TaskId, target: Stage) -> None:
    if target in (Stage.DEPLOY, Stage.DONE):
        _effect(store, task_id, "applied")
    store.raw(SLOT, {"task": task_id})
    said = _accepted(store, STAGE, stage=target.value, task=task_id)
    assert ("still holds a slot" in said) is (target.value in FREEING)


@pytest.mark.parametrize("target", list(Stage))
def test_a_merged_task_goes_forward_in_the_database_too(store: Store, task_id: TaskId, target: Stage) -> None:
    _effect(store, task_id, "applied")
    said = _accepted(store, STAGE, stage=target.value, task=task_id)
    after = State((Task(target.value, merged=True, candidate=1),), World(main=(0, 11)), (), (IDLE,), Budget())
    keeps = STATE_LAWS[TRIGGERS["stage_never_back_after_merge"]](after)
    # deploy-staging is where the merge is settled: the task stands there already and is never moved there again
    assert ("goes forward" in said) is (not keeps or target is Stage.DEPLOY_STAGING)


@pytest.mark.parametrize("state", [state.value for state in EffectState if not state.settled])
def test_no_stage_is_written_over_an_unsettled_effect(store: Store, task_id: TaskId, state: str) -> None:
    _effect(store, task_id, state, "push")
    assert "unsettled" in _accepted(store, STAGE, stage="analysis", task=task_id)


def test_the_database_tests_the_epoch_wherever_the_model_does(store: Store, task_id: TaskId) -> None:
    current = Lease(task_id, Actor.MONITOR, BootId("b"), 1, Stage.CREATED, None)
    stale = replace(current, epoch=0)
    with store.database.write() as tx:
        assert leases.raise_epoch(tx, current)
        intent = effects.intend(tx, current, EffectName.PUSH, "k", 1, token="t", judged={})
    commits: list[Callable[[Tx], object]] = [
        lambda tx: effects.intend(tx, stale, EffectName.PUSH, "other", 1, token="t", judged={}),
        lambda tx: effects.settle(tx, stale, intent, EffectState.APPLIED, {}, ""),
        lambda tx: effects.move(tx, stale, intent, EffectState.REVOKING, ""),
    ]
    for commit in commits:
        with pytest.raises(LostRace), store.database.write() as tx:
            commit(tx)
    with store.database.write() as tx:
        assert not tasks.update_task_stage_cas(tx, task_id, Stage.CREATED, Stage.ANALYSIS, epoch=0)


# --- the fence --------------------------------------------------------------------------------------------------------


def _candidate(sequence: int) -> Candidate:
    sha = Sha(f"{sequence:040x}")
    return Candidate(TaskId(1), 1, sha, sha, sha, sha, f"n{sequence}", sequence, f"f{sequence}")


@pytest.mark.parametrize("candidate", [1, 2, 3])
@pytest.mark.parametrize("state", [CANDIDATE, REVOKED])
@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_the_models_fence_is_the_local_forges(sequence: int, state: str, candidate: int) -> None:
    kept = Task("deploy-staging", fence=2 * sequence + (state == REVOKED))
    world = State((kept,), World(), (), (IDLE,), Budget())
    fence = replace(fence_of(_candidate(sequence)), state=state)
    assert isinstance(fence, Fence)

    after, _ = lands(world, Call("revoke", 0, candidate, ()), Guards())
    assert fence.excludes(_candidate(candidate)) is (after == world)

    prepared, _ = lands(world, Call(PREPARES, 0, candidate, ()), Guards())
    try:
        left_alone = fence.prepared(_candidate(candidate))
    except OutsideError:
        left_alone = True  # it has moved on, and is not moved back
    assert left_alone is (prepared == world) is shows(world, 0, PREPARES, candidate, Guards())


# --- where the guards stand -------------------------------------------------------------------------------------------


def _places() -> Iterator[tuple[str, Place]]:
    for guard, places in PLACES.items():
        for place in places:
            yield guard, place


@pytest.mark.parametrize(
    ("guard", "place"), list(_places()), ids=[f"{guard}: {place.name}" for guard, place in _places()]
)
def test_the_guard_stands_where_the_model_says(store: Store, guard: str, place: Place) -> None:
    if place.kind == "trigger":
        assert store.rows(
            "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = :name", {"name": place.name}
        )
        return
    text = statement(place.name) if place.kind == "statement" else _source(place.name)
    assert place.says in text, (
        f"{guard} is no longer to be seen in {place.name}: look for it, then name its place"
    )


def test_every_guard_has_a_place_or_is_known_to_be_missing() -> None:
    assert set(PLACES) == {field.name for field in fields(Guards)}
    assert {guard for guard, places in PLACES.items() if not places} == NOT_BUILT


def _source(name: str) -> str:
    module, _, path = name.partition(":")
    found: object = importlib.import_module(module)
    for part in path.split(".") if path else ():
        found = getattr(found, part)
    return inspect.getsource(found)  # type: ignore[arg-type]


# --- the guide --------------------------------------------------------------------------------------------------------


def test_the_guide_speaks_of_every_guard_law_and_configuration() -> None:
    guide = GUIDE.read_text(encoding="utf-8")
    names = [
        *(f"`{field.name}`" for field in fields(Guards)),
        *(f"| {chosen.name} |" for chosen in (*SHORT, *LONG)),
        *ALL_LAWS,
        *(attack.known_as for attack in ATTACKS),
    ]
    assert [name for name in names if name not in guide] == []


def test_ledger_moves_are_pairs_of_states_that_exist() -> None:
    assert set(permutations([state.value for state in EffectState], 2)) >= EFFECT_MOVES
