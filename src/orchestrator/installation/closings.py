"""Closes repositories for good: what a restart still knows, and a person is told once."""

from collections.abc import Mapping

import structlog

from orchestrator.db import alerts, events, installation
from orchestrator.db.database import Database, Tx
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import RepoName
from orchestrator.domain.installation import Cause, Finding

log = structlog.get_logger(__name__)


class Closings:
    """The closed repositories of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def standing(self) -> dict[RepoName, Finding]:
        """What an earlier life, or this one, has closed."""
        with self._database.read() as tx:
            return {one.repo: one.closed for one in installation.states(tx) if one.closed is not None}

    def close(self, findings: Mapping[RepoName, Finding], start_id: str) -> None:
        """Write down why nothing is done there; closing for the same reason again says nothing more."""
        with self._database.write() as tx:
            new = {repo: one for repo, one in findings.items() if installation.close(tx, repo, one)}
            for repo, finding in new.items():
                _tell(tx, repo, finding, start_id)
        for repo, finding in new.items():
            log.error("repository closed", repo=repo, cause=finding.cause.value, reason=finding.reason)


def _tell(tx: Tx, repo: RepoName, finding: Finding, start_id: str) -> None:
    """One alert for each reason, be it that of many repositories."""
    data = {"repo": repo, "cause": finding.cause, "reason": finding.reason}
    events.append(tx, EventType.INSTALLATION_CLOSED, "guard", data=data)
    whom = "any repository" if finding.cause is Cause.DATABASE else repo
    text = f"Nothing is done for {whom} any more: {finding.reason}. See `orch restore status`."
    alerts.call(tx, text, "installation", start_id, finding.reason)
