"""How a command finds the process that owns the state folder: ``api.json`` beside the database.

What must hold: the file is 0600 and complete; it is written once the address answers and removed at the end; a file
whose writer is dead is stale and believed by nobody.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.files import read_bounded, replace_durably
from orchestrator.runtime.process import Liveness, Processes, ProcessIdentity

FILE = "api.json"
_LIMIT = 16 * 1024


@dataclass(frozen=True, slots=True)
class Owner:
    """Where the owner answers, with what token, and which process it is."""

    url: str
    token: str
    role: str
    process: ProcessIdentity


def owner_of(home: Path, processes: Processes) -> Owner | None:
    """The owner that says where it answers; None where there is none, or the file is stale or not ours."""
    try:
        data = json.loads(read_bounded(home / FILE, _LIMIT))
        process = ProcessIdentity(**data["process"])
        owner = Owner(str(data["url"]), str(data["token"]), str(data["role"]), process)
    except (OSError, OutsideError, ValueError, KeyError, TypeError):
        return None
    return None if processes.liveness(owner.process) is Liveness.DEAD else owner


@contextmanager
def announced(home: Path, owner: Owner) -> Iterator[None]:
    """Tell commands where this process answers, for the length of the block.

    :raises OSError: the state folder cannot be written.
    """
    path = home / FILE
    replace_durably(path, json.dumps(asdict(owner), indent=1).encode())
    try:
        yield
    finally:
        with suppress(OSError):  # a left file is recognised as stale
            path.unlink(missing_ok=True)
