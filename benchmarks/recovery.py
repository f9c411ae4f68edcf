"""``./dev bench recovery``: from SIGKILL to converged. A state folder is left as a killed process would have left it
(:mod:`benchmarks.in_flight`), a new ``orch serve`` starts on it, and the ledger is watched until nothing is in flight
any more that was: every lease of the dead process is gone, every job of its is adopted or given back, every effect that
it had intended is settled. These are the machine's times, not ratios: let nothing else run.
"""

import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Protocol

import psycopg

from benchmarks.figures import keep
from benchmarks.in_flight import DEAD, Kind, Lives, leave, mixed
from benchmarks.servers import Servers, serving
from benchmarks.service import environ_in, orch, repository
from orchestrator.config import load_settings
from orchestrator.runtime.process import ProcessIdentity, machine_boot_id, pid_namespace, start_ticks
from orchestrator.wiring import open_app

MANY, SHORT_MANY = 10_000, 40
ROUNDS, MANY_ROUNDS = 7, 3
AIMS = {1: 0.3, MANY: 5.0}
PATIENCE_S = 600.0
LEFT = """
SELECT (SELECT count(*) FROM transition_lease WHERE owner_boot_id = '{dead}'),
       (SELECT count(*) FROM jobs WHERE status = 'running' AND claimed_by = '{dead}'),
       (SELECT count(*) FROM effects WHERE id <= {last} AND state IN ('intended', 'revoking', 'in_doubt'))
"""
Figures = dict[str, list[float]]


def main(
    folder: Path,
    *,
    database: str,
    short: bool,
    rounds: int | None,
    many: int | None,
    fresh: bool,
    where: Path | None,
) -> int:
    """Measure, print a table, write JSON. Rounds that were measured are kept, so that it can be broken off."""
    many = SHORT_MANY if short else many or MANY
    alone = [Kind.PUSH] if short else list(Kind)
    wanted = {str(kind): ([kind], 1 if short else rounds or ROUNDS) for kind in alone}
    wanted[f"{many:,} tasks"] = (mixed(many), 1 if short else min(rounds or MANY_ROUNDS, MANY_ROUNDS))
    notes = folder / f"samples-recovery-{database}-{many}.json"
    found: Figures = {} if fresh or not notes.exists() else json.loads(notes.read_text(encoding="utf-8"))
    for name, (kinds, times) in wanted.items():
        taken = found.setdefault(name, [])
        if len(taken) >= times:
            continue
        print(f"{name}: {times - len(taken)} rounds …", flush=True)
        with ExitStack() as stack:
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
            server = stack.enter_context(serving(folder)) if database == "postgres" else None
            ledger = _File(scratch / "home") if server is None else _OfServer(server)
            state = _State(scratch, kinds, stack.enter_context(_sleeping()), ledger)
            while len(taken) < times:
                taken.append(state.converges_in())
                notes.write_text(json.dumps(found), encoding="utf-8")
    print(table(found))
    keep(where or folder / f"recovery-{database}.json", found)
    return 0


def table(found: Mapping[str, Sequence[float]]) -> str:
    """The seconds as a Markdown table, with what was aimed at."""
    lines = ["| in flight | aim, s | median, s | min–max | rounds |", "|---|---:|---:|---:|---:|"]
    for name, taken in found.items():
        aim = AIMS[1] if name in set(Kind) else AIMS[MANY]
        spread = f"{min(taken):.2f}–{max(taken):.2f}"
        lines.append(f"| {name} | {aim:g} | {statistics.median(taken):.2f} | {spread} | {len(taken)} |")
    return "\n".join(lines)


class _Ledger(Protocol):
    """Where the ledger lies."""

    def variables(self) -> Mapping[str, str]:
        """How the service is told of it."""
        ...

    def keep(self) -> None:
        """It is as every life is to find it."""
        ...

    def restore(self) -> None:
        """Be so again; nobody is at it."""
        ...

    def opened(self) -> AbstractContextManager[Callable[[str], Sequence[int]]]:
        """To be asked questions, beside whoever works on it."""
        ...


