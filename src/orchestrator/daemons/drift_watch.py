"""Watches what an environment runs once nobody is at work there: by its last settled start, whoever's it was (N22).

What must hold: it starts and undoes nothing. While a start is under way, unsettled or not yet judged it waits, and
while nothing may be done for the repository: a database that was put back knows nothing of the last starts. What it
compares with is the configuration of the commit that the start's M was built on: by that the start was made and judged.
An answer that names no version is no drift: what is not known is shown, not told. One alert for each version that runs
instead, one word when it is over, and anew when it drifts again: the task's own story says what was told, so a restart
forgets nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from threading import Lock

import structlog

from orchestrator.db import alerts, effects, events, evidence, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.health import Health, Seen
from orchestrator.domain.effect import EffectName, Intent
from orchestrator.domain.errors import ConfigError, OrchestratorError, OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.domain.scope import EVERYTHING, Scope
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.effects.deploy import start_of, why_not_undone
from orchestrator.observability.never_raise import never_raises
from orchestrator.repo_config.records import EnvironmentConfig
from orchestrator.rules.transitions import CHECK_STAGING, START_STAGING, StepKind
from orchestrator.runtime.clock import Clock, stamp
from orchestrator.stage_engine.situation import Configs

log = structlog.get_logger(__name__)

LOOKS = 3  # in a row that show something else before anybody is told: one may meet a restart


class State(StrEnum):
    """What the last look at an environment came to."""

    AS_DEPLOYED = "as deployed"
    DIFFERS = "differs"  # not for long enough yet
    DRIFTED = "drifted"
    UNKNOWN = "unknown"  # it names no version, or how to ask it is not known
    WAITS = "waits"  # a start is under way, or nobody can say what should run


@dataclass(frozen=True, slots=True)
class Watched:
    """One environment as it was last seen."""

    environment: str
    work_item: str
    sequence: int  # of the start, in the ledger
    state: State
    expected: str | None
    seen: str | None = None
    looks: int = 0  # in a row that showed something else
    alike: int = 0  # in a row that showed this very version
    since: str | None = None  # the first of them
    detail: str = ""


class DriftWatch:
    """One look at each environment whose last start is settled."""

    name = "drift_watch"

    def __init__(
        self,
        database: Database,
        configs: Configs,
        deployer: Deployer,
        health: Health,
        open_repositories: Callable[[], frozenset[RepoName]],
        *,
        clock: Clock,
        interval_s: float,
        scope: Scope = EVERYTHING,
    ) -> None:
        self.interval_s = interval_s
        self._database = database
        self._configs = configs
        self._deployer = deployer
        self._health = health
        self._open_repositories = open_repositories
        self._clock = clock
        self._scope = scope
        self._lock = Lock()
        self._watched: dict[str, Watched] = {}

    def run_once(self) -> dict[str, int]:
        """Look at every environment once."""
        with self._database.read() as tx:
            starts = effects.last_starts(tx)
        counts = {"environments": len(starts), "drifted": 0}
        for start in starts:
            seen = self._look(start)
            if seen is None:
                continue
            with self._lock:
                self._watched[seen.environment] = seen
            counts["drifted"] += seen.state is State.DRIFTED
        return counts

    def snapshot(self) -> list[dict[str, object]]:
        """What the last looks came to, for ``GET /queue``."""
        with self._lock:
            found = sorted(self._watched.values(), key=lambda watched: watched.environment)
        return [
            {
                "environment": w.environment,
                "task": w.work_item,
                "state": w.state,
                "expected": w.expected,
                "seen": w.seen,
                "looks": w.looks,
                "since": w.since,
                "detail": w.detail,
            }
            for w in found
        ]

    @never_raises(None, log)
    def _look(self, start: Intent) -> Watched | None:
        """A fault at one environment keeps nobody from the others (law 9)."""
        with self._database.read() as tx:
            task = tasks.get(tx, start.task_id)
        environment, expected = str(start.judged["environment"]), _expected(start)
        if not self._scope.covers(task.repo):
            with self._lock:  # it may have been another repository's until now
                self._watched.pop(environment, None)
            return None
        watched = Watched(environment, task.work_item, start.sequence, State.WAITS, expected)
        if expected is None:
            return replace(watched, detail="nobody can say what should run there")
        if task.repo not in self._open_repositories():
            return replace(watched, detail="nothing is done for its repository now")
        try:
            if (why := self._why_not_yet(start, task)) is not None:
                return replace(watched, detail=why)
            config = self._config_of(start, task, environment)
        except OrchestratorError as error:
            return replace(watched, state=State.UNKNOWN, detail=str(error))
        seen = self._health.observe_once(config.probe)
        with self._database.read() as tx:
            if _last(tx, environment) != start.sequence or effects.start_unsettled(tx, environment):
                return replace(watched, detail="a start has come in between")
        return self._judge(watched, task, seen)

    def _judge(self, watched: Watched, task: Task, seen: Seen) -> Watched:
        with self._lock:
            before = self._watched.get(watched.environment)
        looks, since, alike = 0, None, 0
        if before is not None and before.sequence == watched.sequence:
            looks, since = before.looks, before.since
            alike = before.alike if before.seen == seen.sha else 0
        if seen.sha is None:
            return replace(watched, state=State.UNKNOWN, looks=looks, since=since, detail=seen.detail)
        if seen.sha == watched.expected:
            self._tell_that_it_is_over(watched, task)
            return replace(watched, state=State.AS_DEPLOYED, seen=seen.sha)
        since = since or stamp(self._clock.utc())
        watched = replace(
            watched, state=State.DIFFERS, seen=seen.sha, looks=looks + 1, alike=alike + 1, since=since
        )
        if watched.looks < LOOKS:
            return watched
        self._tell(watched, task)
        return replace(watched, state=State.DRIFTED)

    def _why_not_yet(self, start: Intent, task: Task) -> str | None:
        """Why the start is not over: in production it ends with its task, in staging when it was found healthy."""
        with self._database.read() as tx:
            if effects.start_unsettled(tx, str(start.judged["environment"])):
                return "a start is under way"
            judged = task.stage is Stage.DONE
            if start.judged.get("step") == START_STAGING.name:
                judged = evidence.passed(tx, task.id, start.round, f"{StepKind.GATE}:{CHECK_STAGING}")
        if start.name is EffectName.DEPLOY_INIT and not judged:
            return "the start has not been judged yet"
        if self._deployer.exit(start_of(start)) is None:
            return "the command has not ended yet"
        return None

    def _config_of(self, start: Intent, task: Task, environment: str) -> EnvironmentConfig:
        with self._database.read() as tx:
            found = [c for c in evidence.candidates(tx, task.id) if c.sha == start.judged.get("sha")]
        if not found:
            raise OutsideError(
                f"The commit that {environment} runs is none of {task.work_item}'s candidates."
            )
        config = self._configs.of(task.repo, found[-1].base_sha)
        for known in (config.production, config.staging):
            if known is not None and known.name == environment:
                return known
        raise ConfigError(f"{task.repo} has no environment {environment} at {found[-1].base_sha[:12]}.")

    def _tell(self, watched: Watched, task: Task) -> None:
        """Once for each version that is seen before it is over; a further one has to stay for some looks itself."""
        text = (
            f"{task.work_item}: {watched.environment} runs {watched.seen}, not {watched.expected}, which was "
            f"last brought there. Nothing was done about it."
        )
        with self._database.write() as tx:
            told = _told(tx, task, watched)
            if watched.seen in told.now or (told.now and watched.alike < LOOKS):
                return
            alerts.call(tx, text, *_about(watched), told.words, task_id=task.id, work_item=task.work_item)
            events.lesson(tx, "drift", text, task_id=task.id)
            data = {"expected": watched.expected, "seen": watched.seen, **_start_of(watched)}
            events.append(tx, EventType.DRIFT_SEEN, self.name, task=task, data=data)

    def _tell_that_it_is_over(self, watched: Watched, task: Task) -> None:
        with self._database.read() as tx:
            if not _told(tx, task, watched).now:
                return
        text = f"{task.work_item}: {watched.environment} runs {watched.expected} again."
        with self._database.write() as tx:
            told = _told(tx, task, watched)
            if not told.now:
                return
            alerts.call(tx, text, *_about(watched), told.words, task_id=task.id, work_item=task.work_item)
            data = {"expected": watched.expected, **_start_of(watched)}
            events.append(tx, EventType.DRIFT_OVER, self.name, task=task, data=data)


@dataclass(frozen=True, slots=True)
class _Told:
    """What people know of drift from one start."""

    words: int  # how often they were told anything
    now: frozenset[str]  # the versions they know to run instead; empty where it is over


def _told(tx: Tx, task: Task, watched: Watched) -> _Told:
    words, now = 0, frozenset[str]()
    for event in events.drifts(tx, task.id):
        of = event.data.get("start", watched.sequence)  # not written down before a second drift was told
        if (event.data.get("environment"), of) != (watched.environment, watched.sequence):
            continue
        words += 1
        seen = event.type is EventType.DRIFT_SEEN
        now = now | {str(event.data["seen"])} if seen else frozenset()
    return _Told(words, now)


def _expected(start: Intent) -> str | None:
    """What the start has brought: its own SHA, or what an undo brought back; None where an undo has failed."""
    undo = start.name is EffectName.DEPLOY_UNDO
    if undo and why_not_undone(start, start.fact or {}) is not None:
        return None  # a person was called when it ended
    name = "restored_sha" if undo else "sha"
    sha = start.judged.get(name)
    return Sha(str(sha)) if sha else None


def _last(tx: Tx, environment: str) -> int | None:
    last = effects.last_start(tx, environment)
    return last.sequence if last is not None else None


def _about(watched: Watched) -> tuple[object, ...]:
    return "drift", watched.environment, watched.sequence


def _start_of(watched: Watched) -> dict[str, object]:
    return {"environment": watched.environment, "start": watched.sequence}
