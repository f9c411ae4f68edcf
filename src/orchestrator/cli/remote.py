"""The desk of a running service, over its loopback API: same questions, same answers, same errors."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast
from urllib.parse import quote, urlencode

from orchestrator.cli.owner import Owner
from orchestrator.domain.errors import (
    ConfigError,
    NotFound,
    OrchestratorError,
    OutsideError,
    RequestRefused,
)
from orchestrator.domain.task import Ticket
from orchestrator.operations.connections import OpenTasks
from orchestrator.repositories import Elsewhere
from orchestrator.runtime.http import Http, SystemHttp
from orchestrator.stage_engine.resolutions import Resolution
from orchestrator.web.views import Plain

TIMEOUT_S = 30.0  # making a forge of a large repository takes its time
ANSWER_LIMIT = 64 * 1024 * 1024  # a long story with its documents

_WORK_ITEM = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ERRORS: Mapping[int, type[OrchestratorError]] = {
    400: ConfigError,
    401: RequestRefused,
    404: NotFound,
    409: RequestRefused,
    413: RequestRefused,
}


class RemoteDesk:
    """Asks the owner. It takes no proxy and follows no redirect."""

    served = True
    live = True

    def __init__(self, owner: Owner, http: Http | None = None) -> None:
        self.url = owner.url
        self._token = owner.token
        self._http = http or SystemHttp()

    def add_task(self, repo: str, ticket: Ticket, priority: int) -> Plain:
        """File a ticket."""
        body = {
            "repo": repo,
            "title": ticket.title,
            "body": ticket.body,
            "labels": list(ticket.labels),
            "depends_on": list(ticket.depends_on),
            "external_id": ticket.external_id,
            "priority": priority,
        }
        return self._ask("POST", "/tasks", body)

    def decide(
        self, work_item: str, decision: str, *, person: str, reason: str, subject: str | None
    ) -> Plain:
        """Store a decision; the service acts on it at once."""
        body = {"person": person, "reason": reason, "subject": subject}
        return self._ask("POST", f"/tasks/{_segment(work_item)}/{decision}", body)

    def outcome(self, work_item: str, signal_id: int) -> str | None:
        """What came of it."""
        found = self._ask("GET", f"/tasks/{_segment(work_item)}/signals/{signal_id}")["outcome"]
        return None if found is None else str(found)

    def resolve(self, effect_id: int, resolution: Resolution, *, person: str, reason: str) -> Plain:
        """Store a word on an effect; the service acts on it at once."""
        body = {"resolution": resolution.value, "person": person, "reason": reason}
        return self._ask("POST", f"/effects/{effect_id}/resolve", body)

    def unfreeze(self, repo: str, *, person: str, reason: str) -> bool:
        """Lift a freeze."""
        path = "/serial-gate/unfreeze?" + urlencode({"repo": repo})
        return bool(self._ask("POST", path, {"person": person, "reason": reason})["lifted"])

    def lend(self, repo: str, work_item: str, *, person: str, reason: str) -> None:
        """Lend a frozen merge slot."""
        path = "/serial-gate/unfreeze?" + urlencode({"repo": repo})
        self._ask("POST", path, {"person": person, "reason": reason, "for": work_item})

    def release_lease(self, work_item: str, *, person: str, reason: str) -> Plain:
        """Take a task from its owner."""
        path = "/transition-lease/release?" + urlencode({"work_item": work_item})
        return self._ask("POST", path, {"person": person, "reason": reason})

    def restore_status(self) -> Plain:
        """What is closed."""
        return self._ask("GET", "/restore")

    def restore_accept(self, *, person: str, reason: str) -> Plain:
        """Accept it."""
        return self._ask("POST", "/restore/accept", {"person": person, "reason": reason})

    def register(self, source: Path, name: str, prefix: str, *, at: Elsewhere | None = None) -> Plain:
        """Register a checkout, or its repository at the server."""
        place = {"path": str(source)} if at is None else {at.forge: at.full_name}
        return self._ask("POST", "/repositories", {**place, "name": name, "prefix": prefix})

    def connect(self, repo: str, plane: str | None) -> Plain:
        """Let its tickets come from a project at Plane, or from its issues."""
        place: dict[str, object] = {"issues": True} if plane is None else {"plane": plane}
        return self._ask("POST", f"/repositories/{quote(repo, safe='')}/tracker", place)

    def disconnect(
        self, repo: str, *, tickets_only: bool, open_tasks: OpenTasks, person: str, reason: str
    ) -> Plain:
        """Take no more tickets of it."""
        said = {"tickets_only": tickets_only, "open": open_tasks.value, "person": person, "reason": reason}
        return self._ask("POST", f"/repositories/{quote(repo, safe='')}/disconnect", said)

    def move(self, repo: str, to: str, *, person: str, reason: str) -> Plain:
        """Point it to its new place."""
        body = {"to": to, "person": person, "reason": reason}
        return self._ask("POST", f"/repositories/{quote(repo, safe='')}/move", body)

    def repositories(self) -> list[Plain]:
        """What is registered."""
        return cast(list[Plain], self._ask("GET", "/repositories")["repositories"])

    def tasks(self, *, open_only: bool, before: int, after: int, limit: int) -> Plain:
        """A page of tasks."""
        asked = {"open": "true" if open_only else "false", "before": before, "after": after, "limit": limit}
        return self._ask("GET", "/tasks?" + urlencode(asked))

    def story(self, work_item: str) -> Plain:
        """Everything about one task."""
        return self._ask("GET", f"/tasks/{_segment(work_item)}")

    def events(self, work_item: str, after: int) -> Plain:
        """A page of events."""
        return self._ask("GET", f"/tasks/{_segment(work_item)}/events?after={after}")

    def why(self, work_item: str) -> Plain:
        """Why it stands there."""
        return self._ask("GET", f"/tasks/{_segment(work_item)}/why")

    def effects(self, *, work_item: str | None, everything: bool, before: int, limit: int) -> Plain:
        """A page of effects."""
        asked: dict[str, object] = {
            "all": "true" if everything else "false",
            "before": before,
            "limit": limit,
        }
        return self._ask(
            "GET", "/effects?" + urlencode({**asked, **({"task": work_item} if work_item else {})})
        )

    def queue(self) -> Plain:
        """What runs, waits and holds."""
        return self._ask("GET", "/queue")

    def _ask(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Plain:
        """One question.

        :raises OrchestratorError: what the owner says went wrong, as if it had happened here.
        """
        headers = {"authorization": f"Bearer {self._token}", "accept": "application/json"}
        content = None
        if body is not None:
            headers["content-type"] = "application/json"
            content = json.dumps(body).encode()
        answer = self._http.request(
            method, self.url + path, headers=headers, body=content, timeout_s=TIMEOUT_S, limit=ANSWER_LIMIT
        )
        try:
            told = json.loads(answer.body)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise OutsideError(
                f"The running service at {self.url} answered with {answer.status} and no JSON.",
                hint="Is another program listening there? Stop the service and start it again.",
            )
        if answer.ok:
            return told
        kind = _ERRORS.get(answer.status, OutsideError)
        raise kind(str(told.get("detail", "The service refused.")), hint=str(told.get("hint", "")))


def _segment(work_item: str) -> str:
    """A task's number as one segment of a path; what looks like none cannot be asked for.

    :raises NotFound: no task has such a number.
    """
    if not _WORK_ITEM.fullmatch(work_item):
        raise NotFound(
            f"There is no task {work_item[:80]}.", hint="`orch task list` shows the ones there are."
        )
    return work_item
