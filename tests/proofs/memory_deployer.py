"""Environments, their starts, and the artefact store, in memory; they refuse what the real ones refuse.

A start is claimed once, by the child or by a revoker. The command takes effect after the claim: at once, or as a step
of its own when the wire says so, unless it has been ended before.
"""

import hashlib
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, cast

from orchestrator.deploy.deployer import StartGivenUp
from orchestrator.deploy.health import HealthWatch
from orchestrator.deploy.records import Claimant, DeployKind, DeployStart, Ending, Exit, RecordLost, Started
from orchestrator.domain.errors import AuthorityUnreachable, OutsideError, RequestRefused
from orchestrator.domain.ids import Digest, Sha
from orchestrator.runtime.http import SystemHttp
from orchestrator.runtime.process import Completed, Processes, ProcessIdentity
from tests.clock import FakeClock
from tests.proofs.wire import DirectWire, Wire

NEVER = "2026-01-05T10:00:00.000000Z"
HOUR_S = 3600.0
SOMEBODY = ProcessIdentity("memory", "memory", 1, 1)

Key = tuple[str, Sha, int]


@dataclass(frozen=True, slots=True)
class Record:
    """What one start has left behind."""

    start: DeployStart | None
    claim: Started | None = None
    exit: Exit | None = None
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """One line of an environment's own journal: a command took effect."""

    start: DeployStart
    before: Sha | None
    after: Sha | None


@dataclass
class Environments:
    """All environments, shared by everybody."""

    starts: dict[Key, Record] = field(default_factory=dict)
    runs: dict[str, Sha | None] = field(default_factory=dict)
    journal: list[Ran] = field(default_factory=list)
    refused: list[DeployStart] = field(default_factory=list)  # by a target that compares tokens
    honours_token: bool = False
    unreachable: bool = False


class Commands(Protocol):
    """How a started command gets to take effect."""

    def command(self, name: str, effect: Callable[[], None]) -> None:
        """Let it happen now or later."""
        ...


class AtOnce:
    """Every command has taken effect when its start returns."""

    def command(self, name: str, effect: Callable[[], None]) -> None:
        effect()


class Later:
    """No command has taken effect yet."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def command(self, name: str, effect: Callable[[], None]) -> None:
        self.waiting.append(effect)


class MemoryDeployer:
    """One actor's hand on the environments; see :class:`~orchestrator.deploy.deployer.Deployer`."""

    def __init__(
        self, state: Environments, wire: Wire | None = None, commands: Commands | None = None
    ) -> None:
        self.state = state
        self._wire = wire or DirectWire()
        self._commands = commands or AtOnce()

    def start(self, start: DeployStart) -> None:
        self._wire.act("deploy.start", lambda: self._start(start))

    def started(self, start: DeployStart) -> Started | None:
        return self._wire.ask("deploy.started", lambda: self._claim_of(start))

    def revoke(self, start: DeployStart, *, said: bool = False) -> Started:
        def call() -> Started:
            known = self._record(start)
            held = known.claim if said and known.lost else self._claim_of(start)
            if held is not None:
                return held
            claim = self._claim(start, Claimant.REVOKER)
            self.state.starts[key_of(start)] = replace(known, claim=claim)
            return claim

        return self._wire.act("deploy.revoke", call)

    def lose(self, start: DeployStart, *, ended: str = "") -> bool:
        known = self._record(start)
        if known.claim is not None:
            return False
        end = Exit(Ending.DECLARED, None, NEVER, ended) if ended else known.exit
        self.state.starts[key_of(start)] = replace(known, lost=True, exit=end)
        return True

    def exit(self, start: DeployStart) -> Exit | None:
        return self._wire.ask("deploy.exit", lambda: self._exit_of(start))

    def terminate(self, start: DeployStart) -> Exit | None:
        def call() -> Exit | None:
            held = self._claim_of(start)
            if held is None or held.by is not Claimant.CHILD:
                return None
            known = self._record(start)
            if known.exit is None:
                known = replace(known, exit=Exit(Ending.KILLED, None, NEVER, "It was ended on request."))
                self.state.starts[key_of(start)] = known
            return known.exit

        return self._wire.act("deploy.terminate", call)

    def declare_ended(self, start: DeployStart, said: str) -> Exit:
        def call() -> Exit:
            known = self._record(start)
            held = known.claim if known.lost else self._claim_of(start)
            if known.exit is not None:
                return known.exit
            if held is not None and held.by is Claimant.CHILD:
                raise RequestRefused("It is at work; nothing was changed.")
            claim = held if known.lost else held or self._claim(start, Claimant.REVOKER)
            ended = Exit(Ending.DECLARED, None, NEVER, said)
            self.state.starts[key_of(start)] = replace(known, claim=claim, exit=ended)
            return ended

        return self._wire.act("deploy.declare_ended", call)

    def report(self, start: DeployStart) -> bool:
        """No start here is of ourselves."""
        return False

    def prepared(self, start: DeployStart) -> bool:
        return self._wire.ask("deploy.prepared", lambda: self._record(start).start is not None)

    def wait(self, start: DeployStart, stop: threading.Event, deadline_s: float) -> Exit | None:
        """Time is not waited for: what has not ended by now has reached its deadline."""
        return self._wire.ask("deploy.wait", lambda: self._exit_of(start))

    def log_tail(self, start: DeployStart, limit: int = 4000) -> str:
        return ""

    # -- what the authority itself does ------------------------------------------------------------------------

    def _start(self, start: DeployStart) -> None:
        known = self._record(start)
        if known.start is not None and not _same(known.start, start):
            raise _foreign(start)
        held = self._claim_of(start)
        if held is not None and held.by is Claimant.REVOKER:
            raise StartGivenUp("it was given up")
        if held is not None:
            return
        claim = self._claim(start, Claimant.CHILD)
        self.state.starts[key_of(start)] = replace(known, start=known.start or start, claim=claim)
        self._commands.command(f"deploy.command {start.environment}", lambda: self._take_effect(start))

    def _take_effect(self, start: DeployStart) -> None:
        if self._record(start).exit is not None:
            return  # ended before it had done anything
        if self.state.honours_token and int(start.token) < self._highest_token(start.environment):
            self.state.refused.append(start)
            ended = Exit(Ending.EXITED, 1, NEVER, "The token is old.")
            self.state.starts[key_of(start)] = replace(self._record(start), exit=ended)
            return
        before = self.state.runs.get(start.environment)
        restored = start.env.get("ORCH_PREVIOUS_SHA")
        after = start.sha if start.kind is DeployKind.DEPLOY else Sha(restored) if restored else None
        self.state.runs[start.environment] = after
        self.state.journal.append(Ran(start, before, after))
        done = Exit(Ending.EXITED, 0, NEVER)
        self.state.starts[key_of(start)] = replace(self._record(start), exit=done)

    def _highest_token(self, environment: str) -> int:
        ran = [int(one.start.token) for one in self.state.journal if one.start.environment == environment]
        return max(ran, default=0)

    def _exit_of(self, start: DeployStart) -> Exit | None:
        found = self._record(start).exit
        if found is None or found.ending is not Ending.DECLARED:
            self._claim_of(start)
        return found

    def _claim_of(self, start: DeployStart) -> Started | None:
        known = self._record(start)
        claim = known.claim
        if claim is None and known.lost:
            raise RecordLost("Its record is lost.")
        if claim is not None and (claim.installation, claim.sequence, claim.token) != _identity(start):
            raise _foreign(start)
        return claim

    def _claim(self, start: DeployStart, by: Claimant) -> Started:
        child = SOMEBODY if by is Claimant.CHILD else None
        return Started(by, *_identity(start), at=NEVER, host="memory", runner=child, command=child)

    def _record(self, start: DeployStart) -> Record:
        if self.state.unreachable:
            raise AuthorityUnreachable("The deploy records cannot be read.")
        return self.state.starts.get(key_of(start), Record(None))


