"""A fleet that is cut off, killed, paused, and loses its database, while tickets flow: ``python -m tests.netns.fleet``.

Several `orch serve` on hosts of their own share one PostgreSQL and one state folder; `orch worker` on further hosts
have a state folder each, and share the database and the forge alone. A seed says what is done to which
of them, one thing after the other, each when the last has had its effect or has been waited for. Now and then a newer
version is released: the copy of this one with a step of the schema more. It is installed on one host; the others see
that they have been overtaken, end, and are started as the newer one. In the end all is mended, and every ticket has to
be delivered, once.
"""

import argparse
import json
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

import orchestrator
from orchestrator.db.migrate import newest
from orchestrator.db.postgres import MAX_CONNECTIONS
from orchestrator.domain.effect import EffectName
from orchestrator.domain.errors import OrchestratorError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.stage_engine.resolutions import Resolution
from tests.fixtures_pipeline import Pipeline, pipeline_at
from tests.netns.hosts import DATABASE, Host, switched
from tests.postgres_server import PostgresServer, crash_postgres, running_postgres
from tests.waiting import wait_until

IMPATIENCE_S = 4.0  # for an effect of a disturbance before the next one comes
STUCK_S = 300.0  # without another ticket that is done
GONE = 0.3  # of the workers that are killed: they do not come back
SETTINGS = {
    "ORCH_HEARTBEAT_INTERVAL_S": "0.5",
    "ORCH_PROCESS_TTL_S": "4",
    "ORCH_QUEUE_INTERVAL_S": "0.5",
    "ORCH_REAPER_INTERVAL_S": "0.5",
    "ORCH_RECONCILER_INTERVAL_S": "1",
    "ORCH_OUTBOX_INTERVAL_S": "1",
    "ORCH_INBOX_INTERVAL_S": "1",
    "ORCH_RUN_ORPHAN_TTL_S": "30",
    "ORCH_PORT": "0",
    "ORCH_LOG_LEVEL": "warning",
}
# A cut is noticed within seconds.
WIRE = "connect_timeout=2&tcp_user_timeout=2000&keepalives_idle=1&keepalives_interval=1&keepalives_count=2"


