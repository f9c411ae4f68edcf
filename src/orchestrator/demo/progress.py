"""A task's events as lines for whoever watches the demo. Pure."""

from collections.abc import Mapping

from orchestrator.domain.event import Event, EventType
from orchestrator.domain.ids import short_names
from orchestrator.domain.stage import Stage

SHA = 12  # hex digits of a commit that a line shows
TEXT_MAX = 160  # characters of somebody's words that a line shows


def line_of(work_item: str, event: Event) -> str | None:
    """One line, or None for an event that says nothing new to a person."""
    words = _words(event)
    return f"{work_item:<9} {words}" if words else None


def _words(event: Event) -> str | None:
    data = event.data
    match event.type:
        case EventType.TASK_CREATED:
            return f"filed: {_text(data, 'title')}"
        case EventType.STAGE_CHANGED:
            return _moved(event)
        case EventType.RUN_STARTED | EventType.JOB_CLAIMED:
            return None
        case EventType.JOB_FINISHED if data.get("status") == "done":
            return f"  {_text(data, 'job')}: finished"
        case EventType.JOB_FINISHED | EventType.JOB_REQUEUED:
            return f"  {_text(data, 'job') or event.stage}: not done: {_text(data, 'error')}"
        case EventType.GATE_JUDGED:
            return _judged(data)
        case EventType.CANDIDATE_BUILT:
            main, head = _sha(data, "main"), _sha(data, "head")
            return f"  candidate M is {_sha(data, 'candidate')}: main {main} + branch {head}"
        case EventType.EFFECT_SETTLED:
            return f"  {_text(data, 'effect')}: {_text(data, 'state')} ({_text(data, 'key')})"
        case EventType.EFFECT_IN_DOUBT | EventType.EFFECT_REVOKING:
            return f"  {_text(data, 'effect')}: {_text(data, 'reason')}"
        case EventType.HELD:
            return f"  waits ({_text(data, 'hold')}): {_text(data, 'reason')}"
        case EventType.REPO_FROZEN:
            return f"  the repository is frozen: {_text(data, 'reason')}"
    return None


def _moved(event: Event) -> str:
    kind = event.data.get("kind")
    mark = "==>" if kind == "advance" else "<=="
    round_ = event.data.get("round")
    again = f" (round {round_})" if isinstance(round_, int) and round_ > 1 else ""
    reason = "" if event.to_stage is Stage.DONE else f": {_text(event.data, 'reason')}"
    return f"{mark} {event.to_stage}{again}{reason}"


def _judged(data: Mapping[str, object]) -> str:
    gate = _text(data, "step").removeprefix("gate:") or _text(data, "gate")
    verdict = "failed" if str(data.get("verdict", "pass")) == "fail" else "passed"
    return f"  {gate} {verdict}: {_text(data, 'reason')}"


def _text(data: Mapping[str, object], key: str) -> str:
    text = " ".join(str(data.get(key) or "").split())
    clean = short_names("".join(char for char in text if char.isprintable()))
    return clean if len(clean) <= TEXT_MAX else clean[: TEXT_MAX - 1] + "…"


def _sha(data: Mapping[str, object], key: str) -> str:
    return str(data.get(key) or "")[:SHA]
