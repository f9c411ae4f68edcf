"""Whether a task waits for nothing but a service that works on it."""

from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.web.views import Plain

NO_SERVICE = "No service is running: `orch serve` works on what waits."

_OTHERS = frozenset({Hold.ESCALATED, Hold.PERSON, Hold.FROZEN})  # a person has the next word


def waits_for_work(task: Plain) -> bool:
    """True where a service would go on with the task, or would find out whether it can."""
    return not Stage(str(task["stage"])).terminal and task["hold"] not in _OTHERS
