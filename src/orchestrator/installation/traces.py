"""What lies in the state folder of work that was begun: agent runs and starts of environments.

Whatever is there was recorded in the database first, so one that knows nothing of it was restored from before. A run's
folder alone proves nothing, for it is made ahead of the record; ``STARTED`` in it does.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from orchestrator.deploy.records import START_FILE, STARTED_FILE
from orchestrator.domain.errors import AuthorityUnreachable

RUN_STARTED = "STARTED"


def started_runs(runs: Path) -> list[str]:
    """Names of runs that were started.

    :raises AuthorityUnreachable: the folder cannot be read.
    """
    root = str(runs)  # of thousands: a path of its own for each would take longer than the look
    return sorted(name for name in _folders(runs) if os.path.exists(f"{root}/{name}/{RUN_STARTED}"))


def begun_deploys(deploys: Path) -> list[str]:
    """Starts as ``environment/generation-sha``.

    :raises AuthorityUnreachable: a folder cannot be read.
    """
    found = [
        f"{environment}/{name}"
        for environment in _folders(deploys)
        for name in _folders(deploys / environment)
    ]
    return sorted(
        name for name in found if any((deploys / name / file).exists() for file in (START_FILE, STARTED_FILE))
    )


def _folders(place: Path) -> Iterator[str]:
    try:
        with os.scandir(place) as entries:
            yield from [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise AuthorityUnreachable(
            f"{place} cannot be read: {error.strerror}; it is not known whether the database belongs to it.",
            hint="Correct its rights; the work then goes on by itself.",
        ) from error
