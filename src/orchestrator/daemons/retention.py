"""What of old work is let go: logs, what agents printed, and the copies of artefacts that deploys were given.

Must hold: nothing of an open task goes; nothing by which a fact is told (``STARTED``, exit records, what was to be
started, the brief of a run) ever goes; of each environment the newest start keeps its copy, and so does every start
since the newest that succeeded: a service may still run from it. A run or start without an exit record is not over.

Ages are those of the files. On failure an ``OSError`` or ``OutsideError`` is raised; repeating goes on.
"""

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from orchestrator.deploy.records import ARTIFACT_FOLDER, EXIT_FILE, DeployStart, exit_record, read_start
from orchestrator.domain.task import Task
from orchestrator.places import Folders
from orchestrator.workspace.folders import exists, remove_tree

KEPT_DAYS = 30.0  # a month is how far back people look for why a check failed or an agent did what it did
_DAY_S = 24 * 3600.0
FACTS_OF_A_RUN = frozenset({"STARTED", "exit.json", "brief.json"})


@dataclass(frozen=True, slots=True)
class Retention:
    """One look at the state folder. ``tasks`` are all that are open."""

    folders: Folders
    tasks: Collection[Task]
    now: datetime

    def prune(self) -> int:
        """Remove what is old; how many files and folders went.

        :raises OutsideError: a record of a start cannot be read.
        :raises OSError: something cannot be removed.
        """
        doomed = (*self._logs(), *self._runs(), *self._artifacts())
        for path in doomed:
            remove_tree(path)
        return len(doomed)

    def _logs(self) -> Iterator[Path]:
        return (path for path in _entries(self.folders.logs) if self._old(path) and not self._open(path.name))

    def _runs(self) -> Iterator[Path]:
        for run in _entries(self.folders.runs):
            if self._old(run / EXIT_FILE) and not self._open(run.name):
                yield from (path for path in _entries(run) if path.name not in FACTS_OF_A_RUN)

    def _artifacts(self) -> Iterator[Path]:
        for environment in _entries(self.folders.deploys):
            told = [(start, folder) for folder in _entries(environment) if (start := read_start(folder))]
            needed = True
            # By the environment's own token: generations are counted for each SHA anew.
            for start, folder in sorted(told, key=lambda one: int(one[0].token), reverse=True):
                if not needed and self._dispensable(start, folder):
                    yield folder / ARTIFACT_FOLDER
                ended = exit_record(folder)
                needed = needed and not (ended is not None and ended.succeeded)

    def _dispensable(self, start: DeployStart, folder: Path) -> bool:
        return (
            exists(folder / ARTIFACT_FOLDER)
            and self._old(folder / EXIT_FILE)
            and all(task.work_item != start.work_item for task in self.tasks)
        )

    def _open(self, name: str) -> bool:
        """Whether a log or a run is an open task's, by its name (see the check runner, the launcher, the image)."""
        return any(name.startswith((f"{task.work_item}-", f"image-{task.id}-")) for task in self.tasks)

    def _old(self, path: Path) -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            return self.now.timestamp() - path.lstat().st_mtime > KEPT_DAYS * _DAY_S
        return False


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() and not folder.is_symlink() else []
