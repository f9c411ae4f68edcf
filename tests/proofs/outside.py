"""The wiring seam of the proofs: an installation whose every way out of the process passes the scheduler.

Programs (git, agents' supervisors, deploys' runners, checks, builds) go through ``Outside.processes`` and are called
``git.<command>``, ``spawn.<module>`` and ``run.<program>``; requests over HTTP are called ``http.<method>.<what>``; the
rest goes through the forge, the artefact store, the tracker and the notifier.
"""

import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.config.settings import Settings
from orchestrator.places import Place
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.entropy import Entropy, SystemEntropy
from orchestrator.runtime.http import HttpAnswer, SystemHttp
from orchestrator.runtime.process import Completed, ProcessIdentity, SystemProcesses
from orchestrator.wiring import App, Outside, open_app
from tests.proofs.scheduler import Hurt, Scheduler, around, watched

FORGE = ("push", "delete_branch", "open_pr", "close_pr", "prepare_merge", "merge", "revoke_merge")
STORE = ("publish",)
TRACKER = ("show_stage", "comment")
NOTIFIER = ("send",)
CALLS = (
    *(f"forge.{name}" for name in FORGE),
    *(f"store.{name}" for name in STORE),
    *(f"tracker.{name}" for name in TRACKER),
    *(f"notifier.{name}" for name in NOTIFIER),
)
OUTSIDE_POINTS = around(*CALLS)
LATER = 'sleep "$1"; shift; exec "$@"'  # what a call that lands late is wrapped in; its program keeps the pid
HOOK = """#!/bin/sh
[ "$1" = prepared ] || exit 0
cat >/dev/null
{note}kill -{signum} $PPID
{us}"""
CUT = b"fatal: the remote end hung up unexpectedly"


class ScheduledProcesses(SystemProcesses):
    """The machine's processes, each start of one an outside call.

    A program that is late starts after so many seconds in a session of its own, whatever becomes of us; a caller that
    waits for it sees a failure, one that does not sees an error.
    """

    def __init__(self, scheduler: Scheduler, stopped: Path | None = None) -> None:
        """``stopped`` receives a line with the pid of each program that was stopped."""
        super().__init__()
        self._scheduler = scheduler
        self._stopped = stopped

    def run(self, argv: Sequence[str], **how: Any) -> Completed:
        def later(seconds: float) -> None:
            _start_later(argv, seconds, how)

        try:
            return self._scheduler.call(
                _name(argv),
                lambda: super(ScheduledProcesses, self).run(argv, **how),
                later=later,
                cut=_Cut,
                hurt=lambda hurt: self._hurt_git(argv, hurt, how),
                argv=argv,
            )
        except _Cut:
            return Completed(tuple(argv), 128, b"", CUT)

    def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path
    ) -> ProcessIdentity:
        def start(words: Sequence[str]) -> ProcessIdentity:
            return super(ScheduledProcesses, self).spawn(words, cwd=cwd, env=env, output=output)

        return self._scheduler.call(
            _name(argv, spawned=True),
            lambda: start(argv),
            later=lambda seconds: void(start(["sh", "-c", LATER, "late", str(seconds), *argv])),
            cut=lambda: OSError("The connection broke while the program was being started."),
            hurt=lambda hurt: self._hurt_later(start(argv), hurt),
            argv=argv,
        )

    def _hurt_git(self, argv: Sequence[str], hurt: Hurt, how: Mapping[str, Any]) -> Completed:
        """Git calls a hook between prepare and commit; the hook hits its git."""
        with tempfile.TemporaryDirectory() as hooks:
            hook = Path(hooks) / "reference-transaction"
            us = f"kill -KILL {os.getpid()}\n" if hurt.and_us else ""
            note = (
                f"echo $PPID >>'{self._stopped}'\n" if hurt.signum == signal.SIGSTOP and self._stopped else ""
            )
            hook.write_text(HOOK.format(note=note, us=us, signum=int(hurt.signum)))
            hook.chmod(0o755)
            hooked = [word.replace("core.hooksPath=/dev/null", f"core.hooksPath={hooks}") for word in argv]
            return super().run(hooked, **how)

    def _hurt_later(self, started: ProcessIdentity, hurt: Hurt) -> ProcessIdentity:
        def hit() -> None:
            if hurt.signum == signal.SIGSTOP and self._stopped is not None:
                with self._stopped.open("a") as note:
                    note.write(f"{started.pid}\n")
            self.signal_group(started, hurt.signum)
            if hurt.and_us:
                os.kill(os.getpid(), signal.SIGKILL)

        threading.Timer(hurt.after, hit).start()
        return started


