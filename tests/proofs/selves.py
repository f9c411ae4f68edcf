"""Worlds that deliver themselves: production is the service of the scenario, its version is what the next life is.

The deploy command installs a version and asks for a restart; the life that runs ends at once, and the sweep, which
keeps the service up as a service manager does, starts the next one from what is installed then. That knows the commit
which it was built from, answers to the probe as that, and reports. A version that is *dead* does not come up: no life
is lived until the deploy's runner has undone it. Where the runner was killed, a person brings the old version back by
hand.
"""

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.runtime.clock import SystemClock
from tests.proofs.lives import Life
from tests.proofs.world import REPO, World

TROUBLES: Mapping[str, float] = {"two": 2, "broken": 3, "again": 3, "cancel": 1}
HOW = ("dead", "dead", "fails")  # how a version is broken that delivers ourselves
REPORT_S = 8.0  # by the machine's clock, for a runner keeps that
PATIENCE_S = 60.0


@dataclass
class Selves:
    """Of one scenario."""

    world: World
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)

    def begin(self) -> None:
        """From now on production is the service itself."""
        (self.world.root / "ourselves").touch()

    def life(self, life: Life, *, free: bool) -> Life:
        """The version that is installed, once one is that comes up. Unless it is ``free``, a runner may be killed."""
        self._until_it_comes_up(free=free)
        if not free and self.chance.random() < 0.05:
            self._kill_runners()
        (self.world.root / "restart").unlink(missing_ok=True)  # before it is read: who asks later is heard
        version = self.world.installed("production") or ""
        self.world.runs("production", version)
        more = {
            "ORCH_SELF_REPO": REPO,
            "ORCH_SELF_DEPLOY_TIMEOUT_S": str(REPORT_S),
            "ORCH_BUILD_SHA": version,
        }
        return replace(life, settings={**life.settings, **more}, restarts=True)

    def _until_it_comes_up(self, *, free: bool) -> None:
        """Wait for the runner's undo; without one, do it by hand."""
        clock, never = SystemClock(), threading.Event()
        began, kill_after = clock.boottime(), None
        if not free and self.chance.random() < 0.3:
            kill_after = self.chance.random() * REPORT_S * 1.2
        waited = False
        while self._dead(version := self.world.installed("production") or ""):
            waited, passed = True, clock.boottime() - began
            if kill_after is not None and passed > kill_after:
                self._kill_runners()
                kill_after = None
            if passed > PATIENCE_S or not list(self.world.programs()):
                if self.world.installed("production") == version:
                    self.counts["brought back by hand"] += 1
                    self.world.install("production", self._before(version))
                return
            never.wait(0.05)
        self.counts["undone by the runner"] += waited

    def _kill_runners(self) -> None:
        for pid in self.world.programs():
            try:
                if b"orchestrator.deploy.runner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    self.counts["runners killed"] += 1
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended by itself

    def _dead(self, version: str) -> bool:
        words = (self.world.root / "sick").read_text().split()
        if not words or words[2] != "dead":
            return False
        names = self.world.forge.git("ls-tree", "--name-only", version, "src/", check=False).split()
        return f"src/{words[0]}" in names and f"src/{words[1]}" not in names

    def _before(self, version: str) -> str:
        brought = [
            words[7] for words in self.world.lines("deploys.log") if words[:2] == ["start", "production"]
        ]
        return [sha for sha in brought if sha != version][-1]
