"""What became of a decision, as far as it is known when the command ends."""

import threading

from orchestrator.cli.desk import Desk
from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.clock import SystemClock

REFUSED = 1
ANSWER_WAIT_S = 5.0  # a running service answers a decision in moments, unless the task is busy
POLL_S = 0.1


def answer_soon(desk: Desk, work_item: str, signal_id: int) -> str | None:
    """What the running service made of it, if it says so soon; the decision is stored, also where it ends meanwhile."""
    clock, never = SystemClock(), threading.Event()
    deadline = clock.boottime() + ANSWER_WAIT_S
    while clock.boottime() < deadline:
        try:
            outcome = desk.outcome(work_item, signal_id)
        except OutsideError:
            return None
        if outcome is not None:
            return outcome
        clock.wait(never, POLL_S)
    return None


def goes_on(served: bool) -> str:
    """Who takes it up."""
    return "The service works on it." if served else "Nothing runs now: `orch serve` takes it up."
