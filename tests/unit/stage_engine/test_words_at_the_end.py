"""What is said of a task just as it ends is answered, too: nobody finds it later (law 7).

A file has one writer. At a server both transactions are under way at once, and who ends the task does not see what has
not been committed yet.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from orchestrator.db import effects, leases, mail, slots, tasks
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.ids import BootId
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.operations.deciding import Deciding
from orchestrator.operations.effects import EffectDesk
from orchestrator.operations.freezes import FreezeDesk
from orchestrator.stage_engine import answers
from orchestrator.stage_engine.resolutions import Resolution
from tests.deliveries import TICKET, plane_state
from tests.fixtures_db import REPO, Store
from tests.fixtures_webhooks import letters_over
from tests.proofs.memory_deployer import Environments, MemoryDeployer
from tests.waiting import wait_until

WAITING = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


@pytest.fixture
def database_kind() -> str:
    return "postgres"


def lease_of(task: Task) -> Lease:
    return Lease(task.id, Actor.MONITOR, BootId("me"), task.epoch, task.stage)


def while_it_ends(store: Store, task: Task, said: Callable[[], object]) -> object:
    """What came of something that is said once all that waits has been answered, and the end is not committed yet."""
    lease = lease_of(task)
    with ThreadPoolExecutor(1) as pool:
        with store.database.write() as tx:
            leases.check(tx, lease)
            for intent in effects.unsettled(tx, task.id):
                effects.settle(tx, lease, intent, EffectState.APPLIED, {}, "it took place")
            answers.refuse_all(tx, lease, task, "the task was cancelled")
            slots.end_loan(tx, task.id)
            saying = pool.submit(said)
            wait_until(lambda: saying.done() or store.rows(WAITING))
            assert tasks.update_task_stage_cas(tx, task.id, task.stage, Stage.CANCELLED, epoch=task.epoch)
        return saying.exception(20) or saying.result()


def unanswered(store: Store, task: Task) -> list[object]:
    with store.database.read() as tx:
        return list(mail.waiting_signals(tx, task.id))


def test_by_a_command(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    desk = Deciding(store.database, entropy=store.entropy, wake=lambda _: None, why_restored=lambda _: None)
    refused = while_it_ends(store, task, lambda: desk.retry(task.work_item, person="Ann"))
    assert isinstance(refused, RequestRefused)
    assert "has ended" in str(refused)
    assert unanswered(store, task) == []


def test_by_a_word_on_an_effect(store: Store) -> None:
    task = store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        intent = effects.intend(tx, lease_of(task), EffectName.PUSH, "branch", 1, token="t", judged={})
    desk = EffectDesk(
        store.database,
        deployer=MemoryDeployer(Environments()),
        clock=store.clock,
        entropy=store.entropy,
        wake=lambda _: None,
    )
    say = partial(desk.resolve_effect, intent.effect_id, Resolution.NOT_APPLIED, person="Ann", reason="x")
    refused = while_it_ends(store, task, say)
    assert isinstance(refused, RequestRefused)
    assert "is settled" in str(refused)
    assert unanswered(store, task) == []


def test_nothing_is_lent_to_it(store: Store) -> None:
    broken, task = store.new_task(), store.new_task(stage=Stage.DEVELOPMENT)
    with store.database.write() as tx:
        slots.freeze(tx, REPO, "production is ill", broken.id)
    desk = FreezeDesk(store.database, wake=lambda _: None)
    refused = while_it_ends(store, task, lambda: desk.lend(REPO, task.work_item, person="Ann"))
    assert isinstance(refused, RequestRefused)
    assert "has ended" in str(refused)
    with store.database.read() as tx:
        frozen = slots.frozen(tx, REPO)
    assert frozen is not None
    assert frozen.lent_to is None


def test_by_a_delivery(store: Store) -> None:
    letters = letters_over(store)
    task = letters.on_show(store.new_task(stage=Stage.ANALYSIS, tracker="plane", external_id=TICKET))
    sent = letters.plane(plane_state("Approved"))
    while_it_ends(store, task, letters.run)
    assert unanswered(store, task) == []
    assert answers.was_refused(letters.outcome(sent))
