"""What a Plane holds, and how it changes: every change leaves an activity, a new `updated_at` and webhooks behind it.

The real server writes activities, and sends webhooks, in a worker of its own, a moment after the change has been
answered; `World.late` makes that moment as long as a test wants it.
"""

import itertools
import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

DEFAULT_STATES = (
    ("Backlog", "backlog", "#60646C"),
    ("Todo", "unstarted", "#60646C"),
    ("In Progress", "started", "#F59E0B"),
    ("Done", "completed", "#46A758"),
    ("Cancelled", "cancelled", "#9AA4BC"),
)
# What the browser's pages call the fields that the API names otherwise.
OF_PAGES = {"state": "state_id", "labels": "label_ids", "assignees": "assignee_ids"}
_SCRIPT = re.compile(r"<(script|style)\b.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)


def new_id() -> str:
    return str(uuid.uuid4())


def sanitised(html: str) -> str:
    """What the server keeps of a description."""
    return _SCRIPT.sub("", html)


@dataclass
class User:
    """Somebody with a key, or a person at a browser."""

    id: str
    display_name: str
    first_name: str = ""
    last_name: str = ""

    @property
    def email(self) -> str:
        return f"{self.display_name}@acme.example"


@dataclass
class State:
    id: str
    name: str
    group: str
    color: str
    sequence: float
    created: str
    default: bool = False
    external_id: str | None = None
    external_source: str | None = None


@dataclass
class Label:
    id: str
    name: str
    color: str
    created: str


@dataclass
class Comment:
    id: str
    html: str
    actor: User
    created: str
    updated: str
    external_id: str | None = None
    external_source: str | None = None
    access: str = "INTERNAL"


@dataclass
class Link:
    id: str
    url: str
    title: str | None
    by: User
    created: str


@dataclass
class Activity:
    id: str
    verb: str
    field: str | None
    old: str | None
    new: str | None
    said: str
    old_id: str | None
    new_id: str | None
    actor: User
    at: str


@dataclass
class Item:
    """A work item."""

    id: str
    sequence: int
    name: str
    html: str
    state: State
    by: User
    created: str
    updated: str
    labels: list[Label] = field(default_factory=list)
    priority: str = "none"
    external_id: str | None = None
    external_source: str | None = None
    completed: str | None = None
    archived: str | None = None
    updated_by: User | None = None
    comments: list[Comment] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)


@dataclass
class Project:
    id: str
    identifier: str
    name: str
    created: str
    states: list[State] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    members: list[User] = field(default_factory=list)
    archived: str | None = None
    deleted: bool = False
    counted: int = 0

    def state(self, wanted: str) -> State:
        """By name or id."""
        return next(one for one in self.states if wanted in (one.name, one.id))

    def label(self, wanted: str) -> Label:
        return next(one for one in self.labels if wanted in (one.name, one.id))

    def visible(self) -> list[Item]:
        """What lists show: nothing of an archived project, and no archived item."""
        return [] if self.archived else [item for item in self.items if not item.archived]


@dataclass(frozen=True)
class Happened:
    """What a webhook will tell, but for `data`: that is read when it is sent."""

    event: str
    action: str
    project: Project
    item: Item | None
    comment: Comment | None
    actor: User
    field: str | None = None
    old: Any = None
    new: Any = None


