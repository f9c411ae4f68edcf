"""What the runner of a deploy of ourselves does when the command has ended (S-15, Phase B).

Whoever would undo the deploy may be the very one that does not come up. So the runner stays, and undoes it unless the
new version reports in time. What must hold: ``STARTED`` of the prepared undo decides, as it does for every start;
whoever finds it taken does nothing. A report counts only if it names this start, so that no older process can be taken
for the new one; what cannot be read is no report. The command may replace the files of this very program: nothing is
loaded after it has begun.
"""

import threading
from pathlib import Path

from orchestrator.deploy.records import (
    LOG_FILE,
    START_FILE,
    ConditionalUndo,
    DeployStart,
    read_start,
    reported,
    start_folder,
    started,
    to_bytes,
)
from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.files import PRIVATE_FILE, make_private_folder, publish_exclusive

POLL_S = 0.1


def undo_is_due(folder: Path, start: DeployStart, undo: ConditionalUndo, clock: Clock) -> bool:
    """Wait for the report of ``start``, for somebody else's claim of the undo, or for the time-out; True after that."""
    never = threading.Event()
    deadline = clock.boottime() + undo.within_s
    while not (_has_reported(folder, start) or _is_claimed(undo_folder(folder, undo))):
        left = deadline - clock.boottime()
        if left <= 0:
            return True
        clock.wait(never, min(POLL_S, left))
    return False


def prepare_undo(folder: Path, undo: ConditionalUndo) -> Path | None:
    """The folder of the undo with its ``start.json``; None where another start lies there.

    :raises OSError: it cannot be written.
    """
    place = undo_folder(folder, undo)
    make_private_folder(place)
    if not publish_exclusive(place / START_FILE, to_bytes(undo.start)):
        kept = read_start(place)
        if kept is None or kept.identity != undo.start.identity:
            return None
    (place / LOG_FILE).touch(mode=PRIVATE_FILE)
    return place


def undo_folder(folder: Path, undo: ConditionalUndo) -> Path:
    """Where the undo of the start in ``folder`` keeps its records."""
    return start_folder(folder.parent.parent, undo.start.environment, undo.start.sha, undo.start.generation)


def _has_reported(folder: Path, start: DeployStart) -> bool:
    try:
        said = reported(folder)
    except OutsideError:
        return False
    return said is not None and said.answers(start)


def _is_claimed(folder: Path) -> bool:
    try:
        return started(folder) is not None
    except OutsideError:
        return True  # a claim that cannot be read is somebody's all the same
