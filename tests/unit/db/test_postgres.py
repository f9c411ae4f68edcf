"""PostgreSQL behind the seam: what it does that SQLite need not, and what it must not do."""

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import psycopg
import pytest

import orchestrator.db
from orchestrator.daemons.lost_jobs import requeue
from orchestrator.db import effects, events, jobs, leases, repositories, tasks
from orchestrator.db.database import Tx
from orchestrator.db.postgres import UNKNOWN, PostgresDatabase
from orchestrator.db.postgres_connection import conninfo_of, server_of
from orchestrator.db.postgres_text import text_of, translated
from orchestrator.db.statements import exceptions
from orchestrator.domain.effect import EffectName
from orchestrator.domain.errors import ConfigError, ConstraintRefused, DatabaseError, InvariantError, LostRace
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId, TaskId, TransitionId
from orchestrator.domain.job import JobKind, JobStatus
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from tests.clock import FakeClock
from tests.fixtures_db import REPO, Store, add_sample
from tests.postgres_server import PostgresServer
from tests.postgres_wire import Wire
from tests.waiting import wait_until


@pytest.fixture
def database_kind() -> str:
    return "postgres"


WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)
END_ALL = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


@pytest.fixture
def task(store: Store) -> Task:
    return store.new_task(stage=Stage.DEVELOPMENT)


@pytest.fixture
def opened(store: Store) -> Iterator[Callable[..., PostgresDatabase]]:
    """Opens the store's database once more, as another process would."""
    found: list[PostgresDatabase] = []

    def another(url: str | None = None, **how: object) -> PostgresDatabase:
        assert store.url is not None
        found.append(PostgresDatabase(url or store.url, clock=store.clock, **how))  # type: ignore[arg-type]
        return found[-1]

    yield another
    for each in found:
        each.close()


def waits_for_a_lock(store: Store) -> bool:
    return bool(store.rows(WAITING)[0][0])


def lease_of(task: Task) -> Lease:
    return Lease(task.id, Actor.MONITOR, BootId("me"), task.epoch, task.stage)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_block_that_raises_has_left_nothing(store: Store, task: Task) -> None:
    with pytest.raises(KeyError), store.database.write() as tx:
        events.append(tx, EventType.NOTE, "operator", task=task)
        raise KeyError
    with store.database.read() as tx:
        assert events.of_task(tx, task.id) == []


def test_a_statement_that_failed_fails_the_block(store: Store, task: Task) -> None:
    """Even where the block goes on: the server would answer COMMIT with a rollback and no error."""
    with pytest.raises(DatabaseError, match="instead of committing"), store.database.write() as tx:
        events.append(tx, EventType.NOTE, "operator", task=task)
        with suppress(ConstraintRefused):
            tasks.update_task_stage(tx, task.id, Stage.DONE)
    with store.database.read() as tx:
        assert events.of_task(tx, task.id) == []


def test_after_a_failed_statement_none_is_run(store: Store, task: Task) -> None:
    with pytest.raises(DatabaseError, match=r"had ended before events\.append"), store.database.write() as tx:
        with pytest.raises(ConstraintRefused, match="merge_pr is not applied"):
            tasks.update_task_stage(tx, task.id, Stage.DONE)
        events.append(tx, EventType.NOTE, "operator", task=task)


def test_a_block_inside_a_block_is_our_mistake(store: Store) -> None:
    with store.database.write(), pytest.raises(InvariantError), store.database.write():
        pass
    with store.database.write():
        pass


def test_a_snapshot_stays_and_does_not_write(store: Store, task: Task) -> None:
    with store.database.read() as tx:
        before = tasks.get(tx, task.id)
        store.move(task.id, Stage.REVIEW)
        assert tasks.get(tx, task.id) == before
        assert leases.lock_epoch(tx, task.id) == before.epoch  # and locks nothing
        with pytest.raises(DatabaseError, match="read-only transaction"):
            tasks.forgive(tx, task.id)


