"""What the pages show, worked out from what the desk says. Pure: values in, values out."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from orchestrator.dashboard.next_steps import FROZEN_GUIDE, needs_guide, next_steps
from orchestrator.dashboard.records import (
    Board,
    Card,
    Column,
    EffectLine,
    Frozen,
    Line,
    RunLine,
    Running,
    TaskPage,
)
from orchestrator.domain.event import Event, EventType
from orchestrator.domain.ids import short_names
from orchestrator.domain.job import AgentRun, JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.operations.reading import TaskStory, Why
from orchestrator.runtime.clock import parse_stamp

CARD_TITLE = 160  # characters of a title on a card; the task's own page has all of it
HEADING_TITLE = 240
ENDED_SHOWN = 8
DOCUMENT_SHOWN = 200_000

_HOLD_WORDS = {
    Hold.ESCALATED: "escalated",
    Hold.BLOCKED: "blocked",
    Hold.PERSON: "needs approval",
    Hold.SLOT: "waits for a slot",
    Hold.FROZEN: "repository frozen",
}


def board(
    open_tasks: list[Task], recent: list[Task], queue: Mapping[str, object], now: datetime, limit: int
) -> Board:
    """The first page; ``recent`` gives the tasks that ended last."""
    owners = {str(row["task"]): str(row["owner"]) for row in _rows(queue, "transition_lease", "holders")}
    jobs = {str(row["task"]): _work(row) for row in _rows(queue, "queued")}
    jobs |= {str(row["task"]): _work(row) for row in _rows(queue, "running")}
    acts = {row["task_id"]: f"drives {row['effect']} ({row['state']})" for row in _rows(queue, "effects")}
    shown = [*open_tasks, *[task for task in recent if task.stage.terminal][:ENDED_SHOWN]]
    cards: dict[Stage, list[Card]] = {stage: [] for stage in Stage}
    for task in shown:
        work = acts.get(task.id) or jobs.get(task.work_item, "")
        cards[task.stage].append(card(task, now, owners.get(task.work_item, ""), work))
    return Board(
        columns=tuple(
            Column(stage.value, tuple(found))
            for stage, found in cards.items()
            if found or stage is not Stage.CANCELLED
        ),
        needs_person=tuple(c for found in cards.values() for c in found if c.needs_person),
        running=tuple(
            Running(str(row["task"]), str(row["kind"]), row.get("attempt"), age(row.get("since"), now))
            for row in _rows(queue, "running")
        ),
        queued=len(_rows(queue, "queued")),
        frozen=tuple(
            Frozen(
                str(f["repo"]),
                str(f["reason"]),
                str(f["task"] or ""),
                age(f["since"], now),
                str(f["lent_to"] or ""),
            )
            for f in _rows(queue, "serial_gate", "frozen")
        ),
        open_tasks=len(open_tasks),
        more=len(open_tasks) >= limit,
    )


def card(task: Task, now: datetime, owner: str = "", work: str = "") -> Card:
    """One task on the board; its age is how long it has been as it is."""
    hold = task.hold.value if task.hold else ""
    return Card(
        work_item=task.work_item,
        title=cut(task.title, CARD_TITLE),
        repo=task.repo,
        track=task.track.value if task.track else "",
        round=task.round,
        age=age(task.hold_since or task.updated_at, now),
        hold=hold,
        hold_words=_HOLD_WORDS[task.hold] if task.hold else "",
        hold_reason=cut(short_names(task.hold_reason or ""), 200),
        owner=owner,
        work=work,
    )


def task_page(story: TaskStory, why: Why, queue: Mapping[str, object], now: datetime, page: int) -> TaskPage:
    """A task's own page."""
    task = story.task
    frozen = any(row["repo"] == task.repo for row in _rows(queue, "serial_gate", "frozen"))
    steps = next_steps(task.work_item, task.stage, task.hold, task.repo, frozen=frozen, subject=why.subject)
    candidate = story.candidates[-1] if story.candidates else None
    facts = (
        ("Repository", task.repo),
        ("Track", task.track.value if task.track else "not decided"),
        ("Round", str(task.round)),
        ("Branch", task.branch or "none yet"),
        ("Base", _short(task.base_sha)),
        ("Head", _short(task.head_sha)),
        ("Judged commit", _short(task.gated_sha)),
        ("Candidate", _short(candidate.sha if candidate else None)),
        ("Pull request", f"#{task.pr_number}" if task.pr_number else "none yet"),
        ("Filed", f"{age(task.created_at, now)} ago"),
    )
    cost = story.spent.cost_usd
    return TaskPage(
        card=card(task, now),
        stage=task.stage.value,
        heading=cut(task.title, HEADING_TITLE),
        title=task.title,
        body=task.body,
        labels=task.labels,
        why=why,
        steps=steps,
        guide=FROZEN_GUIDE if needs_guide(task.stage, task.hold, frozen=frozen) else "",
        facts=facts,
        lines=tuple(line(event) for event in story.events),
        effects=tuple(
            EffectLine(
                e.name.value, cut(e.key, 80), e.state.value, e.round, e.effect_id, age(e.intent_at, now)
            )
            for e in story.effects
        ),
        runs=tuple(_run(kind, run, now) for kind, run in story.runs),
        documents=tuple(
            (d.name, d.content[:DOCUMENT_SHOWN].decode("utf-8", "replace")) for d in story.documents
        ),
        spent=f"{story.spent.total_tokens:,} tokens" + (f", ${cost:.2f}" if cost is not None else ""),
        more_events=len(story.events) >= page,
    )


