"""Gathers evidence ourselves: the repository's checks on an exact SHA, and the health of an environment.

What must hold: the checks run in a clean checkout of exactly that SHA, with an environment that holds no secret of
ours; a number that could not be measured is a failure with a reason, never a pass; an interrupted check says nothing.
"""

import threading
from collections.abc import Mapping
from pathlib import Path

from orchestrator.coverage.reader import read_coverage
from orchestrator.db import effects, evidence
from orchestrator.db.database import Database
from orchestrator.db.evidence import CheckResult
from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.health import Health
from orchestrator.deploy.records import Claimant, Ending
from orchestrator.domain.effect import EffectName, Intent
from orchestrator.domain.errors import ConfigError, InvariantError, MeasurementFailed, OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.domain.job import Job, JobKind
from orchestrator.domain.task import Task
from orchestrator.effects.deploy import declare_ended, start_of
from orchestrator.effects.trial import why_on_trial
from orchestrator.places import Folders, Place, Places
from orchestrator.repo_config.records import CoverageConfig, EnvironmentConfig, RepoConfig
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.files import make_private_folder, read_tail, trim_log
from orchestrator.runtime.process import Processes
from orchestrator.runtime.sweep import sweep
from orchestrator.workspace.folders import exists, remove_tree

TAIL_BYTES = 4_000  # of the checks' output, shown to people and to the next agent
MAX_LOG_BYTES = 16 * 1024 * 1024
MARKER = "ORCH_CHECK_ID"  # in the environment of everything the checks start
EXIT_GRACE_S = 30.0  # beyond a deploy's own time-out, for its record to appear


class Interrupted(Exception):
    """The service is stopping; the check says nothing and will be run again."""


