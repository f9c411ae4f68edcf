"""Opening the issues of a repository at the configured GitHub, and finding out whether they can be worked with."""

import threading

from orchestrator.config.secret import Secret
from orchestrator.db import repositories, tickets
from orchestrator.db.database import Database
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.errors import ConfigError, OutsideError, RequestRefused
from orchestrator.domain.ids import RepoName
from orchestrator.domain.task import Task
from orchestrator.rest.github_limits import Limits
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.http import Http
from orchestrator.trackers.github import NAME
from orchestrator.trackers.github_issues import GitHubServer, Issues
from orchestrator.trackers.github_records import number
from orchestrator.trackers.github_source import GitHubTickets
from orchestrator.trackers.source import ProjectGone


class GitHubProjects:
    """Opens repositories' issues at one server; implements ``trackers.source.TicketSource``. Safe for many threads."""

    name = NAME
    letters_as = f"{NAME}-read"
    why_silent = "`orch connect github` puts it right, and has it tell of issues."

    def __init__(
        self,
        database: Database,
        url: str,
        token: Secret,
        labels: frozenset[str],
        http: Http,
        clock: Clock,
        limits: Limits,
    ) -> None:
        """``limits`` are those of the token, which the forge uses, too; ``labels`` (lower case) have an issue taken."""
        self.configured = bool(url and token)
        self.url = url
        self._database = database
        self._labels = labels
        self._server = GitHubServer(http, url, token, limits, clock)
        self._open: dict[str, Issues] = {}
        self._lock = threading.Lock()

    def of(self, known: TrackerProject) -> GitHubTickets:
        """Issues that are connected, as whoever watches them needs them.

        :raises OutsideError: they are not at the configured server.
        """
        return GitHubTickets(known.repo, self.opened(known.repo), self._labels)

    def of_task(self, task: Task) -> Issues:
        """The issues that a task's ticket is one of.

        :raises OutsideError: they are not at the configured server.
        """
        return self.opened(task.repo)

    def opened(self, repo: RepoName) -> Issues:
        """The issues of a repository, wherever it lies now at the configured server.

        :raises NotFound: it is not registered.
        :raises OutsideError: it is not there.
        """
        with self._database.read() as tx:
            at = repositories.get(tx, repo)
        full_name = at.location.removeprefix(f"{self.url}/")
        if not self.configured or at.forge != NAME or full_name == at.location:
            raise OutsideError(
                f"{at.location} is not at the configured GitHub ({self.url if self.configured else 'none'}).",
                hint="Set ORCH_GITHUB_URL and ORCH_GITHUB_TOKEN_FILE for it; the token is given to no other.",
            )
        with self._lock:
            if full_name not in self._open:
                self._open[full_name] = self._server.issues(full_name)
            return self._open[full_name]

    def connect(self, repo: RepoName) -> TrackerProject:
        """Let a repository's tickets be its issues.

        :raises NotFound: the repository is not registered.
        :raises ConfigError: it does not lie at the configured GitHub, or its issues are not ours to read.
        :raises RequestRefused: its tickets come from elsewhere.
        :raises OutsideError: the server cannot be asked.
        """
        with self._database.read() as tx:
            at = repositories.get(tx, repo)
        if at.forge != NAME:
            raise ConfigError(
                f"{repo} does not lie at GitHub, so that it has no issues there; nothing was connected.",
                hint="Register it by `orch init --github OWNER/NAME --issues`.",
            )
        issues = self.opened(repo)
        try:
            remote_id = str(number(issues.check(), "id"))
            issues.readable()
        except ProjectGone as error:
            raise ConfigError(f"{error.message} Nothing was connected.", hint=error.hint) from error
        user = issues.me()
        with self._database.write() as tx:
            tickets.connect(tx, repo, NAME, issues.location, remote_id, our_user=user)
            known = tickets.project_of(tx, repo)
        if known is None or (known.tracker, known.remote_id) != (NAME, remote_id):
            other = (
                f"{repo} has its tickets from {known.location}"
                if known
                else f"{issues.location} is another repository's"
            )
            raise RequestRefused(f"{other} already; nothing was connected.")
        return known
