"""One repository at a Gitea, the fake or a real one, spoken to in plain HTTP and plain git.

Each call is held against the published descriptions of both Gitea and Forgejo on its way.
"""

import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from tests.contracts.openapi import Description
from tests.contracts.spoken_to import SpokenTo, Told
from tests.project.checkout import ROOT

CONTRACTS = Path(os.environ.get("ORCH_CONTRACTS") or ROOT.parent / "shared" / "contracts")
# Gitea since 1.27 calls these fields otherwise and takes both; older ones and Forgejo know only these.
RENAMED = {"Do": "do", "MergeTitleField": "merge_title_field", "MergeMessageField": "merge_message_field"}
# Statuses that no description names, each seen on a real server or read in its source.
UNDOCUMENTED = {
    *(("POST", "merge", 422), ("POST", "merge", 500), ("POST", "statuses", 500)),
    ("GET", "/user", 403),  # of a token without read:user
}


@cache
def descriptions() -> tuple[Description, ...]:
    return tuple(Description(CONTRACTS / f"{name}-swagger.json") for name in ("gitea", "forgejo"))


def conforms(method: str, path: str, query: dict[str, str], body: Any, status: int, answer: Any) -> None:
    """Hold one call against the descriptions; ``path`` is what follows ``/api/v1``."""
    for one in descriptions():
        sent = body
        if one.name.startswith("gitea") and path.endswith("/merge") and isinstance(body, dict):
            sent = {RENAMED.get(name, name): value for name, value in body.items()}
        if status < 400:  # what is wrong on purpose is not described
            one.request(method, path, query, sent)
        known = one.answer(method, path, status, answer)
        assert known or (method, _kind(path), status) in UNDOCUMENTED, f"{one.name}: {method} {path} {status}"


def _kind(path: str) -> str:
    return next((word for word in ("merge", "statuses") if word in path), path)


@dataclass
class Server(SpokenTo):
    """Each call is kept."""

    asked_for: ClassVar[dict[str, Any]] = {"default_branch": "main"}
    calls: list[tuple[str, str, Told]] = field(default_factory=list)

    def call(self, method: str, path: str, body: Any = None, *, known: bool = True, **query: Any) -> Told:
        """One call below ``/api/v1``, as our user; `known`: with the token."""
        headers = {"Authorization": f"token {self.token}"} if known else {}
        asked = {name: str(value) for name, value in query.items()}
        found = self.sent(method, f"{self.url}/api/v1{path}", body, headers, asked)
        if found.status != 401 and "page not found" not in str(found.body):
            conforms(method, path, asked, body, found.status, found.body)
        self.calls.append((method, path, found))
        return found

    def merge(self, number: int, head: str, style: str = "merge", **more: str) -> Told:
        return self.api("POST", f"/pulls/{number}/merge", {"Do": style, "head_commit_id": head, **more})