# --- locks ------------------------------------------------------------------------------------------------------------


def test_the_epoch_row_is_locked_until_the_commit(store: Store, task: Task) -> None:
    """Under READ COMMITTED, without the lock, both would find the epoch they know (law 2)."""
    with ThreadPoolExecutor(1) as pool:
        with store.database.write() as tx:
            leases.check(tx, lease_of(task))

            def other() -> None:
                with store.database.write() as second:
                    leases.check(second, lease_of(task))

            late = pool.submit(other)
            wait_until(lambda: waits_for_a_lock(store))
            assert tasks.update_task_stage_cas(tx, task.id, task.stage, Stage.REVIEW, epoch=task.epoch)
        with pytest.raises(LostRace, match=f"is at epoch {task.epoch + 1}"):
            late.result(20)


@pytest.mark.parametrize("started_first", [True, False])
def test_an_agent_is_started_or_its_job_is_given_back(
    store: Store, task: Task, opened: Callable[..., PostgresDatabase], started_first: bool
) -> None:
    """Never both: it would be paid for twice."""
    with store.database.write() as tx:
        jobs.enqueue(tx, task, jobs.NewJob(JobKind.DEVELOPER))
        job = jobs.claim_next_job(tx, BootId("me"))
    assert job is not None

    def start(tx: Tx) -> bool:
        wanted = jobs.still_claimed(tx, job)
        if wanted:
            jobs.add_run(tx, job, agent="command", model=None, run_dir="/run")
        return wanted

    def give_back(tx: Tx) -> bool:
        return requeue(tx, job, "its owner died", Actor.REAPER, judged=None) is not None

    first, second = (start, give_back) if started_first else (give_back, start)

    def afterwards() -> bool:
        with opened().write() as tx:
            return second(tx)

    with ThreadPoolExecutor(1) as pool:
        with store.database.write() as tx:
            assert first(tx)
            late = pool.submit(afterwards)
            wait_until(lambda: late.done() or waits_for_a_lock(store))
            assert not late.done()
        assert not late.result(20)
    with store.database.read() as tx:
        assert (jobs.open_run_of_job(tx, job.id) is not None) is started_first
        assert jobs.get(tx, job.id).status is (JobStatus.RUNNING if started_first else JobStatus.QUEUED)


def test_a_stage_write_waits_for_whoever_stores_an_intent(store: Store, task: Task) -> None:
    """The guard asks about effects that another transaction is just storing: past the product's code, too."""
    with ThreadPoolExecutor(1) as pool:
        with store.database.write() as tx:
            effects.intend(tx, lease_of(task), EffectName.PUSH, "k", 1, token="t", judged={})
            late = pool.submit(store.raw, "UPDATE tasks SET stage = 'review'")
            wait_until(lambda: waits_for_a_lock(store))
        with pytest.raises(psycopg.IntegrityError, match="an effect is unsettled"):
            late.result(20)


def test_two_that_draw_a_generation_side_by_side_draw_two(store: Store, task: Task) -> None:
    second = store.new_task(stage=Stage.DEVELOPMENT)
    store.drop_guard("start_has_its_place", "effects")

    def start(of: Task, meanwhile: Callable[[], object]) -> tuple[int, int] | None:
        with store.database.write() as tx:
            drawn = effects.draw_generation(tx, "production", "sha")
            if drawn is not None:
                judged = {"environment": "production", "sha": "sha", "generation": drawn[0]}
                effects.intend(tx, lease_of(of), EffectName.DEPLOY_INIT, "k", 1, token="t", judged=judged)
            meanwhile()
            return drawn

    with ThreadPoolExecutor(1) as pool:
        late = []

        def meanwhile() -> None:
            late.append(pool.submit(start, second, lambda: None))
            wait_until(lambda: waits_for_a_lock(store))

        assert start(task, meanwhile) == (1, 1)
        assert late[0].result(20) is None  # a start is unsettled now


