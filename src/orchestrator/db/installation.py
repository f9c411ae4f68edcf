"""What a database remembers of its own starts and of the forges it has claimed (DESIGN §6, "Restored or cloned")."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.db.database import Tx
from orchestrator.domain.errors import InvariantError
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.domain.installation import Cause, Finding, InstallationMark, Known

_RUN = re.compile(r".+-(\d{1,18})-\d+-\w+$")  # the job's number in the name of a run's folder
STARTS_KEPT = 1000  # far more crashes in a row than a forge could stay unreachable for


@dataclass(frozen=True, slots=True)
class RepoState:
    """One repository as the last comparison left it."""

    repo: RepoName
    generation: int
    closed: Finding | None
    closed_at: str | None


def identity(tx: Tx) -> str:
    """The installation's id.

    :raises InvariantError: the database has none.
    """
    row = tx.one("installation.identity")
    if row is None:
        raise InvariantError("the database has no installation row")
    return str(row["installation_id"])


def folder(tx: Tx, *, to_stay: bool = False) -> str | None:
    """The id of the state folder that belongs to the database; None where none does yet. ``to_stay``: nobody else
    exchanges it before this transaction ends."""
    row = tx.one("installation.folder_to_stay") if to_stay else tx.one("installation.folder")
    return str(row["state_id"]) if row is not None and row["state_id"] is not None else None


def take_folder(tx: Tx, state_id: str) -> None:
    """Let a state folder be the database's, where none is yet: of two one comes first."""
    tx.execute("installation.take_folder", state_id=state_id)


def exchange_folder(tx: Tx, state_id: str, *, lost: str) -> bool:
    """Let a folder take the place of one that is lost; False where another has taken it already."""
    return tx.execute("installation.exchange_folder", state_id=state_id, lost=lost) == 1


def begin(tx: Tx, start_id: str) -> None:
    """Remember a start of our own, before it claims anything: a crash right after the claim is then no restore."""
    tx.execute("installation.begin", start_id=start_id)
    tx.execute("installation.forget_starts", kept=STARTS_KEPT)


def known(tx: Tx) -> dict[RepoName, Known]:
    """What is remembered of each registered repository."""
    own = tx.one("installation.identity")
    if own is None:
        raise InvariantError("the database has no installation row")
    starts = frozenset(str(row["start_id"]) for row in tx.all("installation.starts"))
    return {
        RepoName(row["repo"]): Known(
            repo=RepoName(row["repo"]),
            installation=str(own["installation_id"]),
            starts=starts,
            generation=row["generation"],
            start_id=row["start_id"],
            sequence=int(own["sequence"]),
            main=Sha(row["main_sha"]) if row["main_sha"] else None,
            merged=Sha(row["merged"]) if row["merged"] else None,
        )
        for row in tx.all("installation.marks")
    }


def schema(tx: Tx) -> int:
    """The number of the schema that the database has now."""
    row = tx.one("installation.schema")
    if row is None:
        raise InvariantError("the database does not say which schema it has")
    return int(row["number"])


def states(tx: Tx) -> list[RepoState]:
    """How each repository stands, for people."""
    return [
        RepoState(
            RepoName(row["repo"]),
            row["generation"],
            Finding(Cause(row["cause"]), row["reason"]) if row["cause"] else None,
            row["closed_at"],
        )
        for row in tx.all("installation.marks")
    ]


def claimed(tx: Tx, repo: RepoName, mark: InstallationMark, main: Sha | None) -> None:
    """The forge shows our mark: the repository is open, and compared up to ``main``."""
    tx.execute(
        "installation.claimed", repo=repo, generation=mark.generation, start_id=mark.start_id, main_sha=main
    )


def close(tx: Tx, repo: RepoName, finding: Finding) -> bool:
    """Do nothing for the repository any more; False where it was closed for this very reason already."""
    return tx.execute("installation.close", repo=repo, cause=finding.cause.value, reason=finding.reason) == 1


def unknown_nonces(tx: Tx, nonces: Iterable[str]) -> set[str]:
    """Those of which no candidate in the ledger has told."""
    asked = set(nonces)
    if not asked:
        return set()
    rows = tx.all("installation.known_nonces", nonces=json.dumps(sorted(asked)))
    return asked - {str(row["nonce"]) for row in rows}


def known_runs(tx: Tx, names: Iterable[str]) -> set[str]:
    """Those of these folders of runs that the database knows of, or a person has accepted."""
    asked = set(names)
    jobs = sorted({found[1] for found in map(_RUN.match, asked) if found})
    rows = tx.all("installation.known_runs", jobs=json.dumps(jobs))
    return asked & ({str(row["name"]).rstrip("/").rpartition("/")[2] for row in rows} | _accepted(tx))


def known_deploys(tx: Tx, names: Iterable[str]) -> set[str]:
    """Those of these starts (``environment/generation-sha``) that the database knows of or a person has accepted."""
    asked = set(names)
    return asked & (_intended(tx, asked) | _accepted(tx))


def accepted_folders(tx: Tx) -> set[str]:
    """Names of the folders, of runs and of starts, that a person has accepted and no ledger has."""
    accepted = _accepted(tx)
    return accepted - _intended(tx, accepted)


def _accepted(tx: Tx) -> set[str]:
    return {str(row["name"]) for row in tx.all("installation.accepted_traces")}


def _intended(tx: Tx, names: Iterable[str]) -> set[str]:
    """All starts of the versions that are named, by their names: asked for by version, for the ledger only grows."""
    versions = sorted({name.rpartition("-")[2] for name in names})
    rows = tx.all("installation.known_deploys", versions=json.dumps(versions))
    return {str(row["name"]) for row in rows}
