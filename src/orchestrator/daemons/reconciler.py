"""The net under every lost wake-up (S-09, F-1): finds tasks that could move and has them looked at; calls a person when
an effect stays in doubt. Escalated tasks wait for their person, but one that is broken after its merge may be closed by
what was done since; a leased one is deferred by the lease itself."""

from orchestrator.daemons.slot_audit import SlotAudit
from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.db import effects, jobs, mail, tasks
from orchestrator.db.database import Database
from orchestrator.domain.effect import Intent
from orchestrator.domain.ids import TaskId
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.runtime.clock import Clock, parse_stamp

PAGE = 500


class Reconciler:
    """Looks for work that nobody pointed to."""

    name = "reconciler"

    def __init__(
        self,
        database: Database,
        driver: TaskDriver,
        *,
        clock: Clock,
        interval_s: float,
        in_doubt_alert_s: float,
    ) -> None:
        self.interval_s = interval_s
        self._database = database
        self._driver = driver
        self._audit = SlotAudit(database)
        self._clock = clock
        self._alert_s = in_doubt_alert_s

    def run_once(self) -> dict[str, int]:
        """One pass over open tasks, waiting signals and unsettled effects."""
        due: set[TaskId] = set()
        after = 0
        while True:
            with self._database.read() as tx:
                page = tasks.list_open(tx, after=after, limit=PAGE)
                due |= {
                    task.id
                    for task in page
                    if (task.hold is not Hold.ESCALATED or task.stage is Stage.DEPLOY)
                    and jobs.active_of_task(tx, task.id) is None
                }
            if not page:
                break
            after = page[-1].id
        with self._database.read() as tx:
            due |= set(mail.tasks_with_signals(tx))
            unsettled = effects.all_unsettled(tx)
        due |= {effect.task_id for effect in unsettled}
        contradictions, turns = self._audit.run_once()
        due |= set(turns)
        self._driver.wake(sorted(due))
        return {
            "looked_at": len(due),
            "alerts": self._alert(unsettled),
            "slot_contradictions": contradictions,
        }

    def _alert(self, unsettled: list[Intent]) -> int:
        """Once per effect: its fact cannot be read for longer than a person should be left in the dark (law 4)."""
        now = self._clock.utc()
        late = [e for e in unsettled if (now - parse_stamp(e.intent_at)).total_seconds() > self._alert_s]
        if not late:
            return 0
        with self._database.write() as tx:
            for effect in late:
                task = tasks.get(tx, effect.task_id)
                since = f"{effect.state} since {effect.intent_at}"
                text = f"{task.work_item}: {effect.name} is {since}; nothing is guessed."
                payload = {"text": text, "work_item": task.work_item}
                mail.send(tx, "alert", f"alert:effect:{effect.effect_id}", payload, task_id=task.id)
        return len(late)
