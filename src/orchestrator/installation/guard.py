"""The gate before everything that claims or acts: is this the database, and are these the forges, that belong together?

What must hold: nothing is claimed or done for a repository before it was compared and carries the mark of this very
start; one that cannot be read is never opened, and one that was closed stays closed until it has been read. What shows
a restored database closes every repository. A closing is durable, told to a person once, and judged anew whenever it is
looked at: only facts keep it. A forge that hangs holds up nobody but who asks for its own repository.
"""

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping

import structlog

from orchestrator.domain.errors import AuthorityUnreachable, InstallationChanged, OutsideError
from orchestrator.domain.ids import RepoName
from orchestrator.domain.installation import Cause, Finding, InstallationMark
from orchestrator.installation.claims import Claims
from orchestrator.installation.closings import Closings
from orchestrator.installation.comparison import Compared, Comparison
from orchestrator.installation.standing import Standing

log = structlog.get_logger(__name__)

AGAIN = "It is tried again."
TELLS_MORE = "`orch restore status` tells more."


class InstallationGuard:
    """One process's answer to "may anything be done here". Safe to ask from many threads."""

    def __init__(self, comparison: Comparison, claims: Claims, closings: Closings) -> None:
        self._comparison = comparison
        self._claims = claims
        self._closings = closings
        self._standing = Standing()
        self._turns: defaultdict[RepoName, threading.Lock] = defaultdict(threading.Lock)  # who claims there

    # --- what actors ask --------------------------------------------------------------------------------------

    def why_closed(self, repo: RepoName) -> str | None:
        """Why nothing may be done for a repository now; None where it may.

        One that has not been compared yet is compared first.

        :raises OutsideError: it cannot be, for something cannot be read.
        """
        stands = self._made_out(repo)
        return stands.reason if isinstance(stands, Finding) else None

    def why_restored(self, repo: RepoName) -> str | None:
        """What shows that the database is a copy from before; None where nothing does, or what could cannot be read.

        Claims nothing: where this process has not looked yet, it looks.

        :raises NotFound: it is not registered.
        """
        stands = self._standing.of(repo) or self._closings.standing().get(repo)
        if stands is None:
            try:
                stands = self._comparison.of(repo, self._comparison.shown_at_home()).finding
            except OutsideError as error:
                log.warning("repository not compared", repo=repo, reason=str(error))
        return stands.reason if isinstance(stands, Finding) and stands.cause is Cause.DATABASE else None

    def open_repositories(self) -> frozenset[RepoName]:
        """Those for which jobs may be claimed. Asks nobody."""
        return frozenset(self._standing.open())

    def all_closed(self) -> bool:
        """Whether nothing may be done at all."""
        return bool(self._standing.closed()) and not self._standing.open()

    def held(self, repo: str) -> InstallationMark:
        """The mark under which this process acts on a repository; claimed now, where nothing has been done there yet.

        :raises InstallationChanged: the repository is closed.
        :raises OutsideError: something cannot be read.
        """
        stands = self._made_out(RepoName(repo))
        if isinstance(stands, Finding):
            raise InstallationChanged(f"Nothing is done for {repo}: {stands.reason}.", hint=TELLS_MORE)
        return stands

    def changed(self, repo: str) -> None:
        """A forge has refused us for its mark: nothing more is done there before it has been compared anew."""
        name = RepoName(repo)
        stands = self._standing.of(name)
        if isinstance(stands, InstallationMark):
            self._standing.forget(name, stands)
        try:
            self._made_out(name)
        except OutsideError as error:
            log.warning("repository not compared", repo=repo, reason=str(error))

    # --- comparing --------------------------------------------------------------------------------------------

    def start(self) -> Mapping[RepoName, Finding]:
        """Compare everything before anything is done; what is closed, and why."""
        self._standing.close(self._closings.standing())  # until it has been read
        try:
            self._judge(self._comparison.repositories())
        except OutsideError as error:
            log.warning("nothing compared yet", reason=str(error))
        return self._standing.closed()

    def look_again(self) -> int:
        """See whether the forges still carry our mark, and whether what was closed or could not be read belongs
        together; how many repositories changed their state."""
        before, ours = self._standing.open(), self._comparison.repositories()
        for repo, mark in before.items():
            if repo not in ours or not self._still_ours(repo, mark):
                self._standing.forget(repo, mark)
        now = self._standing.open()
        self._judge([repo for repo in ours if repo not in now])
        return len(before.keys() ^ self._standing.open().keys())

    def reopen(self, found: Mapping[RepoName, Compared]) -> dict[RepoName, bool]:
        """After a person's word: claim these from the marks that were seen; False for one that is not as it was."""
        for repo, judged in found.items():
            try:
                self._claims.claim(repo, judged)
            except OutsideError as error:
                log.warning("repository not claimed", repo=repo, reason=str(error))
        self._judge(found.keys())  # compared once more, now that nobody else can act there
        now = self._standing.open()
        return {repo: repo in now for repo in found}

    # --- private steps ----------------------------------------------------------------------------------------

    def _made_out(self, repo: RepoName) -> InstallationMark | Finding:
        """What is known of a repository, compared first where nothing is.

        :raises OutsideError: something cannot be read.
        """
        stands = self._standing.of(repo)
        if stands is None:
            self._judge([repo], must=True)
            stands = self._standing.of(repo)
        if stands is None:
            raise AuthorityUnreachable(f"{repo} could not be claimed: its mark keeps moving.", hint=AGAIN)
        return stands

    def _judge(self, repos: Collection[RepoName], *, must: bool = False) -> None:
        """Compare them all, then claim what is ours. What cannot be read is left as it is.

        :raises OutsideError: with ``must``: something could not be read. Else the state folder could not.
        """
        if not repos:
            return
        sweeps = self._standing.sweeps()
        self._claims.start_id()
        home = self._comparison.shown_at_home()
        judged: dict[RepoName, Compared] = {}
        for repo in repos:
            try:
                judged[repo] = self._comparison.of(repo, home)
            except OutsideError as error:
                if must:
                    raise
                log.warning("repository not compared yet", repo=repo, reason=str(error))
        restored = next((one.finding for one in judged.values() if _closes_all(one.finding)), None)
        restored = restored or self._standing.restored(besides=judged)
        if restored is not None:
            self._close_all(restored)
            return
        for repo, one in judged.items():
            try:
                self._open_or_close(repo, one, sweeps)
            except OutsideError as error:
                if must:
                    raise
                log.warning("repository not claimed yet", repo=repo, reason=str(error))

    def _open_or_close(self, repo: RepoName, judged: Compared, sweeps: int) -> None:
        found: InstallationMark | Finding | None = judged.finding
        if found is None:
            with self._turns[repo]:
                if isinstance(self._standing.of(repo), InstallationMark):
                    return  # another thread was first
                found = self._claims.claim(repo, judged)
                if isinstance(found, InstallationMark) and self._standing.opened(repo, found, sweeps=sweeps):
                    return
        if isinstance(found, InstallationMark):  # meanwhile everything was closed
            found = self._standing.restored()
        if found is None:
            log.warning("repository not claimed: its mark keeps moving", repo=repo)
        elif _closes_all(found):
            self._close_all(found)
        else:
            self._close({repo: found})

    def _still_ours(self, repo: RepoName, mark: InstallationMark) -> bool:
        try:
            return self._comparison.forge(repo).installation() == mark
        except OutsideError:
            return True  # unreadable is not changed; every merge verifies it again

    def _close_all(self, finding: Finding) -> None:
        self._close(dict.fromkeys(self._comparison.repositories(), finding), sweep=True)

    def _close(self, findings: Mapping[RepoName, Finding], *, sweep: bool = False) -> None:
        self._standing.close(findings, sweep=sweep)
        self._closings.close(findings, self._claims.start_id())


def _closes_all(finding: Finding | None) -> bool:
    return finding is not None and finding.cause is Cause.DATABASE