def test_who_hangs_inside_a_transaction_loses_it(
    store: Store, task: Task, opened: Callable[..., PostgresDatabase]
) -> None:
    """Its locks go to whoever waits; when it wakes up, it has changed nothing (law 6)."""
    hung = opened(idle_s=0.2)
    with pytest.raises(DatabaseError), hung.write() as tx:
        leases.check(tx, lease_of(task))
        moved = store.move(task.id, Stage.REVIEW)  # waits for the row
        assert moved.epoch == task.epoch + 1
        tasks.update_task_stage(tx, task.id, Stage.TESTING)
    assert store.task(task.id) == moved


def test_two_that_lock_each_other_out_are_told_to_try_again(store: Store, task: Task) -> None:
    second = store.new_task(stage=Stage.DEVELOPMENT)
    met = threading.Barrier(2)

    def lock(first: TaskId, then: TaskId) -> str:
        try:
            with store.database.write() as tx:
                leases.lock_epoch(tx, first)
                met.wait(60)
                leases.lock_epoch(tx, then)
        except DatabaseError as error:
            return error.hint
        return "got both"

    with ThreadPoolExecutor(2) as pool:
        said = sorted(pool.map(lock, [task.id, second.id], [second.id, task.id]))
    assert said == ["Nothing of this step was stored; it will be tried again.", "got both"]


# --- connections that end ---------------------------------------------------------------------------------------------


def test_connections_that_the_server_has_closed_are_replaced(store: Store, task: Task) -> None:
    with store.database.read() as one, store.database.read() as two:
        assert tasks.get(one, task.id) == tasks.get(two, task.id)
    store.rows(END_ALL)
    with store.database.write() as tx:
        events.append(tx, EventType.NOTE, "operator", task=task)
    assert store.task(task.id) == task


def test_a_connection_that_ends_inside_a_block_undoes_it(store: Store, task: Task) -> None:
    with pytest.raises(DatabaseError) as lost, store.database.write() as tx:
        events.append(tx, EventType.NOTE, "operator", task=task)
        store.rows(END_ALL)
        events.append(tx, EventType.NOTE, "operator", task=task)
    assert "tried again" in lost.value.hint
    with store.database.read() as tx:
        assert events.of_task(tx, task.id) == []


@pytest.mark.parametrize("lands", [True, False], ids=["it_lands", "it_never_lands"])
def test_a_lost_answer_to_commit_says_that_nobody_knows(
    store: Store, task: Task, opened: Callable[..., PostgresDatabase], lands: bool
) -> None:
    """Whether it was stored is decided by the transition's id, under the row's lock: a COMMIT on its way is waited
    for (law 2)."""
    assert store.url is not None
    this = TransitionId("this-one")

    def happened() -> bool:
        with store.database.write() as tx:
            leases.lock_epoch(tx, task.id)
            return events.transition_happened(tx, this)

    with Wire(store.url) as wire, ThreadPoolExecutor(1) as pool:
        database = opened(wire.url, idle_s=0 if lands else 0.5)
        with pytest.raises(DatabaseError) as lost, database.write() as tx:
            leases.check(tx, lease_of(task))
            events.append(tx, EventType.NOTE, "operator", task=task, transition_id=this)
            wire.hold_commit()
        assert lost.value.hint == UNKNOWN
        asked = pool.submit(happened)
        wait_until(lambda: waits_for_a_lock(store))
        if lands:
            wire.let_go()
        assert asked.result(20) is lands


def test_where_nobody_answers(postgres_server: PostgresServer, tmp_path: object) -> None:
    with pytest.raises(DatabaseError) as refused:
        PostgresDatabase(f"postgresql://somebody:very-secret@/orch?host={tmp_path}")
    assert f"PostgreSQL orch at {tmp_path}" in str(refused.value)
    assert "very-secret" not in str(refused.value)


