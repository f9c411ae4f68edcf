"""The `orch` command: called inside this process, or started as a process of its own, always in a home of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_db import shell
from tests.fixtures_desk import Desk, desk_at
from tests.fixtures_git import Hand
from tests.waiting import wait_until

CONFIG = """\
default_branch = "main"
[ci]
command = ["sh", "-c", "true"]
[agent]
kind = "scripted"
timeout = "5m"
stall = "3m"
"""


@dataclass(frozen=True)
class Said:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Its one JSON document."""
        return json.loads(self.out)


@dataclass
class Orch:
    """Calls commands; each test has its own state folder."""

    home: Path
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """An environment without anything of whoever runs the tests, but for the path."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "ORCH_HOME": str(self.home),
            "ORCH_PORT": "0",
            "ORCH_RUN_ORPHAN_TTL_S": "60",
            **self.settings,
        }

    @property
    def database_url(self) -> str:
        """Where the ledger is."""
        return self.settings.get("ORCH_DATABASE_URL", f"sqlite://{self.home}/orchestrator.db")

    def shell(self, text: str, *values: object) -> list[Any]:
        """Past the product, as a person with a database's shell would."""
        return shell(self.database_url, text, *values)

    def desk(self) -> Desk:
        """The desk over its ledger, beside the command."""
        return desk_at(self.home, self.settings.get("ORCH_DATABASE_URL"))

    def __call__(self, *args: str, cwd: Path | None = None, stdin: str = "") -> Said:
        """Run a command to its end in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *args],
            cwd=cwd or self.folder,
            env=self.environ,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Said(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def started(self, *args: str, cwd: Path | None = None) -> Iterator["subprocess.Popen[str]"]:
        """A command that runs on; killed at the end if it still does."""
        with subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *args],
            cwd=cwd or self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    @contextmanager
    def serving(self) -> Iterator["subprocess.Popen[str]"]:
        """`orch serve`, answering."""
        with self.started("serve") as process:
            wait_until(lambda: process.poll() is not None or self._announced(process.pid))
            assert process.poll() is None, process.communicate()
            yield process

    def _announced(self, pid: int) -> bool:
        return self.api_file.exists() and self.api()["process"]["pid"] == pid

    @property
    def api_file(self) -> Path:
        return self.home / "api.json"

    def api(self) -> dict[str, Any]:
        """Where the owner answers, and its token."""
        told: dict[str, Any] = json.loads(self.api_file.read_text(encoding="utf-8"))
        return told

    def supervisors(self) -> list[int]:
        """Processes that belong to runs of this state folder."""
        found = []
        for place in Path("/proc").iterdir():
            if place.name.isdigit():
                try:
                    command = (place / "cmdline").read_bytes()
                except OSError:
                    continue
                if os.fsencode(self.home / "runs") in command:
                    found.append(int(place.name))
        return found

    def checkout(self, name: str = "shop", files: dict[str, str] | None = None) -> Hand:
        """A person's repository, ready for tickets unless ``files`` say otherwise."""
        place = self.folder / name
        place.mkdir()
        hand = Hand(place)
        hand.git("init", "-q", "-b", "main")
        hand.git("config", "user.name", "Person")
        hand.git("config", "user.email", "person@example.org")
        hand.commit("First", {".orchestrator.toml": CONFIG} if files is None else files)
        return hand


def ended(process: "subprocess.Popen[str]", signum: int = signal.SIGTERM) -> Said:
    """Signal a process and wait for its end."""
    process.send_signal(signum)
    out, err = process.communicate(timeout=300)
    return Said(process.returncode, out, err)


@pytest.fixture
def orch(request: pytest.FixtureRequest, tmp_path: Path, database_kind: str) -> Orch:
    folder = tmp_path / "person"
    folder.mkdir()
    made = Orch(tmp_path / "state", folder)
    if database_kind == "postgres":
        made.settings["ORCH_DATABASE_URL"] = request.getfixturevalue("empty_postgres_url")
    return made


@pytest.fixture
def here(orch: Orch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Here":
    """Calls commands inside this process, which is faster by far."""
    for name in [name for name in os.environ if name.startswith("ORCH_")]:
        monkeypatch.delenv(name)
    for name, value in orch.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(orch.folder)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    return Here(orch, monkeypatch, capsys)


@dataclass
class Here:
    """Commands inside this process."""

    orch: Orch
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *args: str, cwd: Path | None = None) -> Said:
        from orchestrator.cli.entry import run

        if cwd is not None:
            self.monkeypatch.chdir(cwd)
        self.capsys.readouterr()
        code = run(args)
        out, err = self.capsys.readouterr()
        return Said(code, out, err)
