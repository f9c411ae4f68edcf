"""What people ask, over all that is there."""

from collections.abc import Callable
from functools import cached_property

from orchestrator.daemons.ticket_watch import TicketWatch
from orchestrator.domain.lease import Actor
from orchestrator.installation.acceptance import Acceptance
from orchestrator.installation.moving import Moving
from orchestrator.installation.new_folder import NewFolder
from orchestrator.installation.survey import Surveyor
from orchestrator.operations.desk import Operations
from orchestrator.trackers.source import TicketSource
from orchestrator.wiring.watch import Watch


class App(Watch):
    """One installation, put together. Nothing runs until :class:`orchestrator.main.Service` starts it."""

    @cached_property
    def restore(self) -> Acceptance:
        """What a person does about a restored database or forge."""
        return Acceptance(
            self.database,
            Surveyor(self.database, self.folders, self.comparison),
            self.guard,
            self.deployer,
            boot_id=self.boot_id,
            entropy=self.entropy,
            wake=self.wake_for(Actor.OPERATOR),
        )

    def new_folder(self, alone: Callable[[], None]) -> NewFolder:
        """What a person does about a state folder that is lost for good."""
        return NewFolder(
            self.database, self.deployer, state_id=self.state_id, boot_id=self.boot_id, alone=alone
        )

    @cached_property
    def moving(self) -> Moving:
        """What a person does about a repository that was renamed."""
        return Moving(self.database, self.places, self.comparison, wake=self.wake_for(Actor.OPERATOR))

    @cached_property
    def operations(self) -> Operations:
        """The operator's desk."""
        return Operations(
            self.database,
            self.ownership,
            self.configs,
            self.deployer,
            clock=self.clock,
            entropy=self.entropy,
            wake=self.wake_for(Actor.OPERATOR),
            extra=self._daemon_blocks,
            shares=self.settings.shares,
            why_restored=self.guard.why_restored,
            give_up=lambda ids: self.driver.give_up(ids),
        )

    @cached_property
    def ticket_watch(self) -> TicketWatch | None:
        """Reads tickets at Plane; None where none is configured."""
        settings = self.settings
        silence_s = settings.plane_silence_s if settings.plane_webhook_secret else None
        configured = self.plane.access.configured
        return self._watching(self.plane, settings.plane_poll_interval_s, silence_s) if configured else None

    @cached_property
    def issue_watch(self) -> TicketWatch | None:
        """Reads issues at GitHub; None where no token is configured."""
        settings = self.settings
        silence_s = settings.github_silence_s if settings.github_webhook_secret else None
        configured = self.issues.configured
        return self._watching(self.issues, settings.github_poll_interval_s, silence_s) if configured else None

    def _watching(self, source: TicketSource, interval_s: float, silence_s: float | None) -> TicketWatch:
        return TicketWatch(
            self.database,
            source,
            self.receiver,
            self.operations.add_task,
            interval_s=interval_s,
            silence_s=silence_s,
            alert_s=self.settings.in_doubt_alert_s,
            clock=self.clock,
        )

    def _daemon_blocks(self) -> dict[str, object]:
        return {
            "queue_worker": self.worker.snapshot(),
            "driver": self.driver.snapshot(),
            "drift": {
                **self.settings.drift_watch_scope.shown(),
                "environments": self.drift_watch.snapshot(),
            },
            "reaper": {**self.settings.reaper_scope.shown(), **self.reaper.snapshot()},
            "reconciler": {**self.settings.reconciler_scope.shown(), **self.reconciler.snapshot()},
        }
