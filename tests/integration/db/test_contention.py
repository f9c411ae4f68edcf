"""Contention: nobody ever hears "database is locked", and no claim is lost or made twice (cases 21 and 24)."""

import json
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.db import events, jobs, leases, mail, repositories, tasks
from orchestrator.db.jobs import NewJob
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId, JobId
from orchestrator.domain.job import JobKind, JobStatus
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Signal, Ticket
from orchestrator.runtime.process import SystemProcesses
from tests.fixtures_db import REPO, Store
from tests.waiting import PATIENCE_S

HOLDS_THE_FILE = """
import sqlite3, sys, threading
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
threading.Event().wait(float(sys.argv[2]))
connection.execute("COMMIT")
print("free", flush=True)
"""
CLAIMS_UNTIL_EMPTY = """
import json
import sys
from pathlib import Path
from orchestrator.db import jobs
from orchestrator.db.postgres import PostgresDatabase
from orchestrator.db.sqlite import SqliteDatabase
from orchestrator.domain.ids import BootId
from orchestrator.runtime.clock import SystemClock
here, clock = sys.argv[1], SystemClock()
database = PostgresDatabase(here) if ":" in here else SqliteDatabase(Path(here), clock=clock)
me = BootId(sys.argv[2])
limits = json.loads(sys.argv[3]) if sys.argv[3:] else None
print("ready", flush=True)
sys.stdin.readline()
while True:
    with database.write() as tx:
        job = jobs.claim_next_job(tx, me, limits=limits)
    if job is None:
        break
    print(job.id, job.attempts, flush=True)
"""
both = pytest.mark.parametrize("database_kind", ["sqlite", "postgres"], indirect=True)
THREADS = 50
OPERATIONS = {
    "sqlite": 200,
    "postgres": 30,
}  # a connection of its own for each costs more than waiting in one line


def queue_jobs(store: Store, count: int) -> list[JobId]:
    queued = []
    for _ in range(count):
        task = store.new_task(stage=Stage.ANALYSIS)
        with store.database.write() as tx:
            queued.append(jobs.enqueue(tx, task, NewJob(JobKind.ANALYST)))
    return queued


@pytest.mark.of_the_file
def test_a_stranger_that_holds_the_file_is_waited_for(store: Store) -> None:
    task = store.new_task()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_THE_FILE, str(store.path), "2"], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"

    def write(number: int) -> int:
        with store.database.write() as tx:
            events.append(tx, EventType.NOTE, "operator", task=task, data={"id": number})
        with store.database.read() as tx:
            return len(events.of_task(tx, task.id))

    with ThreadPoolExecutor(8) as pool:
        seen = list(pool.map(write, range(8)))
    assert holder.stdout.readline() == "free\n"
    holder.wait()
    holder.stdout.close()
    assert max(seen) == 8


@pytest.mark.of_the_file
def test_a_stranger_that_writes_all_the_time_is_lived_with(store: Store) -> None:
    """Read-then-write from two processes at once: what fails at once where a transaction begins as a reader."""
    program = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)\n"
        "print('ready', flush=True)\n"
        "for n in range(300):\n"
        "    c.execute('BEGIN IMMEDIATE')\n"
        "    c.execute(\"INSERT INTO lessons (source, kind, text, at) VALUES ('auto', 'k', 't', '')\")\n"
        "    c.execute('COMMIT')\n"
    )
    task = store.new_task()
    stranger = subprocess.Popen(
        [sys.executable, "-c", program, str(store.path)], stdout=subprocess.PIPE, text=True
    )
    assert stranger.stdout is not None
    assert stranger.stdout.readline() == "ready\n"
    for written in range(300):
        with store.database.write() as tx:
            assert len(events.of_task(tx, task.id, limit=10_000)) == written
            events.append(tx, EventType.NOTE, "operator", task=task)
    stranger.wait()
    stranger.stdout.close()
    assert stranger.returncode == 0
    assert store.rows("SELECT count(*) FROM lessons")[0][0] == 300


