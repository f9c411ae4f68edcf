"""Tickets at a tracker elsewhere: whose project is whose, and what has been read of it.

Times named *by the tracker's clock* are stamps that the tracker gave; they are compared with each other only.
"""

from dataclasses import dataclass

from orchestrator.db.database import Row, Tx
from orchestrator.domain.ids import RepoName

SILENT, FAILING = "silent", "failing"  # what a person knows of a project


@dataclass(frozen=True, slots=True)
class TrackerProject:
    """Where a repository's tickets lie. ``read_to`` is by the tracker's clock, the other times are ours."""

    repo: RepoName
    tracker: str
    location: str
    remote_id: str
    our_user: str | None
    read_to: str | None
    failing_since: str | None
    told: str | None
    heard_at: str | None
    changed_at: str | None


@dataclass(frozen=True, slots=True)
class KnownTicket:
    """A ticket that has been taken. ``since`` and ``seen`` are by the tracker's clock."""

    external_id: str
    repo: RepoName
    since: str
    seen: str | None
    hints: int


def connect(
    tx: Tx, repo: RepoName, tracker: str, location: str, remote_id: str, *, our_user: str | None
) -> bool:
    """Say where a repository's tickets lie; False where that is said already, or the project is another's.

    Tickets of a project that was left are taken again; another one has its place, unless tickets of it go on.
    """
    at = {"repo": repo, "tracker": tracker, "remote_id": remote_id}
    tx.execute("tickets.come_back", **at)
    tx.execute("tickets.forget_left", **at)
    return (
        tx.execute(
            "tickets.connect",
            repo=repo,
            tracker=tracker,
            location=location,
            remote_id=remote_id,
            our_user=our_user,
        )
        == 1
    )


def leave(tx: Tx, repo: RepoName) -> bool:
    """From now on no ticket of a repository's project is taken; False where that is so already, or it has none."""
    return tx.execute("tickets.leave", repo=repo) == 1


def moved(tx: Tx, repo: RepoName, known: str, location: str) -> None:
    """Where its tickets lie has another address, if they lie where the repository lay: they are read there at once."""
    tx.execute("tickets.moved", repo=repo, known=known, location=location)


def left(tx: Tx, repo: RepoName) -> bool:
    """Whether tickets of a repository's project are taken no more."""
    return tx.one("tickets.left", repo=repo) is not None


def project_of(tx: Tx, repo: RepoName) -> TrackerProject | None:
    """Where a repository's tickets lie, None where here."""
    row = tx.one("tickets.project_of", repo=repo)
    return _project(row) if row else None


def project(tx: Tx, tracker: str, remote_id: str) -> TrackerProject | None:
    """The project of this id."""
    row = tx.one("tickets.project", tracker=tracker, remote_id=remote_id)
    return _project(row) if row else None


def projects(tx: Tx, tracker: str) -> list[TrackerProject]:
    """All at a tracker from which tickets are taken."""
    return [_project(row) for row in tx.all("tickets.projects", tracker=tracker)]


def due(tx: Tx, tracker: str) -> list[TrackerProject]:
    """What is to be read now."""
    return [_project(row) for row in tx.all("tickets.due", tracker=tracker)]


def claim(tx: Tx, repo: RepoName, for_s: float) -> bool:
    """Read it now, and again after so many seconds; False where somebody else does."""
    return tx.execute("tickets.claim", repo=repo, for_s=for_s) == 1


def put_off(tx: Tx, repo: RepoName, for_s: float) -> None:
    """Read it again after so many seconds and not before."""
    tx.execute("tickets.put_off", repo=repo, for_s=for_s)


def soon(tx: Tx, repo: RepoName, in_s: float) -> None:
    """Have it read in so many seconds at the latest."""
    tx.execute("tickets.soon", repo=repo, in_s=in_s)


def heard(tx: Tx, repo: RepoName) -> None:
    """A webhook has told of it."""
    tx.execute("tickets.heard", repo=repo)


def was_read(tx: Tx, repo: RepoName, read_to: str | None, our_user: str) -> None:
    """What has changed up to a moment has been seen."""
    tx.execute("tickets.was_read", repo=repo, read_to=read_to, our_user=our_user)


def failing(tx: Tx, repo: RepoName) -> None:
    """It could not be read."""
    tx.execute("tickets.failing", repo=repo)


def changed(tx: Tx, repo: RepoName, at: str) -> None:
    """Something was said there of which a webhook should tell; ``at`` is by our clock."""
    tx.execute("tickets.changed", repo=repo, at=at)


def tell(tx: Tx, repo: RepoName, what: str | None) -> bool:
    """A person is told of something, or that it is over; False where one knows that already."""
    return tx.execute("tickets.tell", repo=repo, what=what) == 1


def ticket(tx: Tx, tracker: str, external_id: str) -> KnownTicket | None:
    """One that has been taken."""
    row = tx.one("tickets.ticket", tracker=tracker, external_id=external_id)
    return _ticket(row) if row else None


def take(tx: Tx, tracker: str, external_id: str, repo: RepoName, since: str) -> None:
    """From now on what is said in it counts: after ``since``, by the tracker's clock."""
    tx.execute("tickets.take", tracker=tracker, external_id=external_id, repo=repo, since=since, seen=since)


def hint(tx: Tx, tracker: str, external_id: str) -> bool:
    """Have it read soon; False where it was never taken."""
    return tx.execute("tickets.hint", tracker=tracker, external_id=external_id) == 1


def hinted(tx: Tx, tracker: str) -> list[KnownTicket]:
    """What is to be read because somebody said so."""
    return [_ticket(row) for row in tx.all("tickets.hinted", tracker=tracker)]


def claim_hints(tx: Tx, tracker: str, of: KnownTicket) -> bool:
    """Read it; False where somebody else does, or there is news since."""
    return tx.execute("tickets.claim_hints", tracker=tracker, external_id=of.external_id, hints=of.hints) == 1


def looked(tx: Tx, tracker: str, external_id: str, seen: str | None) -> None:
    """It has been read, up to the change of this moment by the tracker's clock."""
    tx.execute("tickets.looked", tracker=tracker, external_id=external_id, seen=seen)


def longest_unseen(tx: Tx, repo: RepoName, limit: int) -> list[KnownTicket]:
    """Of the tickets of open tasks those that nobody has looked at for longest."""
    return [_ticket(row) for row in tx.all("tickets.longest_unseen", repo=repo, limit=limit)]


def _project(row: Row) -> TrackerProject:
    return TrackerProject(
        RepoName(row["repo"]),
        row["tracker"],
        row["location"],
        row["remote_id"],
        row["our_user"],
        row["read_to"],
        row["failing_since"],
        row["told"],
        row["heard_at"],
        row["changed_at"],
    )


def _ticket(row: Row) -> KnownTicket:
    return KnownTicket(row["external_id"], RepoName(row["repo"]), row["since"], row["seen"], row["hints"])
