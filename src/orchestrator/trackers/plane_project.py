"""One project at a Plane: what can be asked of it, and what can be done there."""

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar, cast

from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.clock import Clock, parse_stamp, stamp
from orchestrator.trackers.plane_api import Answer, PlaneServer, good, mapping, moment, text
from orchestrator.trackers.plane_records import (
    PlaneComment,
    PlaneItem,
    PlaneMove,
    PlaneState,
    read_comment,
    read_item,
    read_move,
    read_person,
    read_state,
)
from orchestrator.trackers.source import FRESH_S, ProjectGone
from orchestrator.trackers.tracker import TrackerAway

SOURCE = "orch"  # what our comments name as their external source
CHANGES = 2_000  # work items that are read at once: more have never changed within a minute
OLD_S = 600.0  # how long names are believed
NEWS_S = 60.0  # and how long at least, although one is met that is not among them

T = TypeVar("T")


class PlaneProject:
    """Safe for many threads."""

    def __init__(self, server: PlaneServer, workspace: str, project: str, clock: Clock) -> None:
        self.server = server
        self.workspace = workspace
        self.id = project
        self._clock = clock
        self._place = f"/workspaces/{workspace}/projects/{project}"
        self._names: dict[str, tuple[float, dict[str, Any]]] = {}
        self._forgot_at = -NEWS_S
        self._lock = threading.Lock()

    # -- questions ---------------------------------------------------------------------------------------------

    def check(self) -> Mapping[str, object]:
        """The project itself.

        :raises TrackerAway: the server takes nothing now.
        :raises ProjectGone: it is not there for us.
        """
        told = self.server.call("GET", f"{self._place}/")
        if told.ok and isinstance(told.body, dict):
            if told.body.get("archived_at") is None:
                return told.body
            raise ProjectGone(
                f"The project {self.id} at {self.server.url} is archived: its tickets are hidden."
            )
        if told.status in (403, 404):
            raise ProjectGone(f"The project {self.id} at {self.server.url} is gone, or not ours to see.")
        good(told, "the project")
        raise OutsideError("Plane answered no project.")

    def item(self, item: str) -> PlaneItem | None:
        """A work item; None where the project is there and it is not: it was deleted or archived.

        :raises TrackerAway: the server takes nothing now.
        :raises ProjectGone: the project is not there for us, so that nothing is known of the work item.
        """
        told = self.server.call("GET", f"{self._items}/{item}/")
        if told.status in (403, 404):
            self.check()
            if told.status == 404 and told.body is not None:  # said by Plane itself, and by no proxy
                return None
        return read_item(mapping(good(told, "a work item").body))

    def changed(self, since: str | None) -> list[PlaneItem]:
        """The work items that have changed after a moment of Plane's clock, or every one, newest change first: what
        changes meanwhile comes before all that was read, is newer than it, and is found by the next reading.

        :raises TrackerAway: the server takes nothing now.
        :raises ProjectGone: the project is not there for us.
        """
        found: list[PlaneItem] = []
        try:
            pages = self.server.pages(f"{self._items}/", {"order_by": "-updated_at"}, background=True)
            for row in islice((row for page in pages for row in page), CHANGES):
                item = read_item(row)
                if since is not None and item.changed_at <= since:
                    break
                found.append(item)
        except TrackerAway:
            raise
        except OutsideError:
            self.check()
            raise
        if not found and since is None:
            self.check()  # an archived project shows an empty list
        return list({item.id: item for item in reversed(found)}.values())[::-1]

    def is_fresh(self, item: PlaneItem) -> bool:
        """Whether a work item has changed so lately that its log may not tell of it yet."""
        now = self._clock.utc() + timedelta(seconds=self.server.ahead_s)
        return (now - parse_stamp(item.changed_at)).total_seconds() < FRESH_S

    def moves(self, item: str, since: str) -> list[PlaneMove]:
        """The moves of a work item after a moment of Plane's clock, newest first."""
        found = []
        for row in self._rows(f"{self._items}/{item}/activities/", order_by="-created_at"):
            if stamp(moment(text(row, "created_at"))) <= since:
                break
            move = read_move(row)
            if move is not None:
                found.append(move)
        return found

    def comments(self, item: str, since: str) -> list[PlaneComment]:
        """What was written there after a moment of Plane's clock, newest first."""
        found = []
        for row in self._rows(f"{self._items}/{item}/comments/"):
            comment = read_comment(row)
            if comment.at <= since:
                break
            found.append(comment)
        return found

    def states(self) -> dict[str, PlaneState]:
        """By id."""

        def ask() -> dict[str, PlaneState]:
            return {one.id: one for one in map(read_state, self._rows(f"{self._place}/states/"))}

        return self._known("states", ask)

    def labels(self) -> dict[str, str]:
        """Names by id."""

        def ask() -> dict[str, str]:
            rows = self._rows(f"{self._place}/labels/")
            return {text(row, "id"): text(row, "name") for row in rows}

        return self._known("labels", ask)

    def people(self) -> dict[str, str]:
        """Names of members by id; none where they are not ours to see."""

        def ask() -> dict[str, str]:
            told = self.server.call("GET", f"{self._place}/members/")
            rows = told.body if isinstance(told.body, list) else []
            return dict(map(read_person, rows))

        return self._known("people", ask)

    # -- acts --------------------------------------------------------------------------------------------------

    def move(self, item: str, state: str) -> Answer:
        """Ask for a work item to be moved to a state."""
        return self.server.call("PATCH", f"{self._items}/{item}/", {"state": state})

    def comment(self, item: str, html: str, external_id: str) -> Answer:
        """Ask for a comment; 409 where one of this external id is there."""
        wanted = {"comment_html": html, "external_id": external_id, "external_source": SOURCE}
        return self.server.call("POST", f"{self._items}/{item}/comments/", wanted)

    def link(self, item: str, url: str, title: str) -> Answer:
        """Ask for a link; 400 where it is there."""
        return self.server.call("POST", f"{self._items}/{item}/links/", {"url": url, "title": title})

    def file(self, title: str, html: str) -> Answer:
        """Ask for a work item."""
        return self.server.call("POST", f"{self._items}/", {"name": title, "description_html": html})

    def remove(self, item: str) -> Answer:
        """Ask for a work item to be removed for good."""
        return self.server.call("DELETE", f"{self._items}/{item}/")

    def add_label(self, name: str, colour: str) -> Answer:
        """Ask for a label; 409 where one of this name is there."""
        return self.server.call("POST", f"{self._place}/labels/", {"name": name, "color": colour})

    @property
    def _items(self) -> str:
        return f"{self._place}/{self.server.items(self._place)}"

    def _rows(self, path: str, **query: str) -> Iterator[Mapping[str, object]]:
        return (row for page in self.server.pages(path, query) for row in page)

    def _known(self, what: str, ask: Callable[[], dict[str, T]]) -> dict[str, T]:
        """What changes seldom, asked again after a while."""
        with self._lock:
            kept = self._names.get(what)
        if kept is not None and self._clock.boottime() - kept[0] < OLD_S:
            return cast(dict[str, T], kept[1])
        found = ask()
        with self._lock:
            self._names[what] = (self._clock.boottime(), found)
        return found

    def forget(self) -> None:
        """Ask for names again: one was met that is not known. Not at once again, for it may be nobody's to see."""
        with self._lock:
            now = self._clock.boottime()
            if now - self._forgot_at >= NEWS_S:
                self._forgot_at = now
                self._names.clear()
