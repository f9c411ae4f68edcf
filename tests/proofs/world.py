"""The world of one scenario: a folder with a real repository, a real forge, real programs, and one installation.

Everything that happens outside the product is written down outside it: git's reflog of main, what the deploy command
notes, the artefact store, the ticket and alert files. A template is made once and copied for each scenario, to the very
same place, for paths are stored.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.config.environment import load_settings
from orchestrator.config.settings import Settings
from orchestrator.runtime.clock import SystemClock
from tests.deliveries import USER
from tests.fixtures_git import Hand, person_at
from tests.proofs.ledgers import FILES, Ledgers

HERE = Path(__file__).parent
AGENT = HERE.parent / "integration" / "pipeline" / "programs" / "agent.py"
REPO = "sample"
SPEED = 10.0  # how much faster than the machine's the clock of a life runs: its pauses are that much shorter
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)  # where fast calendars and the machine's agree

CONFIG = """default_branch = "main"
[ci]
command = ["sh", "{root}/checks.sh"]
timeout = "60s"
[coverage]
report = "lcov.info"
format = "lcov"
[image]
command = ["sh", "{root}/build.sh"]
artifact = "dist"
[agent]
kind = "command"
command = ["{python}", "-I", "-S", "{root}/agent.py"]
timeout = "60s"
stall = "60s"
[budget]
max_attempts = 20
max_rounds = 20
max_candidates = 20
"""
ENVIRONMENT = """[{name}]
name = "{name}"
deploy = ["sh", "{root}/deploy.sh"]
undo = ["sh", "{root}/deploy.sh"]
timeout = "10s"
healthy_times = 2
interval = 0.05
stable_for = 0.1
[{name}.probe]
command = ["sh", "{root}/probe.sh", "{name}"]
"""
ROLLS = (0, 0, 3, 6)  # answers for which the old version and the new one take turns
SETTINGS = {
    "ORCH_LOG_LEVEL": "warning",
    "ORCH_MAX_AGENTS": "2",
    "ORCH_MAX_CHECKS": "2",
    "ORCH_QUEUE_INTERVAL_S": "2",
    "ORCH_REAPER_INTERVAL_S": "2",
    "ORCH_RECONCILER_INTERVAL_S": "3",
    "ORCH_OUTBOX_INTERVAL_S": "1",
    "ORCH_HEARTBEAT_INTERVAL_S": "2",
    "ORCH_PROCESS_TTL_S": "20",
    "ORCH_REAPER_FINALIZE_GRACE_S": "5",
    "ORCH_INBOX_INTERVAL_S": "2",
    "ORCH_PLANE_USER": USER,
}


class FastClock(SystemClock):
    """The machine's clock, faster: what waits for it waits less. The same in every process that uses it."""

    def __init__(self, speed: float = SPEED) -> None:
        self._speed = speed

    def utc(self) -> datetime:
        return EPOCH + (super().utc() - EPOCH) * self._speed

    def boottime(self) -> float:
        return super().boottime() * self._speed

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        return event.wait(None if seconds is None else seconds / self._speed)


