"""Which of a project's states shows a task's stage. Decides, and asks nobody."""

from collections.abc import Iterable, Mapping

from orchestrator.domain.stage import Stage
from orchestrator.trackers.plane_records import PlaneState

_GROUPS = {Stage.DONE: "completed", Stage.CANCELLED: "cancelled"}
_AT_WORK = "started"


def state_of(
    stage: Stage,
    states: Iterable[PlaneState],
    now: PlaneState | None,
    *,
    chosen: Mapping[str, str],
    words: frozenset[str],
) -> PlaneState | None:
    """The state that a ticket should be moved to; None where it may stay where it is.

    ``chosen``: what is configured for a stage, a state's id or its name in lower case. Else the group decides, and any
    state of it will do but for ``words``, those by which people say something: one that the ticket is in already, or
    else the group's first. Nothing shows a task that has only been filed.
    """
    known = sorted(states, key=lambda state: (state.sequence, state.id))
    wanted = chosen.get(stage)
    if wanted is not None:
        found = next((state for state in known if state.among(frozenset({wanted}))), None)
        if found is not None:
            return None if now is not None and now.id == found.id else found
    if stage is Stage.CREATED:
        return None
    group = _GROUPS.get(stage, _AT_WORK)
    fitting = [state for state in known if state.group == group and not state.among(words)]
    if now is not None and now.id in {state.id for state in fitting}:
        return None
    return fitting[0] if fitting else None