class _Cut(Exception):
    """The call was accepted; its answer never came."""


class ScheduledHttp(SystemHttp):
    """The real network, each request an outside call."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def request(self, method: str, url: str, **how: Any) -> HttpAnswer:
        [*_, what] = ["", *re.findall(r"/([a-z-]+)(?=[/?]|$)", url)]
        name = f"http.{method.lower()}.{what}"
        return self._scheduler.call(name, lambda: super(ScheduledHttp, self).request(method, url, **how))


class WatchedPlaces:
    """The places, whose forges pass the scheduler."""

    def __init__(self, places: Any, scheduler: Scheduler) -> None:
        self._places, self._scheduler = places, scheduler

    def of(self, repo: str) -> Place:
        place: Place = self._places.of(repo)
        return replace(place, forge=watched(place.forge, self._scheduler, "forge", *FORGE))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._places, name)


def watch(app: App, scheduler: Scheduler) -> App:
    """Send what an installation that was just opened does outside through the scheduler."""
    seen: Any = app
    seen.places = WatchedPlaces(app.places, scheduler)
    seen.store = watched(app.store, scheduler, "store", *STORE)
    seen.tracker = watched(app.tracker, scheduler, "tracker", *TRACKER)
    seen.notifier = watched(app.notifier, scheduler, "notifier", *NOTIFIER)
    return app


@contextmanager
def scheduled_app(
    settings: Settings,
    environ: Mapping[str, str],
    scheduler: Scheduler,
    *,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    processes: SystemProcesses | None = None,
    **more: Any,
) -> Iterator[App]:
    """An installation under the scheduler; nothing runs yet. ``more`` goes to :func:`open_app`."""
    outside = Outside(
        environ,
        clock=clock or SystemClock(),
        entropy=entropy or SystemEntropy(),
        processes=processes or ScheduledProcesses(scheduler),
        http=ScheduledHttp(scheduler),
        waypoints=scheduler,
    )
    with open_app(settings, environ, role="run", outside=outside, **more) as app:
        yield watch(app, scheduler)


def void(_: object) -> None:
    """Drop an answer."""


def _start_later(argv: Sequence[str], seconds: float, how: Mapping[str, Any]) -> None:
    with tempfile.TemporaryFile() as stdin:
        stdin.write(how.get("stdin") or b"")
        stdin.seek(0)
        started = subprocess.Popen(
            ["sh", "-c", LATER, "late", str(seconds), *argv],
            cwd=how.get("cwd"),
            env=dict(how["env"]) if how.get("env") is not None else None,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    started.returncode = 0  # nobody waits for it


def _name(argv: Sequence[str], *, spawned: bool = False) -> str:
    words = [os.path.basename(str(argv[0])), *map(str, argv[1:])]
    if words[0] == "git":
        return f"git.{_command(words[1:])}"
    if spawned and "-m" in words:
        return f"spawn.{words[words.index('-m') + 1].removeprefix('orchestrator.')}"
    return f"{'spawn' if spawned else 'run'}.{_program(words)}"


def _command(words: Sequence[str]) -> str:
    rest = iter(words)
    for word in rest:
        if word in ("-c", "-C"):
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return "?"


def _program(words: Sequence[str]) -> str:
    """The script of an interpreter, else the program."""
    script = next((word for word in words[1:] if not word.startswith("-")), None)
    interpreted = words[0].startswith("python") or words[0] in ("sh", "bash")
    return Path(script if interpreted and script else words[0]).stem