# --- what is asked of a server ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("synchronous_commit = off", "does not wait for the disk"),
        ("default_transaction_read_only = on", None),
        ("default_transaction_isolation = 'serializable'", None),
    ],
    ids=["asynchronous", "read_only", "serializable"],
)
def test_what_a_server_is_set_to(
    postgres_server: PostgresServer, postgres_url: str, setting: str, said: str | None
) -> None:
    """Commits that are not kept are refused; what a transaction says of itself needs no setting."""
    url = postgres_server.new_database(postgres_server.migrated)
    name = url.partition("@/")[2].partition("?")[0]
    postgres_server.sql(f"ALTER DATABASE {name} SET {setting}")
    if said is None:
        with closing(PostgresDatabase(url)) as database:
            add_sample(database)
            with database.read() as tx:
                assert repositories.get(tx, REPO).prefix == "SMP"
    else:
        with pytest.raises(DatabaseError, match=said):
            PostgresDatabase(url)
    postgres_server.drop(url)


def test_an_encoding_that_cannot_hold_everything_is_refused(postgres_server: PostgresServer) -> None:
    postgres_server.sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    with pytest.raises(DatabaseError, match="stores LATIN1"):
        PostgresDatabase(postgres_server.url("latin"))
    postgres_server.sql("DROP DATABASE latin")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@db.example:5433/orch", "PostgreSQL orch at db.example:5433"),
        ("postgresql://u@/orch?host=/run/pg&password=p", "PostgreSQL orch at /run/pg"),
        ("postgresql:///", "PostgreSQL at local socket"),
    ],
    ids=["tcp", "socket", "nothing"],
)
def test_what_may_be_shown_of_a_url(url: str, shown: str) -> None:
    assert server_of(url) == shown


def test_what_is_no_url_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        conninfo_of("postgresql://u:very-secret@h/db?nonsense=1")
    assert "very-secret" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_url_may_say_otherwise_than_we_do() -> None:
    assert "connect_timeout=10" in conninfo_of("postgresql://h/db")
    assert "connect_timeout=3" in conninfo_of("postgresql://h/db?connect_timeout=3")


# --- a pooler in between ----------------------------------------------------------------------------------------------


def test_a_pooler_that_changes_connections_is_found_and_lived_with(
    store: Store, task: Task, opened: Callable[..., PostgresDatabase]
) -> None:
    """Each transaction on another connection of the server: nothing of ours rests on the one before."""
    assert store.url is not None
    with Wire(store.url, pooling=True) as wire:
        database = opened(wire.url, max_connections=2)
        for number in range(12):  # more often than a statement is run before it would be prepared
            with database.write() as tx:
                leases.lock_epoch(tx, task.id)
                events.append(tx, EventType.NOTE, "operator", task=task, data={"n": number})
            with database.read() as tx:
                assert len(events.of_task(tx, task.id)) == number + 1
        assert len(wire.used) > 1


# --- values -----------------------------------------------------------------------------------------------------------


def test_a_nul_is_stored_as_a_lost_character(store: Store) -> None:
    assert store.new_task("Say\0hello").title == "Say\ufffdhello"


@pytest.mark.parametrize(
    ("document", "found"),
    [
        ('{"a": {"b": 7}}', "7"),
        ('{"a": {"b": "x"}}', "x"),
        ('{"a": {"b": "x\\u0000y"}}', "x\ufffdy"),
        ('{"a": {"b": "x\\\\u0000y"}}', "x\\u0000y"),
        ('{"a": {"b": "x"}, "c": "\\ud800"}', "x"),
        ('{"a": 1}', None),
        ("{}", None),
    ],
    ids=["number", "text", "nul", "no_nul", "half_a_pair", "no_object", "empty"],
)
def test_what_stands_in_a_json_text(store: Store, document: str, found: str | None) -> None:
    asked = "SELECT json_valid(:d) AS valid, json_extract(:d, '$.a.b') AS found"
    row = store.rows(asked, {"d": document})[0]
    assert (row["valid"], row["found"]) == (True, found)


