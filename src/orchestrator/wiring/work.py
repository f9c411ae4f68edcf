"""What moves tasks: the engine over its effects, agents and checks."""

from functools import cached_property

from orchestrator.agents.adapters import AGENTS
from orchestrator.agents.runs import Runs
from orchestrator.check_runner import CheckRunner
from orchestrator.daemons.queue_worker import QueueWorker
from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.db import evidence, homes, leases
from orchestrator.domain.effect import Effect, EffectName
from orchestrator.domain.ids import Home, TaskId
from orchestrator.domain.task import Candidate
from orchestrator.effects.deploy import DeployEffect
from orchestrator.effects.image import ImageEffect
from orchestrator.effects.ledger import Ledger
from orchestrator.effects.merge import MergeEffect
from orchestrator.effects.pull_request import OpenPrEffect
from orchestrator.effects.push import PushEffect
from orchestrator.images.builder import ImageBuilder
from orchestrator.launcher import Launcher
from orchestrator.monitor import Monitor
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.stage_engine.situation import OwnDelivery, Reach, Tools
from orchestrator.wiring.ground import Ground

DRIVER_THREADS = 2


class Work(Ground):
    """What moves tasks."""

    @cached_property
    def engine(self) -> StageEngine:
        """The stage engine over the ledger of effects."""
        tools = Tools(
            database=self.database,
            ownership=self.ownership,
            ledger=Ledger(
                self.database,
                self._effects(),
                term=self.term,
                waypoints=self.outside.waypoints,
                redactor=self.redactor,
                telemetry=self.telemetry,
            ),
            places=self.places,
            configs=self.configs,
            clock=self.clock,
            entropy=self.entropy,
            waypoints=self.outside.waypoints,
            why_closed=self.guard.why_closed,
            secrets=tuple(secret.reveal() for secret in self.settings.secrets()),
            ours=OwnDelivery(self.settings.self_repo, self.settings.self_deploy_timeout_s),
            telemetry=self.telemetry,
            wake=self.wakeups.tasks,
            stop_job=self.wakeups.stop,
            queued=self.wakeups.work_queued,
            reach=Reach(self.home, self._home_is_lost, agents=self.settings.max_agents > 0),
        )
        return StageEngine(tools, self.deployer, self.store)

    @cached_property
    def driver(self) -> TaskDriver:
        """Looks at tasks."""
        return TaskDriver(
            self.engine,
            threads=DRIVER_THREADS,
            clock=self.clock,
            entropy=self.entropy,
            wakeups=self.wakeups,
        )

    @cached_property
    def monitor(self) -> Monitor:
        """Finalises runs."""
        return Monitor(self.engine)

    @cached_property
    def launcher(self) -> Launcher:
        """Agents."""
        return Launcher(
            self.database,
            self.places,
            Runs(
                self.processes,
                self.clock,
                self.entropy,
                may_adopt=(lambda: self.term.number() is not None) if self.home else (lambda: True),
                one_machine=self.one_machine,
            ),
            AGENTS,
            self.folders,
            clock=self.clock,
            entropy=self.entropy,
            environ=self.environ,
            language=self.settings.language,
            run_orphan_ttl_s=self.settings.run_orphan_ttl_s,
            home=self.home,
        )

    @cached_property
    def worker(self) -> QueueWorker:
        """Runs jobs."""
        checks = CheckRunner(
            self.database,
            self.places,
            self.folders,
            self.deployer,
            self.health,
            processes=self.processes,
            clock=self.clock,
            entropy=self.entropy,
            environ=self.environ,
        )
        return QueueWorker(
            self.database,
            self.engine,
            self.launcher,
            self.monitor,
            checks,
            self.configs,
            open_repositories=self.guard.open_repositories,
            boot_id=self.boot_id,
            max_agents=self.settings.max_agents,
            max_checks=0 if self.home else self.settings.max_checks,
            interval_s=self.settings.queue_interval_s,
            clock=self.clock,
            wakeups=self.wakeups,
            telemetry=self.telemetry,
            shares=self.settings.shares,
            priority_step_s=self.settings.priority_step_s,
            home=self.home,
        )

    def _effects(self) -> dict[EffectName, Effect]:
        kinds: tuple[Effect, ...] = (
            PushEffect(self.places, self.guard),
            OpenPrEffect(self.places),
            MergeEffect(self.places, self._candidates, self.guard),
            ImageEffect(
                self.places,
                self.store,
                ImageBuilder(processes=self.processes, entropy=self.entropy),
                self.folders,
                self.environ,
                entropy=self.entropy,
            ),
            DeployEffect(EffectName.DEPLOY_INIT, self.deployer, self.wakeups.stopping),
            DeployEffect(EffectName.DEPLOY_UNDO, self.deployer, self.wakeups.stopping),
        )
        return {kind.name: kind for kind in kinds}

    def _candidates(self, task_id: TaskId) -> list[Candidate]:
        with self.database.read() as tx:
            return evidence.candidates(tx, task_id)

    def _home_is_lost(self, home: Home) -> bool:
        read_at = self.clock.boottime()
        with self.database.read() as tx:
            found, now = homes.get(tx, home), leases.now(tx)
        return self.ownership.judge.home_is_lost(found, now, read_at)
