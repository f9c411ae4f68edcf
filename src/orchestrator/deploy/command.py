"""Deploys by the repository's command, run detached; the records on disk are the facts, memory holds nothing.

Any number of actors may call any method at any time, for the same start: the exclusive creation of ``STARTED`` decides
who runs it, and that of ``exit.json`` how it ended. A record that cannot be read, or that belongs to another intent,
raises: the effect is in doubt. Nothing is concluded from silence; an end that cannot be proved is no end.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import orchestrator
from orchestrator.deploy.deployer import StartGivenUp
from orchestrator.deploy.records import (
    EXIT_FILE,
    LOG_FILE,
    LOST_FILE,
    REPORTED_FILE,
    START_FILE,
    STARTED_FILE,
    TERMINATE_FILE,
    Claimant,
    DeployStart,
    Ending,
    Exit,
    RecordLost,
    Reported,
    Started,
    exit_record,
    marker,
    read_start,
    set_aside_unreadable,
    start_folder,
    started,
    to_bytes,
)
from orchestrator.deploy.runner import base_environment
from orchestrator.domain.errors import AuthorityUnreachable, OutsideError, RequestRefused
from orchestrator.runtime.clock import Clock, stamp
from orchestrator.runtime.files import PRIVATE_FILE, make_private_folder, publish_exclusive, read_tail
from orchestrator.runtime.process import Liveness, Machine, Processes, ProcessIdentity, ended_by_reboot
from orchestrator.runtime.sessions import Sessions, SessionState, end_session

RUNNER_MODULE = "orchestrator.deploy.runner"
PACKAGE_ROOT = Path(orchestrator.__file__).parent.parent  # the runner must be the code that we are
CLAIM_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class DeployBounds:
    """How long things may take, in seconds."""

    claim_s: float = 20.0  # from spawn to STARTED: an interpreter's start on a busy machine
    grace_s: float = 5.0  # between SIGTERM and SIGKILL
    kill_s: float = 10.0  # from SIGKILL to the proof
    poll_s: float = 0.2  # between two looks at the exit record


class CommandDeployer:
    """Starts a detached runner per start, in folders below ``root``; their records are the facts.

    ``environ`` is our own environment, of which runner and command see an allow-list. ``one_machine``: no other machine
    deploys from ``root``. ``there`` raises where ``root`` does not lie in the state folder that it should: what another
    one lacks says nothing.
    """

    def __init__(
        self,
        root: Path,
        *,
        processes: Processes,
        sessions: Sessions,
        clock: Clock,
        environ: Mapping[str, str],
        bounds: DeployBounds | None = None,
        one_machine: bool = False,
        there: Callable[[], None] = lambda: None,
    ) -> None:
        self._there = there
        self._root = root
        self._processes = processes
        self._sessions = sessions
        self._clock = clock
        self._environ = environ
        self._bounds = bounds or DeployBounds()
        self._one_machine = one_machine

    def start(self, start: DeployStart) -> None:
        """Write ``start.json``, spawn the runner, wait for a claim; see the Protocol."""
        folder = self._folder(start)
        self._there()
        with _reachable(folder):
            make_private_folder(folder)
            if not publish_exclusive(folder / START_FILE, to_bytes(start)):
                _same_start(folder, start)
            claim = self.started(start)
            if claim is not None and claim.by is Claimant.REVOKER:
                raise StartGivenUp(f"The {start.kind} of {start.sha} to {start.environment} was given up.")
            if claim is not None:
                return
            (folder / LOG_FILE).touch(mode=PRIVATE_FILE)
            runner = self._processes.spawn(
                (sys.executable, "-P", "-m", RUNNER_MODULE, str(folder)),
                cwd=folder,
                env={**base_environment(self._environ), "PYTHONPATH": str(PACKAGE_ROOT)},
                output=folder / LOG_FILE,
            )
        self._await_claim(start, runner)

    def started(self, start: DeployStart) -> Started | None:
        """Read the claim; see the Protocol."""
        claim = started(self._folder(start))
        if claim is None:
            self._there()
        if claim is not None and (claim.installation, claim.sequence, claim.token) != start.identity:
            raise _foreign(self._folder(start), claim.installation, claim.sequence)
        return claim

    def revoke(self, start: DeployStart, *, said: bool = False) -> Started:
        """Create ``STARTED`` as revoker, or find who was first; see the Protocol."""
        folder = self._folder(start)
        claim = Started(
            by=Claimant.REVOKER,
            installation=start.installation,
            sequence=start.sequence,
            token=start.token,
            at=stamp(self._clock.utc()),
            host=self._processes.machine().host,
        )
        if not said and (folder / LOST_FILE).exists():
            started(folder)  # raises: no claim that could be made now tells of what was
        self._there()
        with _reachable(folder):
            make_private_folder(folder)
            if publish_exclusive(folder / STARTED_FILE, to_bytes(claim)):
                return claim
        holder = self.started(start)
        if holder is None:
            raise AuthorityUnreachable(
                f"The claim in {folder} vanished while it was read.", hint="Try again."
            )
        return holder

    def lose(self, start: DeployStart, *, ended: str = "") -> bool:
        """Publish ``LOST``; see the Protocol."""
        folder = self._folder(start)
        try:
            if started(folder) is not None:
                return False
        except RecordLost:
            pass  # once more
        at = stamp(self._clock.utc())
        with _reachable(folder):
            make_private_folder(folder)
            publish_exclusive(folder / LOST_FILE, f"{at}\n".encode())
            if ended:
                publish_exclusive(folder / EXIT_FILE, to_bytes(Exit(Ending.DECLARED, None, at, ended)))
        return True

    def exit(self, start: DeployStart) -> Exit | None:
        """Read the exit record, or make one for a runner that died; see the Protocol."""
        folder = self._folder(start)
        record = exit_record(folder)
        if record is not None and record.ending is Ending.DECLARED:
            return record  # its claim may be unreadable for ever
        claim = self._child_claim(start)
        if record is not None or claim is None or not self._dead(claim.runner, claim):
            return record
        record = exit_record(folder)  # again: it may have been the last thing the runner did
        if record is None and self._end(start, claim):
            return self._record_kill(start, "Its runner died; the command was ended.")
        return record

    def terminate(self, start: DeployStart) -> Exit | None:
        """Mark, end the session, prove it, record it; see the Protocol."""
        folder = self._folder(start)
        claim = self._child_claim(start)
        if claim is None:
            return None
        record = exit_record(folder)
        if record is not None:
            return record
        with _reachable(folder):
            # First the mark: a command that answers SIGTERM with exit code 0 has been ended all the same.
            publish_exclusive(folder / TERMINATE_FILE, f"{stamp(self._clock.utc())}\n".encode())
        if not self._end(start, claim):
            raise AuthorityUnreachable(
                f"The {start.kind} of {start.sha} to {start.environment} could not be ended; it may still be at work.",
                hint="End its processes by hand; nothing else is started there before.",
            )
        return self._record_kill(start, "It was ended on request.")

    def declare_ended(self, start: DeployStart, said: str) -> Exit:
        """Look once more, claim what nobody has, and record the word; see the Protocol."""
        folder = self._folder(start)
        self._there()
        try:
            claim: Started | None = started(folder) or self.revoke(start)
        except AuthorityUnreachable:
            claim = None  # what cannot be read names no process that could be seen
        if claim is not None and (claim.installation, claim.sequence, claim.token) != start.identity:
            raise RequestRefused(str(_foreign(folder, claim.installation, claim.sequence)))
        try:
            record = self.exit(start)
        except AuthorityUnreachable:
            record = None
        if record is not None:
            return record
        if claim is not None and self._at_work(start, claim):
            raise RequestRefused(
                f"The {start.kind} of {start.sha} to {start.environment} is at work; nothing was changed.",
                hint="Its own time-out ends it. Or end its processes by hand.",
            )
        with _reachable(folder):
            make_private_folder(folder)
            set_aside_unreadable(folder)
            publish_exclusive(
                folder / EXIT_FILE, to_bytes(Exit(Ending.DECLARED, None, stamp(self._clock.utc()), said))
            )
        self._no_undo_of_its_runner(start)
        record = exit_record(folder)
        if record is None:
            raise AuthorityUnreachable(
                f"The record in {folder} vanished while it was read.", hint="Try again."
            )
        return record

    def report(self, start: DeployStart) -> bool:
        """Publish ``REPORTED``; see the Protocol."""
        folder = self._folder(start)
        said = Reported(
            sha=start.sha,
            installation=start.installation,
            sequence=start.sequence,
            token=start.token,
            at=stamp(self._clock.utc()),
            process=self._processes.own(),
        )
        with _reachable(folder):
            return publish_exclusive(folder / REPORTED_FILE, to_bytes(said))

    def prepared(self, start: DeployStart) -> bool:
        """Read ``start.json``; see the Protocol."""
        kept = read_start(self._folder(start))
        if kept is not None:
            _same_start(self._folder(start), start)
        return kept is not None

    def wait(self, start: DeployStart, stop: threading.Event, deadline_s: float) -> Exit | None:
        """Look again and again; see the Protocol."""
        deadline = self._clock.boottime() + deadline_s
        while True:
            record = self.exit(start)
            if record is not None:
                return record
            claim = self.started(start)
            left = deadline - self._clock.boottime()
            if left <= 0 or (claim is not None and claim.by is Claimant.REVOKER):
                return None
            if self._clock.wait(stop, min(self._bounds.poll_s, left)):
                return None

    def log_tail(self, start: DeployStart, limit: int = 4000) -> str:
        """The end of the log, for people; see the Protocol."""
        return read_tail(self._folder(start) / LOG_FILE, limit).decode("utf-8", errors="replace")

    def _folder(self, start: DeployStart) -> Path:
        return start_folder(self._root, start.environment, start.sha, start.generation)

    def _no_undo_of_its_runner(self, start: DeployStart) -> None:
        """Nothing of a deploy of ourselves is at work: where the record of the undo prepared with it is lost, no runner
        is left to perform that."""
        if start.undo is None:
            return
        try:
            self.started(start.undo.start)
        except RecordLost:
            self.revoke(start.undo.start, said=True)

    def _child_claim(self, start: DeployStart) -> Started | None:
        claim = self.started(start)
        return claim if claim is not None and claim.by is Claimant.CHILD else None

    def _await_claim(self, start: DeployStart, runner: ProcessIdentity) -> None:
        """Wait until somebody has claimed, so that the probe that follows the act finds a fact."""
        deadline = self._clock.boottime() + self._bounds.claim_s
        never = threading.Event()
        while self.started(start) is None:
            dead = self._processes.liveness(runner) is Liveness.DEAD
            if dead and self.started(start) is None:
                raise OutsideError(
                    f"The runner of {start.kind} {start.sha} to {start.environment} died before it claimed the start.",
                    hint=f"It will be tried again. The end of its log: {self.log_tail(start, 500)!r}",
                )
            if self._clock.boottime() >= deadline:
                raise OutsideError(
                    f"The start of {start.sha} in {start.environment} was not claimed in {self._bounds.claim_s:g} s.",
                    hint="The machine may be overloaded; it will be looked at again.",
                )
            self._clock.wait(never, CLAIM_POLL_S)

    def _end(self, start: DeployStart, claim: Started) -> bool:
        """End the command's session; True iff its end is proved."""
        if claim.command is None or self._before_reboot(claim.command, claim):
            return True
        return end_session(
            self._sessions,
            self._clock,
            claim.command,
            marker(start),
            grace_s=self._bounds.grace_s,
            kill_s=self._bounds.kill_s,
        )

    def _record_kill(self, start: DeployStart, detail: str) -> Exit:
        """Publish the proven kill, or return the record that was first."""
        folder = self._folder(start)
        record = Exit(Ending.KILLED, None, stamp(self._clock.utc()), detail)
        with _reachable(folder):
            if publish_exclusive(folder / EXIT_FILE, to_bytes(record)):
                return record
        return exit_record(folder) or record

    def _dead(self, identity: ProcessIdentity | None, claim: Started) -> bool:
        if identity is None:
            return True
        if self._before_reboot(identity, claim):
            return True
        return self._processes.liveness(identity) is Liveness.DEAD

    def _at_work(self, start: DeployStart, claim: Started) -> bool:
        """Whether we see the runner, or anything of the command's session, alive."""
        if claim.runner is not None and self._processes.liveness(claim.runner) is Liveness.ALIVE:
            return True
        command = claim.command
        return command is not None and self._sessions.state(command, marker(start)) is SessionState.RUNNING

    def _before_reboot(self, identity: ProcessIdentity, claim: Started) -> bool:
        there = Machine(claim.host, claim.machine)
        return ended_by_reboot(self._processes, identity, there, one_machine=self._one_machine)


def _same_start(folder: Path, start: DeployStart) -> None:
    """The start on disk must be this intent's; what was written first is what runs."""
    kept = read_start(folder)
    if kept is None or kept.identity != start.identity:
        raise _foreign(folder, kept.installation if kept else "?", kept.sequence if kept else 0)


def _foreign(folder: Path, installation: str, sequence: int) -> AuthorityUnreachable:
    return AuthorityUnreachable(
        f"The start in {folder} belongs to another intent ({installation}, {sequence}); nothing was done.",
        hint="The database or the state folder was restored or copied: see 'orch restore'.",
    )


@contextlib.contextmanager
def _reachable(folder: Path) -> Iterator[None]:
    """A disk that is full, read-only or gone is an authority that cannot be reached."""
    try:
        yield
    except OSError as error:
        raise AuthorityUnreachable(
            f"The deploy records in {folder} cannot be written: {error.strerror or error}.",
            hint="Check that the disk is there, has room and may be written.",
        ) from error