def test_the_servers_clock_where_none_is_handed_in(store: Store) -> None:
    """Between hosts it is the database's clock that judges, at the statement (law 12)."""
    assert store.url is not None
    with closing(PostgresDatabase(store.url)) as database, database.write() as tx:
        first, second = leases.now(tx), leases.now(tx)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", first)
    assert first < second
    assert store.rows("SELECT utc_now() AS now")[0]["now"] == "2026-01-05T10:00:00.000000Z"
    assert FakeClock().utc().year == 2026


# --- statements -------------------------------------------------------------------------------------------------------


def test_parameters_are_translated_and_nothing_else() -> None:
    sql = "SELECT :a, ':b IS c', x::text, '%' -- :c 100 %\nWHERE y = -:d_1 AND z LIKE 'a%''%:e'"
    assert translated(sql) == (
        "SELECT %(a)s, ':b IS c', x::text, '%%' \nWHERE y = -%(d_1)s AND z LIKE 'a%%''%%:e'"
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("a IS :b", "a IS NOT DISTINCT FROM %(b)s"),
        ("a IS NOT excluded.a", "a IS DISTINCT FROM excluded.a"),
        ("a IS (SELECT 1)", "a IS NOT DISTINCT FROM (SELECT 1)"),
        ("a IS NULL AND b IS NOT NULL", "a IS NULL AND b IS NOT NULL"),
        ("a IS NOT DISTINCT FROM b", "a IS NOT DISTINCT FROM b"),
        ("THIS = x", "THIS = x"),
    ],
    ids=["equal", "unequal", "select", "null", "distinct", "word"],
)
def test_what_may_be_null_is_compared(written: str, said: str) -> None:
    assert translated(written) == said


def test_a_text_is_no_bytes() -> None:
    sql = "CAST(lease.owner AS BLOB) IS CAST(:owner AS BLOB) AND CAST(:n AS BIGINT) IS NULL"
    assert translated(sql) == "lease.owner IS NOT DISTINCT FROM %(owner)s AND CAST(%(n)s AS BIGINT) IS NULL"


def test_a_snapshot_is_not_told_to_lock() -> None:
    assert text_of("leases.epoch").endswith(b" FOR UPDATE")
    assert b"FOR UPDATE" not in text_of("leases.epoch", snapshot=True)
    assert b"SKIP LOCKED" in text_of("jobs.claim_next_job")


def test_an_exception_replaces_a_statement_and_says_why() -> None:
    folder = Path(orchestrator.db.__file__).parent / "sql"
    families = [path.stem for path in (folder / "postgres").glob("*.sql")]
    assert families
    for family in families:
        shared = (folder / f"{family}.sql").read_text(encoding="utf-8")
        for name, text in exceptions(family, "postgres").items():
            assert f"-- name: {name}\n" in shared
            assert text.startswith("-- "), f"{family}.{name} does not say why it differs"
            assert text_of(f"{family}.{name}") == translated(text).encode()


SECONDS = {"delay_s", "older_s", "ttl_s"}


def test_every_statement_is_understood(postgres_url: str) -> None:
    """Whoever writes one for SQLite hears of it here, also where no other test runs it."""
    folder = Path(orchestrator.db.__file__).parent / "sql"
    names = [
        f"{path.stem}.{name}"
        for path in sorted(folder.glob("*.sql"))
        for name in re.findall(r"^-- name: (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert len(names) > 150
    wrong = {}
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        for name in names:
            parameters: list[str] = []

            def numbered(found: re.Match[str], parameters: list[str] = parameters) -> str:
                if found[1] not in parameters:
                    parameters.append(found[1])
                return f"${parameters.index(found[1]) + 1}"

            text = re.sub(r"%\((\w+)\)s", numbered, text_of(name).decode()).replace("%%", "%")
            types = ", ".join("float8" if each in SECONDS else "unknown" for each in parameters)
            try:
                connection.execute(f"PREPARE this {f'({types})' if types else ''} AS {text}".encode())
                connection.execute("DEALLOCATE this")
            except psycopg.Error as error:
                wrong[name] = str(error)
    assert wrong == {}
