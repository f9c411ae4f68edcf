"""The gate before everything that claims or acts: is this the database, and are these the forges, that belong together?

What must hold: nothing is claimed or done for a repository before it was compared and carries the mark of this very
start; a repository that cannot be read stays unread, never open; a start is remembered before it claims anything, so
that a crash at any point is recognised as ours. What shows a restored database closes every repository. A closing is
durable, told to a person once, and judged anew whenever it is looked at: only facts keep it.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from orchestrator.db import events, installation, mail, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.domain.errors import (
    AuthorityUnreachable,
    ConstraintRefused,
    InstallationChanged,
    OutsideError,
)
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import RepoName, TaskId
from orchestrator.domain.installation import Cause, Finding, InstallationMark, Known, Seen
from orchestrator.forges.forge import Forge
from orchestrator.installation.traces import unknown_deploys, unknown_runs
from orchestrator.places import Folders, Places
from orchestrator.rules.installation import judge
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.waypoints import Waypoints

log = structlog.get_logger(__name__)

AGAIN = "It is tried again."
TELLS_MORE = "`orch restore status` tells more."
CLAIM_TRIES = 3  # a mark that keeps moving is somebody's who is at work


@dataclass(frozen=True, slots=True)
class Compared:
    """One repository: what the database remembers, what the forge shows, and what follows."""

    known: Known
    seen: Seen
    finding: Finding | None


class InstallationGuard:
    """One process's answer to "may anything be done here". Safe to ask from many threads."""

    def __init__(
        self, database: Database, places: Places, folders: Folders, *, entropy: Entropy, waypoints: Waypoints
    ) -> None:
        self._database = database
        self._places = places
        self._folders = folders
        self._entropy = entropy
        self._waypoints = waypoints
        self._lock = threading.RLock()
        self._start_id: str | None = None
        self._open: dict[RepoName, InstallationMark] = {}
        self._closed: dict[RepoName, Finding] = {}

    # --- what actors ask --------------------------------------------------------------------------------------

    def why_closed(self, repo: RepoName) -> str | None:
        """Why nothing may be done for a repository now; None where it may.

        One that has not been compared yet is compared first.

        :raises OutsideError: it cannot be, for something cannot be read.
        """
        with self._lock:
            if repo not in self._open and repo not in self._closed:
                self._judge([repo], must=True)
            finding = self._closed.get(repo)
            if finding is not None:
                return finding.reason
            if repo not in self._open:
                raise AuthorityUnreachable(f"{repo} could not be claimed: its mark keeps moving.", hint=AGAIN)
            return None

    def open_repositories(self) -> frozenset[RepoName]:
        """Those for which jobs may be claimed. Asks nobody."""
        with self._lock:
            return frozenset(self._open)

    def all_closed(self) -> bool:
        """Whether nothing may be done at all."""
        with self._lock:
            return bool(self._closed) and not self._open

    def held(self, repo: str) -> InstallationMark:
        """The mark under which this process acts on a repository; claimed now, where nothing has been done there yet.

        :raises InstallationChanged: the repository is closed.
        :raises OutsideError: something cannot be read.
        """
        name = RepoName(repo)
        with self._lock:
            reason = self.why_closed(name)
            if reason is not None:
                raise InstallationChanged(f"Nothing is done for {repo}: {reason}.", hint=TELLS_MORE)
            return self._open[name]

    def changed(self, repo: str) -> None:
        """A forge has refused us for its mark: nothing more is done there before it has been compared anew."""
        name = RepoName(repo)
        with self._lock:
            if name in self._closed:
                return
            self._open.pop(name, None)
        try:
            self.why_closed(name)
        except OutsideError as error:
            log.warning("repository not compared", repo=repo, reason=str(error))

    # --- comparing --------------------------------------------------------------------------------------------

    def start(self) -> Mapping[RepoName, Finding]:
        """Compare everything before anything is done; what is closed, and why."""
        with self._database.read() as tx:
            repos = list(installation.known(tx))
        with self._lock:
            try:
                self._judge(repos)
            except OutsideError as error:
                log.warning("nothing compared yet", reason=str(error))
            return dict(self._closed)

    def look_again(self) -> int:
        """See whether the forges still carry our mark, and whether what was closed belongs together again; how many
        repositories changed their state."""
        with self._lock:
            stands = {*self._open, *self._closed}
            before = set(self._open)
            for repo in sorted(stands):
                if repo in self._open and self._still_ours(repo):
                    continue
                self._open.pop(repo, None)
                self._closed.pop(repo, None)
            self._judge(sorted(stands - set(self._open)))
            return len(before ^ set(self._open))

    def compare(self, repos: Iterable[RepoName]) -> dict[RepoName, Compared]:
        """Every one of these as it stands; reads only.

        :raises OutsideError: the state folder, or one of the forges, cannot be read.
        """
        home = self._home()
        return {repo: self._compared(repo, home) for repo in repos}

    def reopen(self, repo: RepoName, judged: Compared) -> bool:
        """After a person's word: claim a repository from the mark that was seen; False where it is not as it was."""
        with self._lock:
            self._begin()
            self._closed.pop(repo, None)
            self._open.pop(repo, None)
            if self._claim(repo, judged):
                self._open.pop(repo, None)  # compared once more, now that nobody else can act there
                self._judge([repo])
            return repo in self._open

    def start_id(self) -> str:
        """This process's own start."""
        with self._lock:
            return self._begin()

    # --- private steps ----------------------------------------------------------------------------------------

    def _judge(self, repos: Sequence[RepoName], *, must: bool = False) -> None:
        """Compare, then claim what is ours. What cannot be read is left as it is: neither open nor closed.

        :raises OutsideError: with ``must``: something could not be read. Else the state folder could not.
        """
        if not repos:
            return
        self._begin()
        home = self._home()
        judged: dict[RepoName, Compared] = {}
        for repo in repos:
            try:
                judged[repo] = self._compared(repo, home)
            except OutsideError as error:
                if must:
                    raise
                log.warning("repository not compared yet", repo=repo, reason=str(error))
        restored = next((one.finding for one in judged.values() if _closes_all(one.finding)), None)
        if restored is not None:
            self._close_all(restored)
            return
        for repo, one in judged.items():
            if one.finding is not None:
                self._close({repo: one.finding})
            elif not self._claim(repo, one):
                log.warning("repository not claimed: its mark keeps moving", repo=repo)

    def _claim(self, repo: RepoName, judged: Compared) -> bool:
        """Raise the mark from what was seen; refused, the repository is judged by what stands there now."""
        forge = self._places.of(repo).forge
        for _ in range(CLAIM_TRIES):
            held, known = judged.seen.mark, judged.known
            generation = max(held.generation if held else 0, known.generation) + 1
            mark = InstallationMark(known.installation, generation, self._begin())
            self._waypoints.reach("installation.before_claim", repo=repo, generation=generation)
            try:
                forge.claim_installation(held, mark)
                self._waypoints.reach("installation.claimed", repo=repo, generation=generation)
                with self._database.write() as tx:
                    installation.claimed(tx, repo, mark, judged.seen.main)
            except (InstallationChanged, ConstraintRefused):  # or another process of ours has raised it since
                judged = self._compared(repo, None)
                if judged.finding is not None:
                    self._close({repo: judged.finding})
                    return False
                continue
            self._waypoints.reach("installation.noted", repo=repo, generation=generation)
            self._open[repo] = mark
            return True
        return False

    def _begin(self) -> str:
        """Remember this start, once and before anything is claimed with it."""
        if self._start_id is None:
            start_id = self._entropy.token(16)
            self._waypoints.reach("installation.before_begin")
            with self._database.write() as tx:
                installation.begin(tx, start_id)
            self._waypoints.reach("installation.begun")
            self._start_id = start_id
        return self._start_id

    def _home(self) -> Finding | None:
        """What the state folder has that the database does not know."""
        with self._database.read() as tx:
            runs, deploys = installation.known_folders(tx)
        for kind, found in (
            ("a start", unknown_deploys(self._folders.deploys, deploys)),
            ("a run", unknown_runs(self._folders.runs, runs)),
        ):
            if found:
                reason = (
                    f"the state folder holds {kind}, {found[0]}, that this database does not know: "
                    "it was restored from a backup, or it is not the one that belongs here"
                )
                return Finding(Cause.DATABASE, reason)
        return None

    def _compared(self, repo: RepoName, home: Finding | None) -> Compared:
        with self._database.read() as tx:
            known = installation.known(tx)[repo]
            open_here = [task.id for task in tasks.list_open(tx) if task.repo == repo]
        seen = self._seen(self._places.of(repo).forge, known, open_here)
        return Compared(known, seen, home or judge(known, seen))

    def _seen(self, forge: Forge, known: Known, open_here: Sequence[TaskId]) -> Seen:
        mark, main = forge.installation(), forge.tip(forge.default_branch)
        bounds = [sha for sha in {known.main, known.merged} if sha is not None]
        # Mostly nothing is new since the last look: then nobody is asked.
        since = [] if main in bounds else forge.merged_since(bounds)
        merged = [one for one in since if one.installation == known.installation]
        with self._database.read() as tx:
            unknown = installation.unknown_nonces(tx, (one.nonce for one in merged))
        return Seen(
            mark=mark,
            main=main,
            unknown=[one for one in merged if one.nonce in unknown],
            lost=known.merged not in (None, main) and not (main and forge.contains(main, known.merged)),
            fence=forge.highest_fence(open_here),
        )

    def _still_ours(self, repo: RepoName) -> bool:
        try:
            return self._places.of(repo).forge.installation() == self._open[repo]
        except OutsideError:
            return True  # unreadable is not changed; every merge verifies it again

    def _close_all(self, finding: Finding) -> None:
        with self._database.read() as tx:
            repos = list(installation.known(tx))
        self._open.clear()
        self._close(dict.fromkeys(repos, finding))

    def _close(self, findings: dict[RepoName, Finding]) -> None:
        self._closed |= findings
        with self._database.write() as tx:
            new = {repo: one for repo, one in findings.items() if installation.close(tx, repo, one)}
            for repo, finding in new.items():
                self._tell(tx, repo, finding)
        for repo, finding in new.items():
            log.error("repository closed", repo=repo, cause=finding.cause.value, reason=finding.reason)

    def _tell(self, tx: Tx, repo: RepoName, finding: Finding) -> None:
        """One alert for each reason, be it that of many repositories."""
        data = {"repo": repo, "cause": finding.cause, "reason": finding.reason}
        events.append(tx, EventType.INSTALLATION_CLOSED, "guard", data=data)
        whom = "any repository" if finding.cause is Cause.DATABASE else repo
        text = f"Nothing is done for {whom} any more: {finding.reason}. See `orch restore status`."
        mail.send(
            tx, "alert", f"alert:installation:{self._start_id}:{finding.reason}", {"text": text}, task_id=None
        )


def _closes_all(finding: Finding | None) -> bool:
    return finding is not None and finding.cause is Cause.DATABASE
