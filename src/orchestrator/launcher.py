"""Starts an agent for a job, adopts one that survived a restart, and ends one that nobody wants any more (S-06).

What must hold: the run's row is committed before anything starts, so that recovery finds every run that may exist; one
job has one live run. The agent's result is the supervisor's record; nothing here believes the agent itself.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from orchestrator.agents.agent import Agent, AgentTask, limits_of
from orchestrator.agents.brief import Brief
from orchestrator.agents.prompt import write_brief
from orchestrator.agents.runs import RunHandle, Runs
from orchestrator.db import evidence, jobs, leases, tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import ConfigError, LostRace, OutsideError
from orchestrator.domain.ids import SHARED_HOME, Home, JobId, RunId
from orchestrator.domain.job import AgentRun, Job, JobKind, RunOutcome, RunResult, Usage
from orchestrator.domain.stage import Role
from orchestrator.domain.task import Task
from orchestrator.places import Folders, Places
from orchestrator.repo_config.records import AgentConfig, BudgetConfig, RepoConfig
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy

log = structlog.get_logger(__name__)

MAX_PROMPT_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Flight:
    """A run that is under way."""

    run_id: RunId
    job: Job
    handle: RunHandle


class BudgetSpent(ConfigError):
    """The task's budget leaves nothing for another run."""