def line(event: Event) -> Line:
    """An event in words."""
    data = event.data
    text = sentence(event)
    tone = ""
    if event.type in (EventType.HELD, EventType.REPO_FROZEN, EventType.EFFECT_IN_DOUBT):
        tone = "bad"
    elif event.type in (EventType.GATE_JUDGED, EventType.RUN_FINISHED):
        verdict = str(data.get("verdict", data.get("outcome", "")))
        tone = {"pass": "good", "done": "good", "wait": ""}.get(verdict, "bad")
    elif event.type is EventType.STAGE_CHANGED:
        tone = "good" if event.to_stage is Stage.DONE else "busy"
    return Line(event.at[:19].replace("T", " "), event.at[11:19], event.type.value, event.actor, text, tone)


def sentence(event: Event) -> str:
    """What happened, in one line of at most a few hundred characters."""
    parts: list[str] = []
    if event.type is EventType.STAGE_CHANGED:
        parts.append(f"{event.stage} → {event.to_stage}")
    parts += [
        f"{name}: {_brief(value)}" for name, value in event.data.items() if value not in (None, "", [], {})
    ]
    return cut(" · ".join(parts), 400)


def age(since: object, now: datetime) -> str:
    """How long ago a stamp was: ``just now``, ``4 min``, ``3 h``, ``12 d``; empty where it is none."""
    if not isinstance(since, str):
        return ""
    try:
        seconds = int((now - parse_stamp(since)).total_seconds())
    except ValueError:
        return ""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "0 s"


def cut(text: str, limit: int) -> str:
    """The text, or its beginning with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _run(kind: JobKind, run: AgentRun, now: datetime) -> RunLine:
    took = ""
    if run.finished_at:
        took = age(run.started_at, parse_stamp(run.finished_at))
    return RunLine(
        kind=kind.value,
        agent=run.agent,
        model=run.model or "",
        attempt=run.attempt,
        outcome=run.outcome.value if run.outcome else "running",
        tokens=f"{run.usage.total_tokens:,}",
        cost="" if run.usage.cost_usd is None else f"${run.usage.cost_usd:.4f}",
        took=took or age(run.started_at, now),
        summary=cut(run.summary, 400),
    )


def _work(job: Mapping[str, object]) -> str:
    return f"{job['kind']} {'at work' if job.get('status') == 'running' else 'queued'}"


def _rows(view: object, *path: str) -> list[Mapping[str, object]]:
    """The list at a path of the queue's view; empty where it is not there (keys are only ever added)."""
    for step in path:
        view = view.get(step) if isinstance(view, Mapping) else None
    rows = view if isinstance(view, Iterable) and not isinstance(view, str | Mapping) else []
    return [row for row in rows if isinstance(row, Mapping)]


def _brief(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_brief(item)}" for name, item in list(value.items())[:8])
    if isinstance(value, list | tuple):
        return ", ".join(_brief(item) for item in value[:8])
    return cut(short_names(str(value)), 200)


def _short(sha: str | None) -> str:
    return sha[:12] if sha else "none yet"
