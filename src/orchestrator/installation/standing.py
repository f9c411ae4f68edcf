"""What one process has made out about each repository: open under a mark, closed for a reason, or not read yet.

Holds its lock for memory alone: whoever asks is answered at once, whatever a forge does.
"""

import threading
from collections.abc import Container, Mapping

from orchestrator.domain.ids import RepoName
from orchestrator.domain.installation import Cause, Finding, InstallationMark


class Standing:
    """One answer for each repository. Safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[RepoName, InstallationMark | Finding] = {}
        self._sweeps = 0

    def of(self, repo: RepoName) -> InstallationMark | Finding | None:
        """The mark under which it is open, or why it is closed; None where it has not been read."""
        with self._lock:
            return self._known.get(repo)

    def open(self) -> dict[RepoName, InstallationMark]:
        """Those that are open."""
        with self._lock:
            return {repo: one for repo, one in self._known.items() if isinstance(one, InstallationMark)}

    def closed(self) -> dict[RepoName, Finding]:
        """Those that are closed."""
        with self._lock:
            return {repo: one for repo, one in self._known.items() if isinstance(one, Finding)}

    def restored(self, besides: Container[RepoName] = ()) -> Finding | None:
        """What shows that the database was restored, as far as another repository than these stands by it."""
        closed = self.closed().items()
        return next(
            (one for repo, one in closed if repo not in besides and one.cause is Cause.DATABASE), None
        )

    def sweeps(self) -> int:
        """How often everything was closed; see :meth:`opened`."""
        with self._lock:
            return self._sweeps

    def opened(self, repo: RepoName, mark: InstallationMark, *, sweeps: int) -> bool:
        """A repository was compared and claimed; False where everything has been closed since ``sweeps`` were
        counted."""
        with self._lock:
            if self._sweeps != sweeps:
                return False
            self._known[repo] = mark
            return True

    def close(self, findings: Mapping[RepoName, Finding], *, sweep: bool = False) -> None:
        """Nothing is done there any more; ``sweep``: these are all that there are."""
        with self._lock:
            self._known |= findings
            self._sweeps += sweep

    def forget(self, repo: RepoName, mark: InstallationMark) -> None:
        """What was open under this mark has to be read anew."""
        with self._lock:
            if self._known.get(repo) == mark:
                del self._known[repo]