class Launcher:
    """Starts and keeps hold of agent runs."""

    def __init__(
        self,
        database: Database,
        places: Places,
        runs: Runs,
        agents: Mapping[str, Agent],
        folders: Folders,
        *,
        clock: Clock,
        entropy: Entropy,
        environ: Mapping[str, str],
        language: str,
        run_orphan_ttl_s: float,
        home: Home = SHARED_HOME,
    ) -> None:
        """``home``: in whose state folder the runs lie."""
        self._home = home
        self._database = database
        self._places = places
        self._runs = runs
        self._agents = agents
        self._folders = folders
        self._clock = clock
        self._entropy = entropy
        self._environ = environ
        self._language = language
        self._orphan_ttl_s = run_orphan_ttl_s
        self._lock = threading.Lock()
        self._flying: dict[JobId, Flight] = {}

    def start(self, job: Job, task: Task, config: RepoConfig) -> Flight:
        """Prepare the workspace and the brief, record the run, start the agent under its supervisor.

        :raises ConfigError: the agent is not known, its prompt cannot be read, or the task's budget is spent.
        :raises LostRace: the job was taken away meanwhile; nothing is running.
        :raises OutsideError: the workspace or the run could not be made; nothing is running.
        """
        role = Role(job.kind.value)
        settings = self._within_budget(task, config.agent_for(role), config.budget)
        agent = self._agents.get(settings.kind)
        if agent is None:
            raise ConfigError(
                f"The agent {settings.kind!r} for {role} is not known; {task.work_item} waits.",
                hint=f"Known are: {', '.join(sorted(self._agents))}. Correct .orchestrator.toml.",
            )
        place = self._places.of(task.repo)
        head = task.head_sha or task.base_sha
        if head is None or task.branch is None:
            raise OutsideError(f"{task.work_item} has no branch yet.")
        if self._home == SHARED_HOME:
            place.clone.want(head)
        else:
            place.clone.fetch()  # nobody else does it for a worker, whose agent may be asked to merge main
        worktree = place.workspaces.prepare(task.work_item, task.title, task.branch, head)
        run_dir = self._folders.runs / f"{task.work_item}-{job.id}-{job.attempts}-{self._entropy.token(4)}"
        template = self._template(task, settings)
        files = write_brief(self._brief(job, task, role, settings, config), run_dir, template)
        limits = limits_of(settings, orphan_ttl_s=self._orphan_ttl_s)
        launch = agent.launch(
            AgentTask(
                role=role,
                worktree=worktree,
                run_dir=run_dir,
                brief_file=files.brief_file,
                prompt_file=files.prompt_file,
                new_session_id=self._entropy.uuid(),
                config=settings,
                limits=limits,
            ),
            self._environ,
        )
        with self._database.write() as tx:
            leases.lock_epoch(tx, task.id)  # as whoever moves the task does, before its rows
            if not jobs.still_claimed(tx, job):
                raise LostRace(f"{task.work_item} no longer wants its {role}.")
            run_id = jobs.add_run(
                tx, job, agent=agent.name, model=settings.model, run_dir=str(run_dir), home=self._home
            )
        try:
            handle = self._runs.start(run_dir, launch, limits, self._environ)
        except OutsideError as error:
            with self._database.write() as tx:  # nothing has started: no later life shall look for it
                jobs.finish_run(tx, run_id, RunResult(RunOutcome.NOT_STARTED, None, Usage(), str(error)))
            raise
        flight = Flight(run_id, job, handle)
        self._enter(flight)
        return flight

    def adopt(self, job: Job, run: AgentRun) -> Flight:
        """After a restart: the run to be waited for, whether its agent lives, may live, or has ended meanwhile.

        A run that was recorded but never started is made impossible first; waiting for it ends at once, too.

        :raises OutsideError: its folder cannot be used; nothing is known of it.
        """
        run_dir = Path(run.run_dir)
        handle = None
        if self._runs.result(run_dir) is None:
            handle = self._runs.adopt(run_dir)
            if handle is None:
                self._runs.revoke(run_dir)
        flight = Flight(run.id, job, handle or RunHandle(run_dir, None))
        self._enter(flight)
        return flight

    def wait(self, flight: Flight, stop: threading.Event) -> RunResult | None:
        """Block until the run has ended; None when ``stop`` was set first: the agent goes on without us (law 8)."""
        try:
            return self._runs.wait(flight.handle, stop)
        finally:
            self.let_go(flight)

    def let_go(self, flight: Flight) -> None:
        """Nobody waits for it here any more."""
        with self._lock:
            if self._flying.get(flight.job.id) is flight:  # its job may have been taken up anew
                del self._flying[flight.job.id]

    def has_ended(self, flight: Flight) -> bool:
        """Whether waiting for it would come to an end at once.

        :raises OutsideError: its folder cannot be used.
        """
        return self._runs.result(flight.handle.run_dir) is not None

    def keep(self, flight: Flight, kept_at: float | None) -> float:
        """Keep a run adopted that nobody waits for; when that was last done, by CLOCK_BOOTTIME, None at first."""
        return self._runs.keep(flight.handle, kept_at)

    def result(self, run: AgentRun) -> RunResult | None:
        """How a run ended, from its own record; None while it runs."""
        return self._runs.result(Path(run.run_dir))

    def settle(self, run: AgentRun) -> RunResult | None:
        """End a run whose task has ended: keep it from starting, ask it to end; how it did, None while it goes on.

        :raises OutsideError: its folder cannot be used; nothing is known of it.
        """
        with self._lock:
            if any(flight.run_id == run.id for flight in self._flying.values()):
                return None  # whoever watches it is ending it
        run_dir = Path(run.run_dir)
        result = self._runs.result(run_dir)
        if result is None and not self._runs.revoke(run_dir):
            self._runs.stop(RunHandle(run_dir, None), "the task has ended")
        return result or self._runs.result(run_dir)

    def stop_job(self, job_id: JobId, reason: str) -> bool:
        """Ask for the end of the run of a job; its monitor sees it end. False where none runs here."""
        with self._lock:
            flight = self._flying.get(job_id)
        if flight is None:
            return False
        self._runs.stop(flight.handle, reason)
        return True

    def end(self, flight: Flight, reason: str) -> None:
        """Ask for the end of a run; waiting for it tells when it has come."""
        self._runs.stop(flight.handle, reason)

    def flying(self) -> list[Flight]:
        """Runs of this process."""
        with self._lock:
            return list(self._flying.values())

    def _enter(self, flight: Flight) -> None:
        with self._lock:
            self._flying[flight.job.id] = flight

    def _within_budget(self, task: Task, settings: AgentConfig, budget: BudgetConfig) -> AgentConfig:
        """The agent's own bounds, narrowed to what the task has left."""
        with self._database.read() as tx:
            spent = jobs.spent(tx, task.id)
        cost = _left(budget.max_cost_usd, spent.cost_usd or 0.0)
        tokens = _left(budget.max_tokens, spent.total_tokens)
        if (cost is not None and cost <= 0) or (tokens is not None and tokens <= 0):
            raise BudgetSpent(
                f"{task.work_item} has spent its budget ({spent.cost_usd or 0:.2f} USD, {spent.total_tokens} tokens).",
                hint="Raise [budget] in .orchestrator.toml and retry the task, or cancel it.",
            )
        return replace(
            settings,
            max_cost_usd=_lower(settings.max_cost_usd, cost),
            max_tokens=int(lowest) if (lowest := _lower(settings.max_tokens, tokens)) is not None else None,
        )

    def _template(self, task: Task, settings: AgentConfig) -> str | None:
        judged_by = task.config_sha or task.base_sha
        if settings.prompt is None or judged_by is None:
            return None
        data = self._places.of(task.repo).clone.read(judged_by, settings.prompt, MAX_PROMPT_BYTES)
        if data is None:
            raise ConfigError(
                f"The prompt template {settings.prompt} is not in {task.repo} at {judged_by[:12]}.",
                hint="Commit it to the default branch, or take `prompt` out of .orchestrator.toml.",
            )
        return data.decode("utf-8", "replace")

    def _brief(self, job: Job, task: Task, role: Role, settings: AgentConfig, config: RepoConfig) -> Brief:
        with self._database.read() as tx:
            candidate = evidence.candidate_of(tx, task.id) if job.kind is JobKind.DEPLOYER else None
            task = tasks.get(tx, task.id)
        return Brief(
            work_item=task.work_item,
            role=role,
            stage=task.stage,
            round=task.round,
            attempt=job.attempts,
            title=task.title,
            body=task.body,
            language=config.language or self._language,
            repo=task.repo,
            date=self._clock.utc().date().isoformat(),
            model=settings.model or settings.kind,
            base_sha=task.base_sha,
            head_sha=task.head_sha,
            gated_sha=task.gated_sha,
            candidate_sha=candidate.sha if candidate is not None else None,
            staging_url=config.staging.probe.url if config.staging is not None else None,
            notes=job.brief,
        )


def _left(limit: float | None, spent: float) -> float | None:
    return None if limit is None else limit - spent


def _lower(one: float | None, other: float | None) -> float | None:
    bounds = [bound for bound in (one, other) if bound is not None]
    return min(bounds) if bounds else None