@both
def test_fifty_threads_of_mixed_work(store: Store, database_kind: str) -> None:
    """Claim and finish, stage writes, heartbeats, tickets, signals, reads: 50 threads, many operations each."""
    operations = OPERATIONS[database_kind]
    queue_jobs(store, 200)
    with store.database.write() as tx:
        leases.register_process(tx, BootId("me"), "here", SystemProcesses().own(), "test", "")
    claims: Counter[JobId] = Counter()
    counting = threading.Lock()
    moved = [store.new_task() for _ in range(THREADS)]

    def work(thread: int) -> int:
        me = BootId(f"thread-{thread}")
        for number in range(operations):
            kind = (thread + number) % 6
            if kind == 0:
                with store.database.write() as tx:
                    job = jobs.claim_next_job(tx, me)
                if job is not None:
                    with counting:
                        claims[job.id] += 1
                    with store.database.write() as tx:
                        assert jobs.finish(tx, job, me, JobStatus.DONE)
            elif kind == 1:
                here = store.task(moved[thread].id).stage
                store.move(moved[thread].id, Stage.REVIEW if here is Stage.DEVELOPMENT else Stage.DEVELOPMENT)
            elif kind == 2:
                with store.database.write() as tx:
                    assert leases.heartbeat(tx, BootId("me"))
            elif kind == 3:
                with store.database.write() as tx:
                    item = repositories.next_work_item(tx, REPO)
                    tasks.add(tx, REPO, item, Ticket("Same ticket", external_id=f"T-{number}"))
            elif kind == 4:
                signal = Signal("approved", Stage.ANALYSIS, 1, "s", "a person")
                with store.database.write() as tx:
                    mail.receive(tx, moved[0], signal, source="api", dedup_key=f"signal-{number}")
            else:
                with store.database.read() as tx:
                    assert len(tasks.list_open(tx)) > 0
        return operations

    with ThreadPoolExecutor(THREADS) as pool:
        assert sum(pool.map(work, range(THREADS))) == THREADS * operations
    assert len(claims) == 200
    assert set(claims.values()) == {1}
    tickets = store.rows(
        "SELECT external_id, count(*) AS n FROM tasks WHERE external_id LIKE 'T-%' GROUP BY 1"
    )
    assert {row["n"] for row in tickets} == {1}
    signals = store.rows("SELECT dedup_key, count(*) AS n FROM inbox GROUP BY 1")
    assert {row["n"] for row in signals} == {1}
    epochs = store.rows("SELECT task_id, epoch FROM transition_epoch")
    taken = dict(store.rows("SELECT task_id, sum(taken) FROM task_edges GROUP BY 1"))
    assert {row["task_id"]: row["epoch"] for row in epochs if row["epoch"]} == taken


@both
def test_eight_threads_claim_each_job_once(store: Store) -> None:
    queued = queue_jobs(store, 60)
    start = threading.Barrier(8)

    def claim(number: int) -> list[JobId]:
        mine: list[JobId] = []
        start.wait(PATIENCE_S)
        while True:
            with store.database.write() as tx:
                job = jobs.claim_next_job(tx, BootId(f"worker-{number}"))
            if job is None:
                return mine
            mine.append(job.id)

    with ThreadPoolExecutor(8) as pool:
        claimed = [job for mine in pool.map(claim, range(8)) for job in mine]
    assert sorted(claimed) == sorted(queued)
    assert {row[0] for row in store.rows("SELECT attempts FROM jobs")} == {1}


@both
def test_two_processes_claim_each_job_once(store: Store, tmp_path: Path) -> None:
    queued = queue_jobs(store, 60)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMS_UNTIL_EMPTY, store.url or str(store.path), f"process-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = [worker.communicate()[0].split("\n") for worker in workers]
    claimed = [line.split() for lines in said for line in lines if line]
    assert sorted(int(job) for job, _ in claimed) == sorted(queued)
    assert {attempts for _, attempts in claimed} == {"1"}


@both
def test_processes_that_claim_at_once_keep_a_cap_together(store: Store) -> None:
    """Each round all claim as fast as they can; what then runs, of all of them, is what the cap allows."""
    queue_jobs(store, 40)
    here = store.url or str(store.path)
    for _ in range(3):
        _claim_at_once(here, processes=4, limits={"agent/unknown": 3})
        running = store.rows("SELECT claimed_by FROM jobs WHERE status = 'running'")
        assert len(running) == 3
        store.raw("UPDATE jobs SET status = 'done', claimed_by = NULL, finished_at = utc_now() "
                  "WHERE status = 'running'")  # fmt: skip


def _claim_at_once(here: str, *, processes: int, limits: dict[str, int]) -> None:
    claimers = [
        subprocess.Popen(
            [sys.executable, "-c", CLAIMS_UNTIL_EMPTY, here, f"process-{number}", json.dumps(limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    for claimer in claimers:
        assert claimer.stdout is not None
        assert claimer.stdout.readline() == "ready\n"
    for claimer in claimers:
        assert claimer.stdin is not None
        claimer.stdin.write("go\n")
        claimer.stdin.flush()
    for claimer in claimers:
        claimer.communicate()
        assert claimer.returncode == 0


@both
def test_fifty_tickets_at_once_make_one_task(store: Store) -> None:
    """Check and insert are one statement; the loser writes nothing, not even half a row (case 24)."""
    start = threading.Barrier(25)

    def file(_: int) -> bool:
        start.wait(PATIENCE_S)
        with store.database.write() as tx:
            item = repositories.next_work_item(tx, REPO)
            return tasks.add(tx, REPO, item, Ticket("Say hello", external_id="PLANE-7")) is not None

    with ThreadPoolExecutor(25) as pool:
        assert sum(pool.map(file, range(50))) == 1
    assert store.rows("SELECT count(*) FROM tasks")[0][0] == 1
    assert store.rows("SELECT count(*) FROM transition_epoch")[0][0] == 1
    (task_id,) = store.rows("SELECT id FROM tasks")[0]
    store.move(task_id, Stage.CANCELLED)
    again = store.new_task(external_id="PLANE-7")
    assert again.id != task_id
    assert again.work_item != store.task(task_id).work_item
