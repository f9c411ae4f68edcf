"""The doors of one process over a :class:`~tests.fixtures_transition.Bench`, put together as the service does it.

Reapers, reconciler, receiver and inbox are those of ``wiring``, and so is who wakes whom; only the tools of the engine
are the bench's doubles. The loops that call the daemons are left out: a test says when one of them makes its pass.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.config.environment import load_settings
from orchestrator.daemons.task_driver import TaskDriver
from orchestrator.db import mail
from orchestrator.domain.ids import BootId
from orchestrator.domain.lease import Actor
from orchestrator.observability.redactor import Redactor
from orchestrator.runtime.clock import SystemClock
from orchestrator.stage_engine.engine import StageEngine
from orchestrator.transition_lease import Ownership
from orchestrator.wiring import App, Outside
from tests.deliveries import USER
from tests.fixtures_transition import Bench
from tests.waiting import wait_until


@dataclass(frozen=True)
class Doors:
    """What of a process a test may knock at."""

    app: App
    bench: Bench
    ownership: Ownership
    engine: StageEngine

    def deferred(self, actor: Actor) -> int:
        """How often ``actor`` has stood back from a task."""
        counted: Any = self.ownership.snapshot()["deferred"]
        return int(counted.get(actor, 0))

    def stands_back(self, actor: Actor) -> None:
        """Wait until a look of the driver on this actor's behalf has been deferred."""
        wait_until(lambda: self.deferred(actor))

    def meet_before_reaping(self, meeting: threading.Barrier) -> None:
        """The job reaper of this process waits there once it has judged a job's owner, and before it takes the job."""
        judge = self.ownership.judge
        ended = judge.ended

        def met(*args: Any) -> bool:
            answer = ended(*args)
            meeting.wait()
            return answer

        judge.ended = met  # type: ignore[method-assign]

    def comes_to_rest(self) -> None:
        """Wait until the driver has nothing to look at."""
        wait_until(lambda: self.app.driver.snapshot() == {"busy": 0, "due": 0})

    def receive(
        self, source: str, kind: str, payload: Mapping[str, Any], delivery: str = "d-1"
    ) -> int | None:
        """Deliver; the number in the inbox, None for a repeat."""
        return self.app.receiver.receive(source, kind, delivery, payload).inbox_id

    def outcome(self, inbox_id: int) -> str | None:
        """What came of a delivery; None while nothing did."""
        with self.bench.database.read() as tx:
            return mail.outcome_of(tx, inbox_id)


@contextmanager
def doors_of(
    bench: Bench, folder: Path, boot_id: str = "service", *, driving: bool = True
) -> Iterator[Doors]:
    """A living process with its daemons. Its driver looks at tasks by the machine's clock, unless ``driving`` says that
    it is not to: everything else goes by the bench's."""
    engine, ownership = bench.process(boot_id)
    settings = load_settings({"ORCH_HOME": str(folder), "ORCH_PLANE_USER": USER})
    outside = Outside({}, clock=bench.store.clock, entropy=bench.store.entropy)
    app = App(settings, outside, bench.database, Redactor(()))
    driver = TaskDriver(
        engine, threads=1, clock=SystemClock(), entropy=bench.store.entropy, wakeups=app.wakeups
    )
    vars(app).update(boot_id=BootId(boot_id), ownership=ownership, engine=engine, driver=driver)
    app.wakeups.on_tasks(driver.wake)
    if driving:
        driver.start()
    try:
        yield Doors(app, bench, ownership, engine)
    finally:
        driver.stop()
        assert not driving or driver.join(30)