class _File:
    """In the state folder, with which it is kept and restored."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def variables(self) -> Mapping[str, str]:
        return {}

    def keep(self) -> None: ...

    def restore(self) -> None: ...

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], Sequence[int]]]:
        file = f"file:{self._home}/orchestrator.db?mode=ro"
        with closing(sqlite3.connect(file, uri=True, timeout=30, isolation_level=None)) as connection:
            yield lambda query: tuple(connection.execute(query).fetchone())


class _OfServer:
    """A database of the benchmark's own server."""

    NAME, KEPT = "recovery", "recovery_kept"

    def __init__(self, servers: Servers) -> None:
        self._server = servers.server
        for name in (self.NAME, self.KEPT):
            self._server.drop(self._server.url(name))
        self._server.sql(f"CREATE DATABASE {self.NAME} TEMPLATE template0")

    def variables(self) -> Mapping[str, str]:
        return {"ORCH_DATABASE_URL": self._server.url(self.NAME)}

    def keep(self) -> None:
        with closing(psycopg.connect(self._server.url(self.NAME), autocommit=True)) as connection:
            connection.execute("VACUUM ANALYZE")
        self._server.sql(f"ALTER DATABASE {self.NAME} RENAME TO {self.KEPT}")

    def restore(self) -> None:
        self._server.drop(self._server.url(self.NAME))
        self._server.sql(f"CREATE DATABASE {self.NAME} TEMPLATE {self.KEPT} STRATEGY FILE_COPY")

    @contextmanager
    def opened(self) -> Iterator[Callable[[str], Sequence[int]]]:
        with closing(psycopg.connect(self._server.url(self.NAME), autocommit=True)) as connection:
            yield lambda query: tuple(connection.execute(query.encode()).fetchone() or ())


class _State:
    """A state folder in which things are in flight; it is the same at each start."""

    def __init__(
        self, scratch: Path, kinds: Sequence[Kind], supervisor: ProcessIdentity, ledger: _Ledger
    ) -> None:
        self._scratch = scratch
        self._home, self._kept = scratch / "home", scratch / "kept"
        self._ledger = ledger
        self._environ = environ_in(scratch) | ledger.variables()
        with _sleeping() as killed:
            lives = Lives(killed, supervisor)
        repository(scratch / "sample", self._environ)
        orch(self._environ, "init", "--name", "sample", "--prefix", "SMP", cwd=scratch / "sample")
        with open_app(load_settings(self._environ), self._environ, role="bench") as app:
            app.guard.start()
            leave(app, lives, kinds)
        with ledger.opened() as ask:
            [last] = ask("SELECT coalesce(max(id), 0) FROM effects")
        self._left = LEFT.format(dead=DEAD, last=last)
        ledger.keep()
        self._home.rename(self._kept)

    def converges_in(self) -> float:
        """One life: the seconds from its first line to where nothing is left."""
        while self._home.exists():  # programs of the life before may still write there
            shutil.rmtree(self._home, ignore_errors=True)
        subprocess.run(["cp", "-a", self._kept, self._home], check=True)
        self._ledger.restore()
        os.sync()
        with self._ledger.opened() as ask:
            if sum(ask(self._left)) == 0:
                raise SystemExit("Nothing is in flight: there is nothing to be measured.")
        with (self._scratch / "serve.log").open("wb") as log:
            life = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.life"],
                env=self._environ | {k: v for k, v in os.environ.items() if k == "BENCH_PROFILE"},
                cwd=Path(__file__).parents[1],
                stdout=subprocess.PIPE,
                stderr=log,
            )
        try:
            assert life.stdout is not None
            began = float(life.stdout.readline())
            return self._converged(life, began) - began
        finally:
            life.kill()
            life.wait()

    def _converged(self, life: "subprocess.Popen[bytes]", began: float) -> float:
        with self._ledger.opened() as ask:
            while True:
                left = ask(self._left)
                now = time.clock_gettime(time.CLOCK_BOOTTIME)
                if sum(left) == 0:
                    return now
                if life.poll() is not None or now - began > PATIENCE_S:
                    said = (self._scratch / "serve.log").read_text(errors="replace")[-4000:]
                    raise SystemExit(
                        f"It did not converge; leases, jobs, effects left: {tuple(left)}\n{said}"
                    )
                time.sleep(0.001 if sum(left) < 10 else 0.02)


@contextmanager
def _sleeping() -> Iterator[ProcessIdentity]:
    """A process that lives for the length of the block."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(["sleep", "infinity"], stdin=quiet, stdout=quiet, stderr=quiet)
    try:
        ticks = start_ticks(process.pid) or 0
        yield ProcessIdentity(machine_boot_id(), pid_namespace(), process.pid, ticks)
    finally:
        process.kill()
        process.wait()