class MemoryProbe:
    """The command ``probe <environment>``: asks the environment what it runs, and takes an hour for it, so that one
    answer decides. ``sick`` says whether that version keeps well."""

    def __init__(
        self, state: Environments, wire: Wire, sick: Callable[[str, Sha], bool], clock: FakeClock
    ) -> None:
        self._state = state
        self._wire = wire
        self._sick = sick
        self._clock = clock

    def run(self, argv: Sequence[str], **ignored: object) -> Completed:
        _, environment = argv
        sha = self._wire.ask("health.probe", lambda: self._state.runs.get(environment))
        self._clock.advance(HOUR_S)
        well = sha is not None and not self._sick(environment, sha)
        return Completed(tuple(argv), 0 if well else 1, (sha or "").encode(), b"")


def memory_health(state: Environments, wire: Wire, sick: Callable[[str, Sha], bool]) -> HealthWatch:
    """The real watch, which asks these environments, in a time of its own."""
    clock = FakeClock()
    probe = MemoryProbe(state, wire, sick, clock)
    return HealthWatch(http=SystemHttp(), processes=cast(Processes, probe), clock=clock)


class MemoryStore:
    """Artefacts by digest; see :class:`~orchestrator.images.store.ImageStore`."""

    def __init__(self, tags: dict[str, Digest], wire: Wire | None = None) -> None:
        self._tags = tags
        self._wire = wire or DirectWire()

    def publish(self, source: Path, tag: str) -> Digest:
        digest = Digest("sha256:" + hashlib.sha256(source.name.encode()).hexdigest())

        def call() -> Digest:
            if self._tags.setdefault(tag, digest) != digest:
                raise OutsideError(f"The image tag {tag} names another digest.")
            return digest

        return self._wire.act("store.publish", call)

    def resolve(self, tag: str) -> Digest | None:
        return self._wire.ask("store.resolve", lambda: self._tags.get(tag))

    def has(self, digest: Digest) -> bool:
        return self._wire.ask("store.has", lambda: digest in self._tags.values())

    def path(self, digest: Digest) -> Path:
        return Path("/nowhere/images") / digest

    def prune(self, keep: Collection[Digest]) -> int:
        return 0


def key_of(start: DeployStart) -> Key:
    """What makes it the same start."""
    return start.environment, start.sha, start.generation


def _identity(start: DeployStart) -> tuple[str, int, str]:
    return start.installation, start.sequence, start.token


def _same(one: DeployStart, other: DeployStart) -> bool:
    return _identity(one) == _identity(other)


def _foreign(start: DeployStart) -> AuthorityUnreachable:
    return AuthorityUnreachable(f"The start {key_of(start)} belongs to another intent; nothing was done.")