@dataclass(frozen=True)
class Version:
    """What is installed: the package at hand, or a later one made of it, with so many steps of the schema more."""

    later: int = 0
    place: Path | None = None

    def next(self, folder: Path) -> "Version":
        """The version after this one, made in a folder."""
        version = Version(self.later + 1, folder / f"version-{self.later + 1}")
        assert version.place is not None
        package = version.place / "orchestrator"
        shutil.copytree(
            Path(orchestrator.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
        )
        for step in range(1, version.later + 1):
            for dialect in ("sqlite", "postgres"):
                place = (
                    package / "db" / "migrations" / dialect / f"{newest() + step:04}_of_a_later_version.sql"
                )
                place.write_text(f"CREATE TABLE later_{step} (one INTEGER PRIMARY KEY);\n", encoding="utf-8")
        return version


@dataclass
class Fleet:
    """The whole of it."""

    hosts: Sequence[Host]
    desk: Pipeline  # a person's, beside the database
    server: PostgresServer
    environ: dict[str, str]
    rng: random.Random
    done: Counter[str] = field(default_factory=Counter)
    release: Version = field(default_factory=Version)
    _never: threading.Event = field(default_factory=threading.Event)

    # --- what is done to it -----------------------------------------------------------------------------------

    def disturb(self) -> None:
        """One thing, by chance."""
        host = self.rng.choice(self.hosts)
        what = self.rng.choice(("cut", "cut", "kill", "kill", "pause", "database", "roll"))
        if host.cut:
            host.plug(cut=False)
            what = "heal"
        elif host.paused:
            host.pause(stop=False)
            what = "resume"
        elif host.service is None or host.service.poll() is not None:
            self._start(host)
            what = "start"
        elif what == "roll":
            self.release = self.release.next(host.folder)
            host.stop()
            self._start(host)
        elif what == "cut":
            host.plug(cut=True)
        elif what == "kill" and host.home is not None and self.rng.random() < GONE:
            host.replace()
            what = "replace"
        elif what == "kill":
            host.kill()
        elif what == "pause":
            host.pause(stop=True)
        else:
            crash_postgres(self.server)
        self.done[what] += 1

    def some_progress(self) -> None:
        """Wait for the next event, for a while."""
        before, end = self._events(), time.monotonic() + self.rng.uniform(0.2, IMPATIENCE_S)
        while self._events() == before and time.monotonic() < end:
            self._never.wait(0.05)

    def mend(self) -> None:
        """Everything is whole and runs."""
        for host in self.hosts:
            if host.cut:
                host.plug(cut=False)
            if host.paused:
                host.pause(stop=False)
            if host.service is None or host.service.poll() is not None:
                self._start(host)

    def _start(self, host: Host) -> None:
        """Whoever keeps it up starts what is newest: an older one would be refused."""
        host.version = self.release.place
        host.start(self.environ)

    def rest(self, items: Sequence[str]) -> None:
        """Wait until every ticket is done, with a person who helps where one is called."""

        def undone() -> int:
            self.mend()  # a service that could not start, because the database was away
            tasks = [self.desk.task(item) for item in items]
            for task in tasks:
                if task.hold is Hold.ESCALATED:
                    self._help(task)
            return sum(task.stage is not Stage.DONE for task in tasks)

        def fewer(before: int) -> bool:
            return undone() < before

        try:
            while before := undone():
                wait_until(partial(fewer, before), deadline=STUCK_S, every=0.5)
            wait_until(lambda: not (undone() or self.rows(OPEN)), deadline=STUCK_S, every=0.5)
        except AssertionError as error:
            told = "\n".join(f"{self.desk.why(item)}\n{self.desk.told(item)}" for item in items)
            raise AssertionError(f"{error}\n{told}") from None

    def _help(self, task: Task) -> None:
        """A host that has gone has taken its agents and deploy commands with it. A person knows that, and says so."""
        operations = self.desk.app.operations
        for effect in self.desk.story(task.work_item).effects:
            if effect.name in (EffectName.DEPLOY_INIT, EffectName.DEPLOY_UNDO):
                with suppress(OrchestratorError):  # its end is known already
                    operations.resolve_effect(effect.effect_id, Resolution.ENDED, person="Ann", reason="gone")
                    self.done["ended"] += 1
        with suppress(OrchestratorError):  # it moves just now, or is not frozen: the next look sees
            operations.unfreeze(self.desk.repo, person="Ann", reason="looked at")
            self.done["unfreeze"] += 1
        with suppress(OrchestratorError):
            operations.retry(task.work_item, person="Ann", reason="go on")
            self.done["retry"] += 1

    # --- what can be seen -------------------------------------------------------------------------------------

    def rows(self, query: str) -> list[Any]:
        """What the database holds."""
        assert self.desk.database_url is not None
        with psycopg.connect(self.desk.database_url) as connection:
            return connection.execute(query.encode()).fetchall()

    def _events(self) -> int:
        return int(self.rows("SELECT coalesce(max(id), 0) FROM events")[0][0])

    def findings(self, items: Sequence[str]) -> list[str]:
        """What should not be so, from git and from the ledger."""
        found = []
        merged = Counter(
            self.desk.forge.git("log", "--first-parent", "--merges", "--format=%s", "main").splitlines()
        )
        for item in items:
            count = sum(n for subject, n in merged.items() if subject.startswith(f"Merge {item}:"))
            if count != 1:
                found.append(f"{item} is {count} times on main")
        applied = self.rows("SELECT task_id FROM effects WHERE name = 'merge_pr' AND state = 'applied'")
        if len(applied) != len(items):
            found.append(f"{len(applied)} of {len(items)} merges are in the ledger")
        running, main = self.desk.running("production"), self.desk.forge.git("rev-parse", "main")
        if running != main:
            found.append(f"production runs {running}, and main is {main}")
        files = self.desk.forge.git("ls-tree", "--name-only", "main", "src/").split()
        lacks = [item for item in items if f"src/change_{item.replace('-', '_')}.py" not in files]
        found += [f"main lacks what was done for {item}" for item in lacks]
        starts = Counter((start["env"], start["token"]) for start in self.desk.journal("deploys"))
        found += [f"started {count} times: {start}" for start, count in starts.items() if count > 1]
        schema = self.rows("SELECT number FROM schema_version")[0][0]
        if schema != newest() + self.release.later:
            found.append(f"the schema is {schema}, {self.release.later} versions after {newest()}")
        for host in self.hosts:
            log = host.folder / f"{host.name}.log"
            if log.exists() and "Traceback" in log.read_text(encoding="utf-8"):
                found.append(f"a traceback in {log}")
        return found


OPEN = """
SELECT 'effect' FROM effects WHERE state NOT IN ('applied', 'revoked')
UNION ALL SELECT 'job' FROM jobs WHERE status IN ('queued', 'running')
UNION ALL SELECT 'slot' FROM slots WHERE task_id IS NOT NULL
"""


def play(
    folder: Path, *, seed: int, tickets: int, hosts: int, disturbances: int, workers: int = 0
) -> dict[str, object]:
    """One run; what was done in it, and what was found."""
    began = time.monotonic()
    with ExitStack() as stack:
        most = (
            MAX_CONNECTIONS * 2 * (hosts + workers + 1)
        )  # of each, and what is left of one that has just gone
        server = stack.enter_context(running_postgres(max_connections=str(most)))
        url = server.new_database()
        name = url.removeprefix("postgresql://orch@/").partition("?")[0]
        desk = pipeline_at(folder, settings=dict(SETTINGS), staging=True, production=True, patience="20s")
        desk.database_url = url
        desk.agent()
        stack.callback(desk.stop)
        desk.open().register_repository(desk.person.folder, name=desk.repo, prefix="S")
        found = stack.enter_context(switched(hosts + workers, folder, server.folder / ".s.PGSQL.5432"))
        for number, host in enumerate(found[hosts:]):
            host.home = folder / f"worker-{number}"
        environ = {
            **desk.environ,
            **desk.variables(),
            "ORCH_DATABASE_URL": f"postgresql://orch@{DATABASE}/{name}?{WIRE}",
        }
        fleet = Fleet(found, desk, server, environ, random.Random(seed))
        fleet.mend()
        items = [desk.add(f"Ticket {number}") for number in range(tickets)]
        for _ in range(disturbances):
            fleet.some_progress()
            fleet.disturb()
        fleet.rest(items)
        return {
            "seed": seed,
            "tickets": tickets,
            "hosts": hosts,
            "workers": workers,
            "at_workers": fleet.rows("SELECT count(*) FROM agent_runs WHERE home <> ''")[0][0],
            "lost": fleet.rows("SELECT count(*) FROM agent_runs WHERE outcome = 'lost'")[0][0],
            "done": dict(fleet.done),
            "agents": len(desk.agents()),
            "findings": fleet.findings(items),
            "seconds": round(time.monotonic() - began, 1),
        }


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(prog="python -m tests.netns.fleet", description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="SEED")
    parser.add_argument("--count", type=int, default=1, metavar="N", help="runs, each with the next seed")
    parser.add_argument("--tickets", type=int, default=50)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--disturbances", type=int, default=100)
    parser.add_argument("--out", type=Path, help="report that is added to; seeds in it are passed over")
    asked = parser.parse_args()
    known = (
        {json.loads(line)["seed"] for line in asked.out.read_text().splitlines()}
        if asked.out and asked.out.exists()
        else set()
    )
    for seed in range(asked.first, asked.first + asked.count):
        if seed in known:
            continue
        with TemporaryDirectory(prefix="orch-fleet-") as folder:
            told = play(
                Path(folder),
                seed=seed,
                tickets=asked.tickets,
                hosts=asked.hosts,
                workers=asked.workers,
                disturbances=asked.disturbances,
            )
        line = json.dumps(told)
        print(line, flush=True)
        if asked.out:
            with asked.out.open("a", encoding="utf-8") as report:
                report.write(line + "\n")


if __name__ == "__main__":
    main()
