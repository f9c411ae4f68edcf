"""Start and stop order of one service (DESIGN §7)."""

import threading
from types import TracebackType

import structlog

from orchestrator.daemons.daemon import Daemon, Loop
from orchestrator.wiring import App

log = structlog.get_logger(__name__)


class Service:
    """All daemons of one process, an orchestrator's or a worker's.

    Start: the guard, recovery, then the driver, the worker and the timers; stop: the reverse.

    Stopping claims nothing more, lets transitions that run finish within the budget, and leaves agents running (law 8).
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._heartbeat = self._loop(app.heartbeat)
        self._loops = self._of_a_worker() if app.home else self._of_an_orchestrator()
        self._started = False

    def _of_an_orchestrator(self) -> list[Loop]:
        app = self._app
        loops = [
            self._loop(app.outbox, wake=app.wakeups.outbox),
            self._loop(app.inbox, wake=app.wakeups.inbox),
            self._loop(app.worker, wake=app.wakeups.queue),
            self._loop(app.cleaner),
            self._loop(app.guard_watch),
            self._loop(app.repository_watch),
            self._loop(app.housekeeper),
        ]
        if app.telegram_outbox is not None:
            loops.append(self._loop(app.telegram_outbox, wake=app.wakeups.alerts))
        if app.apprise_outbox is not None:
            loops.append(self._loop(app.apprise_outbox, wake=app.wakeups.further_alerts))
        if app.plane_outbox is not None and app.ticket_watch is not None:
            loops.append(self._loop(app.plane_outbox, wake=app.wakeups.told))
            loops.append(self._loop(app.ticket_watch, wake=app.wakeups.tickets))
        if app.issues_outbox is not None and app.issue_watch is not None:
            loops.append(self._loop(app.issues_outbox, wake=app.wakeups.told_at_github))
            loops.append(self._loop(app.issue_watch, wake=app.wakeups.issues))
        if app.settings.on_postgres:  # a file has one owner
            loops.append(self._loop(app.schema_watch))
        if app.settings.reaper_enabled:
            loops += [self._loop(app.reaper), self._loop(app.lease_reaper)]
        if app.settings.drift_watch_enabled:
            loops.append(self._loop(app.drift_watch))
        if app.settings.reconciler_enabled:
            loops.append(self._loop(app.reconciler))
        return loops

    def _of_a_worker(self) -> list[Loop]:
        """What looks after its own agents and its own folder; tickets, messages and environments are others'."""
        app = self._app
        return [
            self._loop(app.worker, wake=app.wakeups.queue),
            self._loop(app.home_tasks),
            self._loop(app.home_cleaner),
            self._loop(app.guard_watch),
            self._loop(app.housekeeper),
            self._loop(app.schema_watch),
            self._loop(app.reaper),
        ]

    def start(self) -> None:
        """See whether database and forges belong together, recover, then run."""
        app = self._app
        app.wakeups.stopping.clear()
        self._heartbeat.start()  # as long as anything of ours may act: trust in our own leases rests on it
        app.wakeups.on_tasks(app.driver.wake, others_too=bool(app.home))
        app.listen()
        if not app.home:
            app.announce_channels()  # before the guard, which may have something to say
        app.guard.start()
        self._recover()
        app.driver.start()
        for loop in self._loops:
            loop.start()
        self._started = True

    def _recover(self) -> None:
        app = self._app
        if app.home:
            log.info("recovered", **app.recovery.adopt())
            return
        requeued = app.recovery.requeue_running_jobs()
        recovered = app.recovery.recover_on_startup()
        if app.self_deploys.begin():
            self._loops.append(self._loop(app.self_deploys))
        log.info("recovered", requeued_checks=requeued, **recovered)

    def stop(self) -> None:
        """End within ``shutdown_budget_s``; what takes longer is left to the next start's recovery."""
        if not self._started:
            return
        app, end = self._app, self._app.clock.boottime() + self._app.settings.shutdown_budget_s
        app.wakeups.stopping.set()
        app.worker.stop()
        app.driver.stop()
        for loop in reversed(self._loops):
            loop.stop()
        late = [
            part
            for part, ended in (
                ("jobs", app.worker.join(end - app.clock.boottime())),
                ("transitions", app.driver.join(max(0.0, end - app.clock.boottime()))),
                *(
                    (f"daemon {n}", loop.join(max(0.1, end - app.clock.boottime())))
                    for n, loop in enumerate(self._loops)
                ),
            )
            if not ended
        ]
        self._heartbeat.stop()
        self._heartbeat.join(0.1)
        log.info("stopped", unfinished=late)
        self._started = False

    def ready(self) -> bool:
        """Whether every daemon runs, and there is a repository that something may be done for, if there is any."""
        alive = all(loop.snapshot()["alive"] for loop in (self._heartbeat, *self._loops))
        return self._started and alive and not self._app.guard.all_closed()

    def __enter__(self) -> "Service":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _loop(self, daemon: Daemon, *, wake: threading.Event | None = None) -> Loop:
        app = self._app
        return Loop(daemon, clock=app.clock, entropy=app.entropy, telemetry=app.telemetry, wake=wake)