@dataclass(frozen=True)
class World:
    """One scenario's folder."""

    root: Path
    ledgers: Ledgers = FILES

    @property
    def home(self) -> Path:
        return self.root / "state"

    @property
    def database(self) -> Path:
        return self.ledgers.of(self.root)

    @property
    def backup(self) -> Path:
        """A copy of the database, where one was made."""
        return self.root / "backup.db"

    @property
    def lost(self) -> Sequence[Path]:
        """Databases in whose place the backup was put, as they were last."""
        return sorted(self.root.glob("lost-*.db"))

    @property
    def servers(self) -> Path:
        """What lies at servers of the world, in worlds that have any."""
        return self.root / "servers"

    @property
    def forge(self) -> Hand:
        there = list(self.servers.glob("*.git"))
        return Hand(there[0] if there else self.home / "forges" / f"{REPO}.git")

    @property
    def person(self) -> Hand:
        return Hand(self.root / "person")

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"], "HOME": str(self.root / "home"), "LANG": "C.UTF-8"}

    def settings(self, **more: str) -> Settings:
        """Short timers, by a clock that runs ten times as fast."""
        where = self.ledgers.variables(self.database)
        return load_settings({"ORCH_HOME": str(self.home), **where, **SETTINGS, **more})

    # --- making it --------------------------------------------------------------------------------------------

    def make(self) -> "World":
        """Programs, a person's repository, nothing of the product yet."""
        self._remove(self.root)
        self.root.mkdir(parents=True)
        self.ledgers.make(self.database, since=EPOCH.isoformat(), speed=SPEED)
        for program in (*(HERE / "programs").glob("*.sh"), AGENT):
            shutil.copy(program, self.root)
        self.instruct()
        self.sicken()
        config = CONFIG.format(root=self.root, python=sys.executable)
        config += "".join(ENVIRONMENT.format(root=self.root, name=n) for n in ("staging", "production"))
        files = {"src/app.py": "ONE = 1\n" * 10, ".orchestrator.toml": config}
        person_at(self.root / "person", files)
        return self

    def keep_as(self, template: Path) -> None:
        """Keep a copy that :meth:`come_from` brings back."""
        self._remove(template)
        template.parent.mkdir(parents=True, exist_ok=True)
        self._copy(self.root, template)

    def come_from(self, template: Path) -> None:
        """Be what was kept."""
        self.clear()
        self._copy(template, self.root)

    def clear(self) -> None:
        """End what still runs below the folder, then remove it."""
        for pid in self.programs():
            with _gone_is_fine():
                os.kill(pid, signal.SIGKILL)
        self._remove(self.root)

    def _copy(self, source: Path, target: Path) -> None:
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)
        self.ledgers.copied(target)

    def _remove(self, folder: Path) -> None:
        self.ledgers.forget(folder)
        shutil.rmtree(folder, ignore_errors=True)

    def programs(self) -> Iterator[int]:
        """Processes that this world has started: they name its folder, or work in it."""
        mark = f"{self.root}/".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                line = (entry / "cmdline").read_bytes()
                inside = str(entry / "cwd") and os.readlink(entry / "cwd").startswith(str(self.root))
            except OSError:
                continue
            if mark in line or inside:
                yield int(entry.name)

    def instruct(self, *entries: Mapping[str, object]) -> None:
        """What agents do beside doing as they are told."""
        (self.root / "agent.json").write_text(json.dumps([*entries, {"obey": True}]))

    # --- what the outside does --------------------------------------------------------------------------------

    def sicken(self, *lines: str) -> None:
        """Versions that do not come up in production, as the deploy command reads them; none where there is no line."""
        aside = self.root / "sick.new"
        aside.write_text("".join(f"{line}\n" for line in lines))
        aside.replace(self.root / "sick")

    def install(self, environment: str, sha: str) -> None:
        """A person brings a version to an environment by hand."""
        self._show("installed", environment, sha)

    def runs(self, environment: str, sha: str) -> None:
        """What answers there from now on."""
        self._show("running", environment, sha)

    def _show(self, what: str, environment: str, sha: str) -> None:
        aside = self.root / f"{what}-{environment}.new"
        aside.write_text(sha)
        aside.replace(self.root / f"{what}-{environment}")

    def roll(self, seed: int) -> None:
        """After each deploy the old version and the new one answer in turn for a while, in some worlds. It is drawn
        apart, so that every other choice of a seed stays what it was."""
        answers = random.Random(f"rolls of {seed}").choice(ROLLS)
        (self.root / "rolls").write_text(f"{answers}\n" if answers else "")

    def outsider_pushes(self, name: str, path: str | None = None, text: str | None = None) -> str | None:
        """Somebody commits a file to main past the orchestrator, with plain git; None where main moved meanwhile."""
        git, path = self.forge.git, path or f"{name}.txt"
        main = git("rev-parse", "main")
        blob = _with_input(self.forge, text or f"{name}\n", "hash-object", "-w", "--stdin")
        listing = [line for line in git("ls-tree", main).splitlines() if line.split("\t")[1] != path]
        tree = _with_input(self.forge, "\n".join([*listing, f"100644 blob {blob}\t{path}", ""]), "mktree")
        who = ("-c", "user.name=Outsider", "-c", "user.email=outsider@example.org")
        new = git(*who, "commit-tree", tree, "-p", main, "-m", f"{name} by somebody else")
        moved = git(
            "update-ref", "--create-reflog", "-m", "outsider", "refs/heads/main", new, main, check=False
        )
        return new if moved == "" and self.forge.git("rev-parse", "main") == new else None

    def stranger_pushes(self, branch: str, name: str) -> None:
        """Somebody commits to a task's branch at the forge."""
        git, ref = self.forge.git, f"refs/heads/{branch}"
        head = git("rev-parse", ref, check=False)
        who = ("-c", "user.name=Stranger", "-c", "user.email=stranger@example.org")
        new = git(*who, "commit-tree", f"{head}^{{tree}}", "-p", head, "-m", name, check=False)
        git("update-ref", ref, new, head, check=False)

    def wake_programs(self) -> int:
        """Let every program that was stopped go on; how many there were."""
        note = self.root / "stopped"
        pids = [int(line) for line in note.read_text().split()] if note.exists() else []
        note.unlink(missing_ok=True)
        for pid in pids:
            with _gone_is_fine():
                os.kill(pid, signal.SIGCONT)
        return len(pids)

    def programs_have_ended(self, seconds: float = 20.0) -> bool:
        """Wait until nothing that the world has started runs any more, calls that land late among it."""
        clock, never = SystemClock(), threading.Event()
        end = clock.boottime() + seconds
        while list(self.programs()):
            if clock.boottime() > end:
                return False
            never.wait(0.05)
        return True

    def locked(self) -> bool:
        """Whether somebody is in the middle of a write transaction, and stays there."""
        return self.ledgers.held(self.database)

    def settle(self) -> None:
        """Wait until nothing changes any more that was asked for by somebody who is dead or stands still."""
        self.ledgers.settle(self.database)

    # --- backup and restore, as docs/how-to/backup-and-restore.md has it ------------------------------------------

    def back_up(self) -> None:
        """Copy the database."""
        self.ledgers.copy(self.database, self.backup)

    def put_back(self) -> None:
        """Put the copy in its place, while nothing of the service runs; what is lost is kept for the oracle."""
        self.ledgers.copy(self.database, self.root / f"lost-{len(self.lost) + 1}.db")
        self.ledgers.copy(self.backup, self.database)

    # --- what can be seen -------------------------------------------------------------------------------------

    def rows(self, question: str, *values: object, of: Path | None = None) -> list[Any]:
        """What the database, or another one than it, says, read beside whoever owns it: by name and by position."""
        return self.ledgers.rows(of or self.database, question, values)

    def change(self, statement: str) -> None:
        """Write to the database past the product, as a person with its shell would."""
        self.ledgers.change(self.database, statement)

    def unguard(self, table: str, *triggers: str) -> None:
        """Take these guards of a table out, or all that it has."""
        self.ledgers.unguard(self.database, table, *triggers)

    def lines(self, name: str) -> Sequence[Sequence[str]]:
        """A program's journal."""
        path = self.root / name
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def installed(self, environment: str) -> str | None:
        """The version that is installed in an environment, healthy or not."""
        path = self.root / f"installed-{environment}"
        return path.read_text() or None if path.exists() else None


