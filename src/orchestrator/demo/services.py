"""The sample's running services, as their own deploy command recorded them: asked, and ended at the demo's end."""

import json
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

from orchestrator.demo.sample_repository import Environment
from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.http import Http
from orchestrator.runtime.process import Liveness, Processes, ProcessIdentity

RECORD = "service.json"
LIMIT = 64 * 1024
ASK_SECONDS = 5.0
STOP_SECONDS = 5.0  # between SIGTERM and SIGKILL, and again until the end must be seen
POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Answer:
    """What an environment said of itself."""

    url: str
    sha: str | None
    text: str


def ask(environment: Environment, http: Http) -> Answer:
    """One real request; an environment that does not answer is an answer too."""
    try:
        got = http.request("GET", environment.url, timeout_s=ASK_SECONDS, limit=LIMIT)
        text = got.body.decode("utf-8", "replace")
        said = json.loads(text)
    except OutsideError as error:
        return Answer(environment.url, None, str(error))
    except ValueError:
        return Answer(environment.url, None, "an answer that is no JSON")
    sha = said.get("sha") if isinstance(said, dict) else None
    return Answer(environment.url, sha if isinstance(sha, str) else None, text)


def running(environment: Environment, processes: Processes) -> ProcessIdentity | None:
    """The very process that the deploy command started there, if it still lives."""
    try:
        record = json.loads((environment.state / RECORD).read_text(encoding="utf-8"))
        own = processes.own()
        identity = ProcessIdentity(
            own.machine_boot_id, own.pid_namespace, int(record["pid"]), int(record["start_ticks"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return identity if processes.liveness(identity) is Liveness.ALIVE else None


def stop(environment: Environment, processes: Processes, clock: Clock) -> bool:
    """End the service; True iff nothing of it runs any more."""
    identity = running(environment, processes)
    if identity is None:
        return True
    never = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGKILL):
        processes.signal_group(identity, signum)
        deadline = clock.boottime() + STOP_SECONDS
        while clock.boottime() < deadline:
            if processes.liveness(identity) is Liveness.DEAD:
                return True
            clock.wait(never, POLL_SECONDS)
    return False


def log_of(environment: Environment) -> Path:
    """Where the service writes."""
    return environment.state / "service.log"
