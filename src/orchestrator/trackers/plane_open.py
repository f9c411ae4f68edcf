"""Opening a project at the configured Plane, and finding out whether it can be worked with."""

import re
import threading
from dataclasses import dataclass

from orchestrator.config.plane import PlaneSettings
from orchestrator.config.secret import Secret
from orchestrator.db import repositories, tickets
from orchestrator.db.database import Database
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.errors import ConfigError, OutsideError, RequestRefused
from orchestrator.domain.ids import RepoName
from orchestrator.domain.task import Task
from orchestrator.rules.trailers import one_line
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.http import Http
from orchestrator.trackers.pace import Pace
from orchestrator.trackers.plane import NAME, ShownAs
from orchestrator.trackers.plane_api import PlaneServer, good, text
from orchestrator.trackers.plane_project import PlaneProject
from orchestrator.trackers.plane_records import identifier
from orchestrator.trackers.plane_source import Marks, PlaneTickets

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}/[A-Za-z0-9_-]{1,40}")
_SHOWN = 80  # characters of a name that a message repeats


@dataclass(frozen=True, slots=True)
class PlaneAccess:
    """The server of this installation, and our key there."""

    url: str
    key: Secret
    per_minute: int

    @property
    def configured(self) -> bool:
        """Whether there is one."""
        return bool(self.url and self.key)


def plane_projects(settings: PlaneSettings, database: Database, http: Http, clock: Clock) -> "PlaneProjects":
    """What the settings say of it."""
    access = PlaneAccess(settings.plane_url, settings.plane_token, settings.plane_calls_per_minute)
    marks = Marks(settings.plane_labels, settings.plane_take_states)
    return PlaneProjects(database, access, marks, http, clock)


def shown_as(settings: PlaneSettings) -> ShownAs:
    """How stages are shown there."""
    return ShownAs(dict(settings.plane_states), settings.plane_approved | settings.plane_confirm_deploy)


class PlaneProjects:
    """Opens projects at one server; implements ``trackers.source.TicketSource``. Safe for many threads."""

    name = NAME
    letters_as = f"{NAME}-read"
    why_silent = "Plane switches it off when we do not answer."

    def __init__(
        self, database: Database, access: PlaneAccess, marks: Marks, http: Http, clock: Clock
    ) -> None:
        self.access = access
        self._database = database
        self._marks = marks
        self._clock = clock
        self.server = PlaneServer(http, access.url, access.key, Pace(clock, access.per_minute), clock)
        self._open: dict[str, PlaneProject] = {}
        self._lock = threading.Lock()

    def of(self, known: TrackerProject) -> PlaneTickets:
        """A project that is connected, as whoever watches it needs it.

        :raises OutsideError: it is not at the configured server.
        """
        return PlaneTickets(self.opened(known), self._marks)

    def of_task(self, task: Task) -> PlaneProject:
        """The project that a task's ticket lies in.

        :raises OutsideError: it is not at the configured server.
        """
        with self._database.read() as tx:
            known = tickets.project_of(tx, task.repo)
        if known is None:
            raise OutsideError(f"{task.repo} is not connected with a project at Plane.")
        return self.opened(known)

    def opened(self, known: TrackerProject) -> PlaneProject:
        """A project that is connected.

        :raises OutsideError: it is not at the configured server.
        """
        server, _, workspace = known.location.rpartition("/")
        if not self.access.configured or server != self.access.url:
            raise OutsideError(
                f"{known.location} is not at the configured Plane ({self.access.url or 'none'}).",
                hint="Set ORCH_PLANE_URL and ORCH_PLANE_TOKEN_FILE for it; the key is given to no other.",
            )
        with self._lock:
            if known.remote_id not in self._open:
                self._open[known.remote_id] = PlaneProject(
                    self.server, workspace, known.remote_id, self._clock
                )
            return self._open[known.remote_id]

    def connect(self, repo: RepoName, name: str) -> TrackerProject:
        """Let a repository's tickets come from a project, ``WORKSPACE/PROJECT``: the identifier that its tickets'
        numbers begin with, or its id.

        :raises NotFound: the repository is not registered.
        :raises ConfigError: no Plane is configured, or there is no such project for us.
        :raises RequestRefused: the repository's tickets come from elsewhere, or the project is another's.
        :raises OutsideError: the server cannot be asked.
        """
        if not self.access.configured:
            raise ConfigError(
                "No Plane is configured; nothing was connected.",
                hint="Set ORCH_PLANE_URL and ORCH_PLANE_TOKEN_FILE.",
            )
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{ascii(name[:_SHOWN])} names no project; nothing was connected.",
                hint="Name it as workspace/PROJECT, as in its address and in its tickets' numbers.",
            )
        workspace, _, wanted = name.partition("/")
        remote_id = self._find(workspace, wanted)
        project = PlaneProject(self.server, workspace, remote_id, self._clock)
        project.check()
        user = self.server.me()
        with self._database.write() as tx:
            repositories.get(tx, repo)
            location = f"{self.access.url}/{workspace}"
            tickets.connect(tx, repo, NAME, location, remote_id, our_user=user)
            known = tickets.project_of(tx, repo)
        if known is None or (known.tracker, known.remote_id) != (NAME, remote_id):
            other = (
                f"{repo} has its tickets from {known.location}"
                if known
                else f"{name} is another repository's"
            )
            raise RequestRefused(f"{other} already; nothing was connected.")
        return known

    def _find(self, workspace: str, wanted: str) -> str:
        path = f"/workspaces/{workspace}/projects/"
        told = self.server.call("GET", path, query={"per_page": 1})
        if told.status in (403, 404):
            raise ConfigError(
                f"There is no workspace {ascii(workspace[:_SHOWN])} for our user at {self.access.url}.",
                hint="Its name is the part of its address; our user has to be a member.",
            )
        good(told, path)
        for page in self.server.pages(path, {}):
            for row in page:
                if wanted == row.get("id") or wanted.lower() == text(row, "identifier").lower():
                    return identifier(row, "id")
        raise ConfigError(
            f"Our user sees no project {one_line(wanted)[:_SHOWN]} in {workspace}; nothing was connected.",
            hint="Make it a member of the project.",
        )
