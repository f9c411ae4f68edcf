"""Raises the mark on a forge, so that nobody with an older one can merge there (law 5).

What must hold: a start is remembered before it claims anything, so that a crash at any point is recognised as ours; a
mark is raised only from the one that was judged.
"""

import threading

from orchestrator.db import installation
from orchestrator.db.database import Database
from orchestrator.domain.errors import ConstraintRefused, InstallationChanged
from orchestrator.domain.ids import RepoName
from orchestrator.domain.installation import Finding, InstallationMark
from orchestrator.installation.comparison import Compared, Comparison
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.waypoints import Waypoints

CLAIM_TRIES = 3  # a mark that keeps moving is somebody's who is at work


class Claims:
    """Those of one process, all under one start id."""

    def __init__(
        self,
        database: Database,
        comparison: Comparison,
        *,
        entropy: Entropy,
        waypoints: Waypoints,
        joins: bool = False,
    ) -> None:
        """``joins``: work under the mark that another process of this database has set, and set none: of a worker, who
        merges nothing."""
        self._joins = joins
        self._database = database
        self._comparison = comparison
        self._entropy = entropy
        self._waypoints = waypoints
        self._lock = threading.Lock()
        self._start_id: str | None = None

    def start_id(self) -> str:
        """This process's own start, remembered when first asked for."""
        with self._lock:
            if self._start_id is None:
                start_id = self._entropy.token(16)
                self._waypoints.reach("installation.before_begin")
                with self._database.write() as tx:
                    installation.begin(tx, start_id)
                self._waypoints.reach("installation.begun")
                self._start_id = start_id
            return self._start_id

    def claim(self, repo: RepoName, judged: Compared) -> InstallationMark | Finding | None:
        """Raise the mark from what was seen; refused, the repository is judged by what stands there now.

        The new mark; or why it may not be raised; None where it keeps moving.

        :raises OutsideError: the forge cannot be reached.
        """
        if self._joins:
            return judged.seen.mark  # ours, or it would have been objected to
        forge = self._comparison.forge(repo)
        for _ in range(CLAIM_TRIES):
            held, known = judged.seen.mark, judged.known
            generation = max(held.generation if held else 0, known.generation) + 1
            mark = InstallationMark(known.installation, generation, self.start_id())
            self._waypoints.reach("installation.before_claim", repo=repo, generation=generation)
            try:
                forge.claim_installation(held, mark)
                self._waypoints.reach("installation.claimed", repo=repo, generation=generation)
                with self._database.write() as tx:
                    installation.claimed(tx, repo, mark, judged.seen.main)
            except (InstallationChanged, ConstraintRefused):  # or another process of ours has raised it since
                judged = self._comparison.of(repo, None)
                if judged.finding is not None:
                    return judged.finding
                continue
            self._waypoints.reach("installation.noted", repo=repo, generation=generation)
            return mark
        return None
