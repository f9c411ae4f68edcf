"""``orch task``: file, look at and decide about tasks."""

from collections.abc import Mapping
from typing import Any, BinaryIO, cast

import click

from orchestrator.cli.answers import REFUSED, answer_soon, goes_on
from orchestrator.cli.desk import Desk, acting, reading
from orchestrator.cli.follow import event_of
from orchestrator.cli.options import (
    Whole,
    as_work_item,
    json_option,
    person_option,
    person_or_user,
    plain_text,
    ticket_from,
    work_item_argument,
)
from orchestrator.cli.resolve import known_repository
from orchestrator.cli.terminal import age, say, say_json, table
from orchestrator.dashboard.views import sentence
from orchestrator.domain.ids import WorkItem
from orchestrator.operations.deciding import SUBJECT
from orchestrator.operations.reading import NEWEST
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import SystemProcesses
from orchestrator.stage_engine.answers import was_refused
from orchestrator.web.views import Plain


@click.group("task")
def command() -> None:
    """File, look at and decide about tasks."""


@command.command("add")
@click.argument("title")
@click.option("--repo", help="The repository; by default the one whose checkout you stand in.")
@click.option("--body", help="The ticket's text.")
@click.option("--body-file", type=click.File("rb"), help="Take the text from a file; - is standard input.")
@click.option("--label", "labels", multiple=True, help="A label, such as fast or full; may be repeated.")
@click.option("--depends-on", "depends_on", multiple=True, metavar="TASK", help="Wait for this task first.")
@click.option("--external-id", help="The ticket's id elsewhere: filed twice, it is one task.")
@click.option("--priority", type=Whole(-1000, 1000), default=0, help="Higher goes first.")
@json_option
def add(
    title: str,
    repo: str | None,
    body: str | None,
    body_file: BinaryIO | None,
    labels: tuple[str, ...],
    depends_on: tuple[str, ...],
    external_id: str | None,
    priority: int,
    as_json: bool,
) -> int:
    """File a ticket; TITLE says in a few words what is wanted."""
    ticket = ticket_from(
        title,
        body,
        body_file,
        labels,
        depends_on=tuple(WorkItem(as_work_item(plain_text(item, "task"))) for item in depends_on),
        external_id=plain_text(external_id, "id") or None,
    )
    with acting("task add") as desk:
        at = known_repository(desk, Git(SystemProcesses()), repo)
        filed = desk.add_task(at.name, ticket, priority)
        served = desk.served
    if as_json:
        say_json({**filed, "served": served})
    else:
        say(f"{filed['work_item']} is filed in {at.name}. {goes_on(served)}")
    return 0


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that have ended, newest first.")
@click.option("--limit", type=Whole(1, 500), default=100, show_default=True)
@click.option("--before", type=Whole(0, 2**62), default=NEWEST, hidden=True)
@click.option("--after", type=Whole(0, 2**62), default=0, hidden=True)
@json_option
def list_(everything: bool, limit: int, before: int, after: int, as_json: bool) -> int:
    """List tasks that have not ended."""
    with reading() as desk:
        page = desk.tasks(open_only=not everything, before=before, after=after, limit=limit)
    if as_json:
        say_json(page)
        return 0
    clock = SystemClock()
    rows = [
        (
            str(t["work_item"]),
            str(t["stage"]),
            str(t["hold"] or ""),
            str(t["track"] or ""),
            age(t["updated_at"], clock),
            str(t["title"]),
        )
        for t in cast(list[Plain], page["tasks"])
    ]
    none = "No tasks." if everything else "No open tasks. `--all` lists those that have ended, too."
    say(table(rows, ("TASK", "STAGE", "HELD", "TRACK", "AGE", "TITLE")) if rows else none)
    return 0


@command.command("show")
@work_item_argument
@click.option("--events", "with_events", is_flag=True, help="The whole story, event by event.")
@click.option("--documents", "with_documents", is_flag=True, help="The documents kept with the task.")
@json_option
def show(work_item: str, with_events: bool, with_documents: bool, as_json: bool) -> int:
    """Show what is known of a task."""
    with reading() as desk:
        story = desk.story(work_item)
        if as_json:
            story = {**story, "why": desk.why(work_item)}
            if with_events:
                story["events"] = _all_events(desk, work_item, story)
            say_json(story)
            return 0
        why = desk.why(work_item)
        events = _all_events(desk, work_item, story) if with_events else []
    _say_task(cast(Plain, story["task"]), why)
    _say_work(story)
    if with_events:
        say("\nEvents")
        for row in events:
            text = sentence(event_of(row))
            say(f"  {str(row['at'])[:19].replace('T', ' ')}  {row['type']:<18} {row['actor']:<11} {text}")
    if with_documents:
        for document in cast(list[Plain], story["documents"]):
            say(f"\n--- {document['name']} (round {document['round']}, about {document['subject']})")
            say(str(document["content"]))
    return 0