class CheckRunner:
    """Runs the jobs that are not an agent's."""

    def __init__(
        self,
        database: Database,
        places: Places,
        folders: Folders,
        deployer: Deployer,
        health: Health,
        *,
        processes: Processes,
        clock: Clock,
        entropy: Entropy,
        environ: Mapping[str, str],
    ) -> None:
        self._database = database
        self._places = places
        self._folders = folders
        self._deployer = deployer
        self._health = health
        self._processes = processes
        self._clock = clock
        self._entropy = entropy
        self._environ = folders.environ(environ)

    def run(self, job: Job, task: Task, config: RepoConfig, stop: threading.Event) -> CheckResult:
        """Do the job and say what it showed.

        :raises Interrupted: ``stop`` was set first.
        :raises ConfigError: the program of the checks is not installed here.
        :raises OutsideError: the checkout could not be made or an authority could not be asked; nothing was shown.
        """
        place = self._places.of(task.repo)
        if job.kind is JobKind.STAGING_HEALTH:
            return self._watch(job, task, config.staging, place, stop)
        if job.kind is JobKind.PRODUCTION_HEALTH:
            return self._watch(job, task, config.production, place, stop)
        return self._checks(job, task, config, place, stop)

    def _checks(
        self, job: Job, task: Task, config: RepoConfig, place: Place, stop: threading.Event
    ) -> CheckResult:
        sha = Sha(job.subject or "")
        mark = f"{job.id}-{self._entropy.token(4)}"
        log = self._folders.logs / f"{task.work_item}-{job.kind}-{task.round}-{job.id}.log"
        make_private_folder(log.parent)
        env = {**self._environ, **config.ci.env, "CI": "true", "ORCH_SHA": sha}
        env |= {**self._folders.marks(), MARKER: mark}
        place.clone.want(sha)
        with place.clone.export(sha, self._folders.checkouts / f"check-{mark}") as checkout:
            started = _before_the_run(checkout, config.coverage)
            try:
                with log.open("wb") as sink:
                    ended = self._processes.run(
                        config.ci.command,
                        cwd=checkout,
                        env=env,
                        timeout=config.ci.timeout_s,
                        output=sink,
                        stop=stop,
                    )
            except OSError as error:
                return _not_run(job, sha, config.ci.command[0], error)
            finally:
                sweep(f"{MARKER}={mark}")
            if ended.stopped:
                raise Interrupted
            detail: dict[str, object] = {"log": log.name, "exit_code": ended.returncode}
            tail = read_tail(log, TAIL_BYTES).decode("utf-8", "replace")
            trim_log(log, MAX_LOG_BYTES, MAX_LOG_BYTES // 2)
            if ended.timed_out:
                detail |= {
                    "reason": f"The checks did not end within {config.ci.timeout_s:g} s.",
                    "tail": tail,
                }
                return CheckResult(job.kind, sha, False, detail)
            if ended.returncode != 0:
                detail |= {"reason": f"The checks ended with exit code {ended.returncode}.", "tail": tail}
                return CheckResult(job.kind, sha, False, detail)
            if job.kind is JobKind.CANDIDATE_CI and config.coverage is not None:
                detail |= _measure(config.coverage, checkout, started)
            return CheckResult(job.kind, sha, True, detail)

    def _watch(
        self, job: Job, task: Task, environment: EnvironmentConfig | None, place: Place, stop: threading.Event
    ) -> CheckResult:
        if environment is None:
            raise OutsideError(f"{task.repo} has no such environment any more.")
        with self._database.read() as tx:
            candidate = evidence.candidate_of(tx, task.id)
            if candidate is None:
                raise InvariantError(f"{task.work_item} has no candidate to be watched")
            sha = candidate.sha
            started = _own_start(effects.last_start(tx, environment.name), task, sha)
        wanted = sha if job.undo is None else Sha(job.subject or sha)
        if started is not None:
            failure = self._command_failure(started, environment, stop) or self._undone(started)
            if failure is not None:
                tail = self._deployer.log_tail(start_of(started), TAIL_BYTES)
                return CheckResult(job.kind, sha, False, {"reason": failure, "tail": tail})

        judged = job.kind is JobKind.PRODUCTION_HEALTH and job.undo is None

        def expected(seen: str) -> bool:
            return seen == wanted or (judged and _later(place, sha, Sha(seen)))

        def unless(seen: str) -> str | None:
            with self._database.read() as tx:
                return why_on_trial(tx, task, environment.name, own=seen == sha) if judged else None

        result = self._health.watch(
            environment, expected, stop, environment.timeout_s, wanted=wanted, unless=unless
        )
        if result.stopped:
            raise Interrupted
        detail: dict[str, object] = {
            "reason": result.detail,
            "seen": result.seen.sha if result.seen else None,
            "observations": result.observations,
        }
        return CheckResult(job.kind, wanted, result.healthy, detail)

    def _command_failure(
        self, started: Intent, environment: EnvironmentConfig, stop: threading.Event
    ) -> str | None:
        """Why the deploy command itself failed; None where it ended well."""
        ended = self._deployer.wait(start_of(started), stop, environment.timeout_s + EXIT_GRACE_S)
        if stop.is_set():
            raise Interrupted
        if ended is None:
            ended = self._deployer.terminate(start_of(started))
        if ended is None:
            return f"the start in {environment.name} was never claimed by a runner ({declare_ended(started)})"
        if not ended.succeeded:
            if ended.ending is Ending.DECLARED:
                return f"how the deploy command of {environment.name} ended is not known ({ended.detail})."
            # An exit code is all that there is to say of an end by exit; the detail would say it again.
            code = f" with exit code {ended.code}" if ended.code is not None else ""
            how = ended.ending.value.replace("_", " ")
            detail = "" if code and ended.ending is Ending.EXITED else f" {ended.detail}"
            return f"the deploy command of {environment.name} {how}{code}.{detail}".strip()
        return None

    def _undone(self, started: Intent) -> str | None:
        """Why there is nothing to watch any more: the runner of a deploy of ourselves has undone it."""
        undo = start_of(started).undo
        claim = self._deployer.started(undo.start) if undo is not None else None
        if undo is None or claim is None or claim.by is not Claimant.CHILD:
            return None
        return f"{started.judged['sha']} did not report within {undo.within_s:g} s, so its own runner has undone it"


def _not_run(job: Job, sha: Sha, program: str, error: OSError) -> CheckResult:
    """A program of the tree is the change's to mend; one that this machine lacks is a person's."""
    reason = f"The checks did not run: {program!r}: {error.strerror}."
    if "/" in program:
        return CheckResult(job.kind, sha, False, {"reason": reason})
    raise ConfigError(
        f"{reason} The task waits.",
        hint="Install the program, or correct [ci] command of the default branch; then retry the task.",
    )


def _before_the_run(checkout: Path, coverage: CoverageConfig | None) -> float:
    """The file system's own clock now; a report that the tree itself brings along is taken out of the way."""
    if coverage is not None and exists(checkout / coverage.report):
        remove_tree(checkout / coverage.report)
    marker = checkout / ".git" / "orch-checks-began"
    marker.touch()
    return marker.stat().st_mtime


def _measure(config: CoverageConfig, checkout: Path, newer_than: float) -> dict[str, object]:
    try:
        found = read_coverage(checkout / config.report, config.format, root=checkout, newer_than=newer_than)
    except MeasurementFailed as error:
        return {"coverage_problem": str(error)}
    return {"percent": found.percent, "covered": found.covered, "total": found.total}


def _own_start(last: Intent | None, task: Task, sha: Sha) -> Intent | None:
    """The environment's last start, if it is the task's own: how an earlier command ended says nothing any more."""
    if last is None or last.name is not EffectName.DEPLOY_INIT or last.task_id != task.id:
        return None
    return last if last.judged.get("sha") == sha else None


def _later(place: Place, sha: Sha, seen: Sha) -> bool:
    """A later merge that contains M is good as well; what main does not know is no such merge."""
    main = place.forge.tip(place.forge.default_branch)
    return main is not None and place.forge.contains(main, seen) and place.forge.contains(seen, sha)
