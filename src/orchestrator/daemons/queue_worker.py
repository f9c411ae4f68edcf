"""Claims jobs, each run in a thread of its own: agents by the launcher, checks by the check runner (S-05).

What must hold: no more agents and checks at once than configured, here and, under caps, in all processes together, and
none for a repository that is closed; a job whose service stops is left as it is, for the next life to adopt (agents) or
to run again (checks); the claim path talks to no network.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from orchestrator.check_runner import CheckRunner, Interrupted
from orchestrator.daemons.run_watch import RunWatch, Watched
from orchestrator.db import events, evidence, jobs, lanes, tasks
from orchestrator.db.database import Database
from orchestrator.domain.errors import ConfigError, DatabaseError, LostRace, OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import SHARED_HOME, BootId, Home, JobId, RepoName
from orchestrator.domain.job import AgentRun, Job, JobStatus
from orchestrator.domain.lease import Actor
from orchestrator.domain.shares import NO_CAPS, PRIORITY_STEP_S, Shares
from orchestrator.domain.task import Task
from orchestrator.launcher import Flight, Launcher
from orchestrator.monitor import Monitor
from orchestrator.observability.never_raise import never_raises
from orchestrator.observability.telemetry import Metric, Telemetry
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.wakeups import Wakeups
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.stage_engine.situation import Configs, judging_commit

log = structlog.get_logger(__name__)

OUTSIDE_PAUSE_S = 10.0  # before a job is tried again that could not be begun


@dataclass(slots=True)
class _Underway:
    agent: bool
    stop: threading.Event
    thread: threading.Thread | None  # None: the run watch has it
    began: float  # seconds of CLOCK_BOOTTIME
    claims: int  # of the job, when it was claimed for this


class QueueWorker:
    """The worker of one process."""

    name = "queue_worker"

    def __init__(
        self,
        database: Database,
        engine: StageEngine,
        launcher: Launcher,
        monitor: Monitor,
        checks: CheckRunner,
        configs: Configs,
        *,
        open_repositories: Callable[[], frozenset[RepoName]],
        boot_id: BootId,
        max_agents: int,
        max_checks: int,
        interval_s: float,
        clock: Clock,
        wakeups: Wakeups,
        telemetry: Telemetry,
        shares: Shares = NO_CAPS,
        priority_step_s: float = PRIORITY_STEP_S,
        home: Home = SHARED_HOME,
    ) -> None:
        """``home``: in whose state folder its agents work."""
        self._home = home
        self.interval_s = interval_s
        self._database = database
        self._engine = engine
        self._launcher = launcher
        self._monitor = monitor
        self._checks = checks
        self._configs = configs
        self._open_repositories = open_repositories
        self._boot_id = boot_id
        self._max_agents = max_agents
        self._max_checks = max_checks
        self._clock = clock
        self._wakeups = wakeups
        self._telemetry = telemetry
        self._shares = shares
        self._priority_step_s = priority_step_s
        self._lock = threading.Lock()
        self._underway: dict[int, _Underway] = {}
        self._stopping = threading.Event()
        self._watched = RunWatch(
            launcher,
            clock=clock,
            stopping=self._stopping,
            wanted=self._still_wanted,
            hand_on=self._take_from_watch,
            drop=self._drop,
        )

    def run_once(self) -> dict[str, int]:
        """Claim and start as many jobs as there is room for."""
        self._take_in_strays()
        started = 0
        while not self._stopping.is_set():
            agents, checks = self._room()
            if not agents and not checks:
                break
            repos = self._open_repositories()
            with self._database.write() as tx:
                job = jobs.claim_next_job(
                    tx,
                    self._boot_id,
                    agents=agents > 0,
                    checks=checks > 0,
                    repos=repos,
                    limits=self._shares.limits(repos) if agents > 0 else None,
                    step_s=self._priority_step_s,
                    home=self._home,
                )
                if job is not None:
                    task = tasks.get(tx, job.task_id)
                    data = {"job": job.kind, "attempt": job.attempts}
                    events.append(tx, EventType.JOB_CLAIMED, Actor.MONITOR, task=task, data=data)
            if job is None:
                break
            self._telemetry.count(Metric.JOBS_CLAIMED, job.kind)
            self._begin(job, partial(self._work, job, task))
            started += 1
        return {"started": started}

    def _take_in_strays(self) -> None:
        with self._database.read() as tx:
            found = lanes.strays(tx)
        if found:
            with self._database.write() as tx:
                for stray in found:
                    lanes.take_in(tx, stray)

    def resume(self, job: Job, run: AgentRun, flight: Flight) -> None:
        """Watch an adopted run as if this process had started it."""
        self._keep_watched(Watched(job, run, flight))

    def resume_run(self, job: Job, run: AgentRun) -> None:
        """Adopt a run of a job of ours and watch it. Its folder is looked into soon, not now: there may be
        thousands."""
        self._keep_watched(Watched(job, run))

    def handles(self, job_id: int) -> bool:
        """Whether this process is at the job."""
        with self._lock:
            return job_id in self._underway

    def running_for(self, job_id: int) -> float | None:
        """Seconds since this process began with the job, suspend included; None where it is not at it."""
        with self._lock:
            underway = self._underway.get(job_id)
        return None if underway is None else self._clock.boottime() - underway.began

    def at_work(self) -> dict[int, int]:
        """The jobs that this process is at, each with the number of its claim."""
        with self._lock:
            return {job_id: underway.claims for job_id, underway in self._underway.items()}

    def end(self, job_id: int, claims: int, reason: str) -> None:
        """Have what runs for a claim of a job ended, as whoever cancels it does."""
        with self._lock:
            underway = self._underway.get(job_id)
        if underway is not None and underway.claims == claims:
            self._stop_one(JobId(job_id), underway.stop, reason)
            self._watched.wake()

    def give_up(self, job_id: int) -> None:
        """The thread at this job hangs, and the job has been taken from it: its place is free."""
        with self._lock:
            self._underway.pop(job_id, None)

    def stop(self) -> None:
        """Claim nothing more; checks are interrupted, agents go on without us."""
        self._stopping.set()
        with self._lock:
            for underway in self._underway.values():
                underway.stop.set()
        self._watched.wake()

    def join(self, seconds: float) -> bool:
        """Wait for the threads; False where one takes longer than this in all."""
        with self._lock:
            threads = [each.thread for each in self._underway.values() if each.thread is not None]
        threads += self._watched.threads()
        for thread in threads:
            thread.join(seconds / max(1, len(threads)))
        return not any(thread.is_alive() for thread in threads)

    def snapshot(self) -> dict[str, object]:
        """How much of the room is taken."""
        with self._lock:
            agents = sum(underway.agent for underway in self._underway.values())
            return {
                "agents": agents,
                "checks": len(self._underway) - agents,
                "max_agents": self._max_agents,
                "max_checks": self._max_checks,
            }

    def _room(self) -> tuple[int, int]:
        with self._lock:
            agents = sum(underway.agent for underway in self._underway.values())
            return self._max_agents - agents, self._max_checks - (len(self._underway) - agents)

    def _begin(self, job: Job, work: Callable[[threading.Event], None]) -> None:
        stop = threading.Event()
        thread = threading.Thread(
            target=self._guarded, args=(job, work, stop), name=f"orch-job-{job.id}", daemon=True
        )
        with self._lock:
            began = self._clock.boottime()
            self._underway[job.id] = _Underway(job.kind.agent, stop, thread, began, job.claims)
            if self._stopping.is_set():  # the others have been told already
                stop.set()
            thread.start()  # before anybody can find it here and wait for its end

    def _keep_watched(self, watched: Watched) -> None:
        job = watched.job

        def end(reason: str) -> None:
            self._stop_one(job.id, watched.stop, reason)
            self._watched.wake()

        with self._lock:
            began = self._clock.boottime()
            self._underway[job.id] = _Underway(job.kind.agent, watched.stop, None, began, job.claims)
            if self._stopping.is_set():
                watched.stop.set()
        watched.end = end
        self._wakeups.register_stop(job.id, end)
        self._watched.add(watched)

    def _take_from_watch(self, watched: Watched, flight: Flight) -> threading.Thread | None:
        """See a watched run to its end in a thread of its own; None where the job was taken from us meanwhile."""
        job, stop = watched.job, watched.stop
        work = partial(self._watch, job, flight)
        thread = threading.Thread(
            target=self._guarded, args=(job, work, stop), name=f"orch-job-{job.id}", daemon=True
        )
        with self._lock:
            underway = self._underway.get(job.id)
            if underway is not None and underway.stop is stop:
                underway.thread = thread
                thread.start()
                return thread
        self._launcher.let_go(flight)
        return None

    def _drop(self, watched: Watched) -> None:
        """Nobody is at the job any more: the reaper's second tier finds it so."""
        self._wakeups.forget_stop(watched.job.id, watched.end)
        self._leave(watched.job, watched.stop)

    def _leave(self, job: Job, stop: threading.Event) -> None:
        with self._lock:
            if (underway := self._underway.get(job.id)) is not None and underway.stop is stop:
                del self._underway[job.id]

    def _stop_one(self, job_id: JobId, stop: threading.Event, reason: str) -> None:
        if not self._launcher.stop_job(job_id, reason):
            stop.set()

    def _guarded(self, job: Job, work: Callable[[threading.Event], None], stop: threading.Event) -> None:
        def end(reason: str) -> None:
            self._stop_one(job.id, stop, reason)

        self._wakeups.register_stop(job.id, end)
        if not self._safely(work, stop):
            self._fail(job)
        self._wakeups.forget_stop(job.id, end)
        self._leave(job, stop)
        self._wakeups.everything()
        self._wakeups.tasks([job.task_id])

    @never_raises(False, log)
    def _safely(self, work: Callable[[threading.Event], None], stop: threading.Event) -> bool:
        """A fault in one job, even one of ours, never stops the queue (law 9).

        One of the database is none of the job's: what came of it could not be stored, or read what it needs. It stays
        as it is, and the reaper's second tier gives it back.
        """
        try:
            work(stop)
        except DatabaseError as error:
            log.warning("job not ended yet; the reaper goes on with it", reason=str(error))
        return True

    @never_raises(None, log)
    def _fail(self, job: Job) -> None:
        """End a job that broke; where even that cannot be stored, the reaper's second tier does it later."""
        self._engine.finish_job(job, JobStatus.FAILED, error="it failed inside the orchestrator; see its log")

    def _work(self, job: Job, task: Task, stop: threading.Event) -> None:
        try:
            with self._database.read() as tx:
                if not jobs.still_claimed(tx, job):  # from here on, whoever cancels it finds us to be told
                    raise LostRace(f"{task.work_item} no longer wants its {job.kind}.")
                judged_by = judging_commit(task, evidence.candidate_of(tx, task.id))
            if judged_by is None:
                raise OutsideError(f"{task.work_item} has no branch yet.")
            config = self._configs.of(task.repo, judged_by)
            if job.kind.agent:
                self._watch(job, self._launcher.start(job, task, config), stop)
                return
            check = self._checks.run(job, task, config, stop)
        except LostRace as lost:
            log.info("job no longer ours", job=job.id, reason=str(lost))
        except ConfigError as error:
            self._engine.finish_job(job, JobStatus.FAILED, error=str(error))
        except Interrupted:
            self._interrupted(job)
            return
        except DatabaseError:
            raise  # see _safely
        except OutsideError as error:
            if job.attempts >= job.max_attempts:
                self._engine.finish_job(job, JobStatus.FAILED, error=str(error))
            else:
                pause = OUTSIDE_PAUSE_S * job.attempts
                self._engine.requeue_job(job, error=str(error), brief=job.brief, delay_s=pause)
        else:
            self._engine.finish_job(job, JobStatus.DONE, check=check)
        self._engine.advance_stage(job.task_id, Actor.MONITOR)

    def _interrupted(self, job: Job) -> None:
        """Free where the service stops; at the backstop it counts like any other attempt."""
        if not self._stopping.is_set() and job.attempts >= job.max_attempts:
            self._engine.finish_job(job, JobStatus.FAILED, error="ended at the backstop")
            self._engine.advance_stage(job.task_id, Actor.MONITOR)
            return
        free = self._stopping.is_set()
        self._engine.requeue_job(job, error="interrupted", brief=job.brief, free=free)

    @never_raises(True, log)
    def _still_wanted(self, job: Job) -> bool:
        """True also where that cannot be read: its run is paid for."""
        with self._database.read() as tx:
            return jobs.still_claimed(tx, job)

    def _watch(self, job: Job, flight: Flight, stop: threading.Event) -> None:
        """``_monitor_agent`` of the seeds: wait for the run's end, then finalise it.

        Where that cannot be read or stored the job stays as it is: its run is paid for, and the reaper's second tier
        watches it again (law 8).
        """
        try:
            self._see_to_the_end(job, flight, stop)
        except OutsideError as error:
            log.warning("run not finalised yet; the reaper goes on with it", job=job.id, reason=str(error))

    def _see_to_the_end(self, job: Job, flight: Flight, stop: threading.Event) -> None:
        result = self._launcher.wait(flight, stop)
        if result is None and not self._stopping.is_set():  # it was told to end before it could be named
            self._launcher.end(flight, "the task no longer wants it")
            result = self._launcher.wait(flight, self._stopping)
        if result is None:
            return  # we are stopping; the agent goes on and is adopted by our next life (law 8)
        self._telemetry.count(Metric.RUNS_FINISHED, result.outcome)
        self._monitor.conclude(job, flight.run_id, result)