def _seen(ctx: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuse what is no commit here, in the same words whether a service runs or not."""
    if value is not None and not SUBJECT.fullmatch(value):
        raise click.BadParameter(
            f"{ascii(value[:80])} names no commit: it takes at least 7 hexadecimal digits. Nothing was changed."
        )
    return value


def _decision(name: str, text: str, *, reason_required: bool = False) -> None:
    @command.command(name, help=text)
    @work_item_argument
    @click.option("--reason", required=reason_required, help="Why; kept with the task.")
    @click.option(
        "--sha",
        "--subject",
        "subject",
        metavar="SHA",
        callback=_seen,
        help="The commit you saw; refused where another is on show.",
    )
    @person_option
    @json_option
    def decide(
        work_item: str, reason: str | None, subject: str | None, person: str | None, as_json: bool
    ) -> int:
        said, who = plain_text(reason, "reason"), plain_text(person_or_user(person), "name")
        with acting(f"task {name}") as desk:
            receipt = desk.decide(work_item, name, person=who, reason=said, subject=subject)
            outcome = answer_soon(desk, work_item, cast(int, receipt["signal_id"])) if desk.served else None
            served = desk.served
        refused = was_refused(outcome)
        if as_json:
            say_json({**receipt, "outcome": outcome, "served": served})
        elif outcome is None:
            say(f"{work_item}: {name} is received. {goes_on(served)}")
        else:
            say(f"{work_item}: {name} was {outcome}.")
        return REFUSED if refused else 0


_decision("approve", "Give the approval that a task waits for: its analysis, or the deploy of its candidate.")
_decision(
    "reject", "Refuse what a task asks approval for; it goes back with the reason.", reason_required=True
)
_decision("retry", "Let an escalated or blocked task go on; its bounds begin anew.")
_decision("cancel", "Cancel a task; refused once its change is on the default branch.")


def _all_events(desk: Desk, work_item: str, story: Plain) -> list[Plain]:
    """The whole story; the desk tells it a page at a time."""
    found = list(cast(list[Plain], story["events"]))
    page = found
    while page:
        after = cast(int, page[-1]["id"])
        page = cast(list[Plain], desk.events(work_item, after)["events"])
        found += page
    return found


def _say_task(task: Plain, why: Plain) -> None:
    say(f"{task['work_item']}  {task['title']}")
    say(str(why["line"]))
    facts: list[tuple[str, Any]] = [
        ("repository", task["repo"]),
        ("stage", f"{task['stage']}, round {task['round']}, track {task['track'] or 'not decided'}"),
        ("labels", ", ".join(cast(list[str], task["labels"]))),
        ("branch", task["branch"]),
        ("head", task["head_sha"]),
        ("judged", task["gated_sha"]),
        ("pull request", task["pr_number"]),
        ("filed", task["created_at"]),
    ]
    for name, value in facts:
        if value:
            say(f"  {name:<13} {value}")
    if task["body"]:
        say(f"\n{task['body']}")


def _say_work(story: Plain) -> None:
    spent = cast(Mapping[str, Any], story["spent"])
    runs, effects = cast(list[Plain], story["runs"]), cast(list[Plain], story["effects"])
    if runs:
        rows = [
            (
                str(r["kind"]),
                str(r["agent"]),
                str(r["attempt"]),
                str(r["outcome"] or "running"),
                _cost(r),
                str(r["summary"]),
            )
            for r in runs
        ]
        say("\n" + table(rows, ("ROLE", "AGENT", "ATTEMPT", "OUTCOME", "COST", "LAST WORDS")))
        say(f"Spent: {spent['total_tokens']} tokens, ${spent['cost_usd'] or 0:.4f}")
    if effects:
        rows2 = [(str(e["effect_id"]), str(e["name"]), str(e["state"]), str(e["key"])) for e in effects]
        say("\n" + table(rows2, ("NO", "EFFECT", "STATE", "KEY")))


def _cost(run: Plain) -> str:
    cost = cast(Mapping[str, Any], run["usage"])["cost_usd"]
    return "" if cost is None else f"${cost:.4f}"
