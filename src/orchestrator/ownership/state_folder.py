"""The state folder that the processes of one database share, where the database is a server's (decision 0021).

What was started outside is written down in that folder alone. So the database remembers it by its id: another folder,
be it the empty place at which it should have been mounted, would say that nothing has ever been started.
"""

from orchestrator.db import homes, installation
from orchestrator.db.database import Tx
from orchestrator.domain.errors import OperatorError, StrangeFolder
from orchestrator.domain.ids import Home

FOLDER_KNOWN_SINCE = 23  # the schema that remembers it
NEW_FOLDER = "restore folder"  # the role of who lets another folder take its place


def belongs(tx: Tx, state_id: str, *, take: bool) -> None:
    """See that a folder is the database's, until this transaction ends; with ``take`` it becomes so where none is yet,
    unless it is a worker's.

    :raises StrangeFolder: another one is.
    :raises OperatorError: this one is a worker's.
    """
    worker = homes.get(tx, Home(state_id))
    if take and worker is None:
        installation.take_folder(tx, state_id)
    if installation.folder(tx, to_stay=True) not in (None, state_id):
        raise strange() if worker is None else of_a_worker(worker)


def refuse_to_a_worker(tx: Tx, home: Home) -> None:
    """A worker's folder is its own.

    :raises OperatorError: it is the one that the orchestrators share.
    """
    if installation.folder(tx, to_stay=True) == home:
        raise OperatorError(
            "This state folder is the one that the orchestrators share. Nothing was started.",
            hint="A worker needs a folder of its own: name an empty one in ORCH_HOME.",
        )


def of_a_worker(worker: homes.WorkerHome) -> OperatorError:
    """Why nobody but that worker starts in its folder."""
    return OperatorError(
        f"This state folder is a worker's ({worker}). Nothing was started.",
        hint="Name the folder that the orchestrators share in ORCH_HOME.",
    )


def strange() -> StrangeFolder:
    """Why a process does not start in a folder."""
    return StrangeFolder(
        "This state folder is not the one that belongs to the database. What was deployed, and which agents run, is "
        "written down in that one; from here it would look as if nothing had been. Nothing was started.",
        hint="Is it mounted? Name it in ORCH_HOME. If it is lost for good, and this is no worker's: "
        "`orch restore folder --reason …`.",
    )