REST = """
SELECT (SELECT count(*) FROM effects WHERE state IN ('intended', 'revoking', 'in_doubt'))
     + (SELECT count(*) FROM jobs WHERE status IN ('queued', 'running'))
     + (SELECT count(*) FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL)
     + (SELECT count(*) FROM inbox LEFT JOIN deliveries ON inbox_id = inbox.id
          WHERE handled_at IS NULL AND coalesce(attempts, 0) = 0)
     + (SELECT count(*) FROM transition_lease)
     + (SELECT count(*) FROM tasks t WHERE stage NOT IN ('done', 'cancelled')
          AND hold IS NOT 'escalated' AND hold IS NOT 'blocked' AND hold IS NOT 'person'
          AND NOT (hold IS 'frozen' AND EXISTS (SELECT 1 FROM repo_freeze f WHERE f.repo = t.repo))
          AND NOT (hold IS 'slot' AND EXISTS (
              SELECT 1 FROM slots s LEFT JOIN tasks h ON h.id = s.task_id
              WHERE s.holder = 'freeze' OR (h.hold IN ('escalated', 'person') AND h.id <> t.id)))) AS open
"""


CLOSED = "SELECT 1 FROM installation_marks WHERE cause IS NOT NULL"
UNSENT = "SELECT 1 FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL"


def at_rest(world: World) -> bool:
    """Nothing will happen any more without a person: every task has ended or waits for one, or nothing may be done for
    any before a person has accepted a restore."""
    if closed(world):
        return not world.rows(UNSENT)
    return bool(world.rows(REST)[0]["open"] == 0) and not unread(world)


def unread(world: World) -> bool:
    """Whether a ticket was filed at a server, or cancelled there, and nobody here knows of it yet."""
    note = world.servers / "tickets.json"
    if not note.exists():
        return False
    stages = {row["external_id"]: row["stage"] for row in world.rows("SELECT external_id, stage FROM tasks")}
    return any(
        ticket not in stages or (cancelled and stages[ticket] not in ("done", "cancelled"))
        for ticket, cancelled in json.loads(note.read_text()).items()
    )


def closed(world: World) -> bool:
    """Whether the repository is closed."""
    return bool(world.rows(CLOSED))


def held(world: World) -> Mapping[str, Any]:
    """Where the tasks stand: work item → row."""
    return {row["work_item"]: row for row in world.rows("SELECT * FROM tasks ORDER BY id")}


def _with_input(hand: Hand, text: str, *args: str) -> str:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", *args], cwd=hand.folder, env=env, input=text, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return
