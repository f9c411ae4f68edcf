"""One project at a Plane, the fake or a real one, spoken to in plain HTTP.

Each call is held against the server's own published description on its way.
"""

import os
import re
import uuid
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

import httpx

from tests.contracts.openapi import Description
from tests.contracts.spoken_to import Told
from tests.project.checkout import ROOT

CONTRACTS = Path(os.environ.get("ORCH_CONTRACTS") or ROOT.parent / "shared" / "contracts")
# Statuses that the description does not name, each seen on a real server or read in its source.
UNDOCUMENTED = {400, 403, 404, 429, 500}


@cache
def description() -> Description:
    return Description(CONTRACTS / "plane-openapi.json")


def conforms(method: str, path: str, query: dict[str, str], body: Any, status: int, answer: Any) -> None:
    """Hold one call against the description; ``path`` is the whole of it."""
    told = description()
    if status < 400:  # what is wrong on purpose is not described
        told.request(method, path, query, body)
    if "expand" in query or "external_id" in query or "fields" in query or path.endswith("/members/"):
        return  # the description knows one shape for each call, and these give another
    known = told.answer(method, path, status, _without_slugs(answer))
    assert known or status in UNDOCUMENTED, f"{method} {path} {status}"


def _without_slugs(answer: Any) -> Any:
    """Real states have an empty one, which the description forbids."""
    if isinstance(answer, list):
        return [_without_slugs(one) for one in answer]
    if not isinstance(answer, dict):
        return answer
    return {name: _without_slugs(one) for name, one in answer.items() if (name, one) != ("slug", "")}


@dataclass
class Server:
    """A server, our key, and a project that we have made there for this test."""

    url: str
    key: str
    workspace: str
    items: str = "work-items"
    calls: dict[str, Told] = field(default_factory=dict)  # the first of each kind
    project: str = ""
    identifier: str = ""
    _http: httpx.Client = field(default_factory=lambda: httpx.Client(trust_env=False, timeout=30))

    def __post_init__(self) -> None:
        mark = uuid.uuid4().hex[:6].upper()
        wanted = {"name": f"orch conformance {mark}", "identifier": f"OC{mark}"}
        made = self.call("POST", f"/workspaces/{self.workspace}/projects/", wanted).body
        self.project, self.identifier = made["id"], made["identifier"]

    def close(self) -> None:
        self.api("DELETE", "")
        self._http.close()

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = "", **query: Any) -> Told:
        """One call below ``/api/v1``, with our key unless another is given; a limit of calls is waited for."""
        given = self.key if key == "" else key
        headers = {} if given is None else {"X-API-Key": given}
        asked = {name: str(value) for name, value in query.items()}
        told = self._http.request(
            method, f"{self.url}/api/v1{path}", params=asked, json=body, headers=headers
        )
        if told.status_code == 429:
            Event().wait(float(told.headers["retry-after"]))
            return self.call(method, path, body, key=key, **query)
        answer = told.json() if told.content else ""
        found = Told(told.status_code, answer, dict(told.headers))
        if told.status_code not in (301, 401, 405) and "state_id" not in (body or {}):
            conforms(method, f"/api/v1{path}", asked, body, found.status, found.body)
        self.calls.setdefault(kind_of_call(method, path, asked, found.status), found)
        return found

    def api(self, method: str, path: str, body: Any = None, **query: Any) -> Told:
        """One call about the project."""
        return self.call(
            method, f"/workspaces/{self.workspace}/projects/{self.project}/{path}", body, **query
        )

    def item(self, name: str = "Add totals", **more: Any) -> dict[str, Any]:
        told = self.api("POST", f"{self.items}/", {"name": name, **more})
        assert told.status == 201
        return told.body  # type: ignore[no-any-return]

    def states(self) -> dict[str, str]:
        """Ids by group."""
        return {state["group"]: state["id"] for state in self.api("GET", "states/").body["results"]}


def kind_of_call(method: str, path: str, query: dict[str, Any], status: int) -> str:
    """What calls are compared by: without ids and numbers."""
    path = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", path.removeprefix("/api/v1").split("?")[0])
    path = re.sub(r"/[A-Z0-9]+-[0-9]+/", "/KEY/", re.sub(r"/workspaces/[^/]+", "/workspaces/W", path))
    shaping = "".join(f"?{name}" for name in ("expand", "external_id") if name in query)
    return f"{method} {path}{shaping} {status}"
