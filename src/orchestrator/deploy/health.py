"""Which version an environment runs, asked of the environment itself, and whether it stays.

Health is a gate, never the fact of a deploy: an old instance answers 200 too. What counts is identity: the full SHA.
A wrong or missing version is as unhealthy as no answer, and the verdict names what was expected and what was seen.
A contrary answer starts the count anew, so a rolling update may waver but has to come to rest before the deadline.
"""

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from orchestrator.deploy.records import FULL_SHA
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.repo_config.records import EnvironmentConfig, ProbeConfig
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.http import Http
from orchestrator.runtime.process import Processes

ANSWER_LIMIT = 64 * 1024  # bytes of an answer that are read; a version is short
SHOWN = 120  # characters of an answer that a message may repeat
KEPT = 20  # the last observations that a result carries as evidence


@dataclass(frozen=True, slots=True)
class Seen:
    """One observation. ``sha`` is None unless the answer named exactly one full SHA."""

    sha: Sha | None
    healthy: bool  # it answered well and named a version; whether it is the right one is not judged here
    detail: str


class HealthVerdict(StrEnum):
    """``stopped`` is no verdict: the watch was ended before it could judge."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class HealthResult:
    """What a watch found. Undo nothing on a result that is ``stopped``."""

    verdict: HealthVerdict
    seen: Seen | None  # the last observation
    detail: str
    observations: int
    recent: tuple[Seen, ...] = ()

    @property
    def healthy(self) -> bool:
        """The expected version ran and stayed."""
        return self.verdict is HealthVerdict.HEALTHY

    @property
    def stopped(self) -> bool:
        """Nothing was judged."""
        return self.verdict is HealthVerdict.STOPPED


class Health(Protocol):
    """Observes environments."""

    def observe_once(self, probe: ProbeConfig) -> Seen:
        """Ask once. Raises nothing: what cannot be asked is unhealthy, and the detail says why."""
        ...

    def watch(
        self,
        environment: EnvironmentConfig,
        expected: Callable[[str], bool],
        stop: threading.Event,
        deadline_s: float,
        *,
        wanted: str = "the expected version",
        unless: Callable[[str], str | None] = lambda _: None,
    ) -> HealthResult:
        """Observe until the expected version has been stable, ``deadline_s`` seconds are over, or ``stop`` is set.

        ``expected`` judges a full SHA; ``wanted`` names it in messages. ``unless`` is asked about an expected one, and
        says why it must not be counted yet; then the count starts anew.
        """
        ...


class HealthWatch:
    """Asks by HTTP or by command."""

    def __init__(
        self, *, http: Http, processes: Processes, clock: Clock, environ: Mapping[str, str] | None = None
    ) -> None:
        self._http = http
        self._processes = processes
        self._clock = clock
        self._environ = dict(environ or {})

    def watch(
        self,
        environment: EnvironmentConfig,
        expected: Callable[[str], bool],
        stop: threading.Event,
        deadline_s: float,
        *,
        wanted: str = "the expected version",
        unless: Callable[[str], str | None] = lambda _: None,
    ) -> HealthResult:
        """Observe until there is a verdict; see :class:`Health`."""
        clock = self._clock
        deadline = clock.boottime() + deadline_s
        recent: deque[Seen] = deque(maxlen=KEPT)
        observations, row, row_began = 0, 0, 0.0
        seen: Seen | None = None
        detail = f"{environment.name} was not asked."
        while not stop.is_set():
            asked = clock.boottime()
            seen = self.observe_once(environment.probe)
            recent.append(seen)
            observations += 1
            right = seen.sha if seen.healthy and seen.sha is not None and expected(seen.sha) else None
            withheld = unless(right) if right is not None else None
            if withheld is not None:
                row = 0
                detail = f"{environment.name} runs {seen.sha}, but that does not count yet: {withheld}."
            elif right is not None:
                row, row_began = row + 1, row_began if row else asked
                stable = clock.boottime() - row_began
                if row >= environment.healthy_times and stable >= environment.stable_for_s:
                    detail = f"{environment.name} runs {seen.sha}: {row} times in a row over {stable:.1f} s."
                    return HealthResult(HealthVerdict.HEALTHY, seen, detail, observations, tuple(recent))
                detail = (
                    f"{environment.name} runs {seen.sha}, but only {row} times in a row over {stable:.1f} s; "
                    f"expected {environment.healthy_times} times over {environment.stable_for_s:g} s."
                )
            else:
                row = 0
                detail = (
                    f"{environment.name}: expected {wanted}, saw {seen.sha or 'no version'}. {seen.detail}"
                )
            left = deadline - clock.boottime()
            if left <= 0:
                return HealthResult(HealthVerdict.UNHEALTHY, seen, detail, observations, tuple(recent))
            clock.wait(stop, min(environment.interval_s, left))
        return HealthResult(HealthVerdict.STOPPED, seen, f"Not judged. {detail}", observations, tuple(recent))

    def observe_once(self, probe: ProbeConfig) -> Seen:
        """Ask once; see :class:`Health`."""
        if probe.url is not None:
            return self._ask_url(probe, probe.url)
        if probe.command:
            return self._ask_command(probe, probe.command)
        return Seen(None, False, "No probe is configured, so nobody can say what runs there.")

    def _ask_url(self, probe: ProbeConfig, url: str) -> Seen:
        try:
            answer = self._http.request("GET", url, timeout_s=probe.timeout_s, limit=ANSWER_LIMIT)
        except OutsideError as error:
            return Seen(None, False, str(error))
        sha, detail = version_in(answer.body, probe.field)
        if 300 <= answer.status < 400:
            return Seen(
                None, False, f"HTTP {answer.status}: it redirects. Configure the address that answers."
            )
        if not answer.ok:
            return Seen(sha, False, f"HTTP {answer.status}: {detail}")
        return Seen(sha, sha is not None, f"HTTP {answer.status}: {detail}")

    def _ask_command(self, probe: ProbeConfig, command: tuple[str, ...]) -> Seen:
        try:
            ended = self._processes.run(command, env=self._environ, timeout=probe.timeout_s)
        except OSError as error:
            return Seen(None, False, f"The probe {command[0]!r} cannot be run: {error.strerror}.")
        if ended.timed_out:
            return Seen(None, False, f"The probe {command[0]!r} did not end within {probe.timeout_s:g} s.")
        sha, detail = version_in(ended.stdout[:ANSWER_LIMIT], probe.field)
        if ended.returncode != 0:
            return Seen(sha, False, f"The probe {command[0]!r} ended with {ended.returncode}: {detail}")
        return Seen(sha, sha is not None, f"The probe {command[0]!r} said: {detail}")


def version_in(body: bytes, field: str) -> tuple[Sha | None, str]:
    """The full SHA that an answer names, and what to say about it.

    The answer is the bare SHA, or JSON with it at the dotted ``field``. A short or decorated SHA is no identity.
    """
    text = body.decode("utf-8", errors="replace").strip()
    if FULL_SHA.fullmatch(text):  # before JSON, which would take one that is all digits for a number
        return Sha(text), text
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None, f"no full SHA in {_shown(text)}"
    if isinstance(value, dict):
        for part in field.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return None, f"no field {field!r} in {_shown(text)}"
    if isinstance(value, str) and FULL_SHA.fullmatch(value):
        return Sha(value), value
    return None, f"{_shown(str(value))} is no full SHA"


def _shown(text: str) -> str:
    """Somebody else's text, short and printable."""
    clean = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:SHOWN])
    return f"{clean!r}" + ("…" if len(text) > SHOWN else "") if clean else "an empty answer"