class World:
    """One workspace and its projects. Safe for many threads under `lock`."""

    def __init__(self, clock: Callable[[], datetime], slug: str = "acme") -> None:
        self.slug, self.id, self.clock = slug, new_id(), clock
        self.lock = threading.RLock()
        self.projects: list[Project] = []
        self.tell: Callable[[Happened], None] = lambda happened: None
        self.late = False  # the worker does nothing until `catch_up`
        self.ahead = timedelta()  # how far the server's clock is ahead
        self._waiting: list[Callable[[], None]] = []
        self._last = datetime.min.replace(tzinfo=UTC)

    def now(self) -> str:
        """The server's time; no two moments are the same."""
        self._last = max(self.clock() + self.ahead, self._last + timedelta(microseconds=1))
        return self._last.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def new_project(self, identifier: str, name: str, *members: User) -> Project:
        with self.lock:
            made = Project(new_id(), identifier, name, self.now(), members=list(members))
            for number, (title, group, color) in enumerate(DEFAULT_STATES):
                sequence = 15000.0 + 10000 * number
                made.states.append(
                    State(new_id(), title, group, color, sequence, self.now(), default=number == 0)
                )
            self.projects.append(made)
            return made

    def new_state(self, project: Project, name: str, group: str, color: str = "#60646C") -> State:
        with self.lock:
            last = max(state.sequence for state in project.states)
            project.states.append(State(new_id(), name, group, color, last + 15000, self.now()))
            return project.states[-1]

    def new_label(self, project: Project, name: str, color: str = "#00aa55") -> Label:
        with self.lock:
            project.labels.append(Label(new_id(), name, color, self.now()))
            return project.labels[-1]

    def find(self, item_id: str) -> tuple[Project, Item] | None:
        found = ((p, i) for p in self.projects for i in p.items if i.id == item_id)
        return next(found, None)

    def new_item(self, project: Project, by: User, name: str, **more: Any) -> Item:
        with self.lock:
            project.counted += 1
            at = self.now()
            state = more.pop("state", None) or next(one for one in project.states if one.default)
            html = sanitised(more.pop("html", "<p></p>"))
            item = Item(new_id(), project.counted, name, html, state, by, at, at, **more)
            if state.group == "completed":
                item.completed = at
            project.items.append(item)
            self._later(lambda: self._created(project, item, by))
            return item

    def _created(self, project: Project, item: Item, by: User) -> None:
        said = "created the issue"
        item.activities.append(
            Activity(new_id(), "created", None, None, None, said, None, None, by, item.created)
        )
        item.updated = self.now()
        self.tell(Happened("issue", "created", project, item, None, by))

    def change(self, project: Project, item: Item, by: User, wanted: dict[str, Any], *, page: bool) -> None:
        """Change what is named: a new value tells of itself, an unchanged one is passed over without a word. `page`:
        from a browser, not by the API."""
        with self.lock:
            told: list[tuple[str, Any, Any]] = []
            item.updated, item.updated_by = self.now(), by
            for name, value in wanted.items():
                old, new = _set(item, name, value, self.now)
                if old != new:
                    told.append((name, old, new))
            for name, old, new in told:
                self._later(partial(self._changed, project, item, by, name, old, new, page))

    def _changed(
        self, project: Project, item: Item, by: User, name: str, old: Any, new: Any, page: bool
    ) -> None:
        item.updated = self.now()  # before the log tells of it
        item.activities += [
            Activity(new_id(), "updated", name, *shown, by, self.now())
            for shown in _as_activities(project, name, old, new)
        ]
        called = OF_PAGES.get(name, name) if page else name
        self.tell(Happened("issue", "updated", project, item, None, by, called, old, new))

    def comment(self, project: Project, item: Item, by: User, html: str, **more: Any) -> Comment:
        with self.lock:
            at = self.now()
            made = Comment(new_id(), html, by, at, at, **more)
            item.comments.append(made)
            self._later(lambda: self._about_comment(project, item, made, by, "created"))
            return made

    def edit_comment(self, project: Project, item: Item, made: Comment, by: User, html: str) -> None:
        with self.lock:
            old, made.html, made.updated = made.html, html, self.now()
            self._later(
                lambda: self._about_comment(
                    project, item, made, by, "updated", field="comment_html", old=old, new=html
                )
            )

    def drop_comment(self, item: Item, made: Comment) -> None:
        """No webhook tells of it."""
        with self.lock:
            item.comments.remove(made)
            self._later(lambda: self._touch(item))

    def _about_comment(
        self, project: Project, item: Item, made: Comment, by: User, action: str, **more: Any
    ) -> None:
        self._touch(item)
        self.tell(Happened("issue_comment", action, project, item, made, by, **more))

    def link(self, item: Item, by: User, url: str, title: str | None) -> Link:
        """No webhook tells of it."""
        with self.lock:
            item.links.append(Link(new_id(), url, title, by, self.now()))
            self._later(lambda: self._touch(item))
            return item.links[-1]

    def delete_project(self, project: Project, by: User) -> None:
        with self.lock:
            project.deleted = True
            self._later(lambda: self.tell(Happened("project", "deleted", project, None, None, by)))

    def catch_up(self) -> None:
        """Let the worker do what it has not done yet."""
        with self.lock:
            self.late = False
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                one()

    def _touch(self, item: Item) -> None:
        item.updated = self.now()

    def _later(self, act: Callable[[], None]) -> None:
        if self.late:
            self._waiting.append(act)
        else:
            act()


def _set(item: Item, name: str, value: Any, now: Callable[[], str]) -> tuple[Any, Any]:
    """The raw values before and after, as webhooks tell them."""
    if name == "state":
        old, item.state = item.state.id, value
        item.completed = now() if value.group == "completed" else None
        return old, value.id
    if name == "labels":
        before = [label.id for label in item.labels]
        item.labels = list(value)
        return before, [label.id for label in value]
    attribute = {"description_html": "html"}.get(name, name)
    before = getattr(item, attribute)
    setattr(item, attribute, value)
    return before, value


def _as_activities(project: Project, name: str, old: Any, new: Any) -> list[tuple[Any, Any, str, Any, Any]]:
    """Old and new value as a page shows them, the words, and the ids."""
    if name == "state":
        names = {state.id: state.name for state in project.states}
        return [(names.get(old), names.get(new), "updated the state to", old, new)]
    if name == "labels":
        names = {label.id: label.name for label in project.labels}
        gone = [(names.get(one), "", "removed label ", one, None) for one in old if one not in new]
        come = [("", names.get(one), "added label ", None, one) for one in new if one not in old]
        return list(itertools.chain(gone, come))
    return [(str(old), str(new), f"updated the {name.removesuffix('_html')} to", None, None)]
