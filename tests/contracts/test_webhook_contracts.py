"""Every delivery that real servers have sent, and every made-up one beside them, is understood."""

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.db import tasks
from orchestrator.domain.ids import Sha
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from tests.fixtures_db import Store
from tests.fixtures_webhooks import Letters, letters_over
from tests.fixtures_webhooks_served import ServeWebhooks
from tests.project.checkout import ROOT

CONTRACTS = Path(os.environ.get("ORCH_CONTRACTS") or ROOT.parent / "shared" / "contracts")
BODIES = sorted(
    path.with_suffix("").with_suffix(".json")
    for folder in ("fixtures", "fixtures/real")
    for path in (CONTRACTS / folder).glob("*.headers.json")
)
if not any(path.parent.name == "real" for path in BODIES):
    raise FileNotFoundError(f"no deliveries of real servers in {CONTRACTS}")
MADE_UP = "test-secret"  # what the made-up ones are signed with
HOPS = ("Host", "Content-Length", "Connection", "Accept-Encoding")  # said anew by whoever sends
KINDS = ("X-Gitea-Event-Type", "X-Gitea-Event", "X-Plane-Event")


def read(path: Path) -> tuple[str, str, dict[str, Any]]:
    """Source, kind and body."""
    headers = json.loads(path.with_suffix(".headers.json").read_text())["headers"]
    kind = next(headers[name] for name in KINDS if name in headers)
    return "plane" if "X-Plane-Event" in headers else "gitea", kind, json.loads(path.read_text())


def task_of(letters: Letters, source: str, body: dict[str, Any]) -> Task:
    """A task that the delivery is about, whatever it names."""
    data = body.get("data", {})
    ticket = (
        {"tracker": "plane", "external_id": data.get("issue") or data.get("id")} if source == "plane" else {}
    )
    task = letters.on_show(letters.store.new_task(stage=Stage.ANALYSIS, **ticket))
    if source == "plane":
        return task
    repository = body.get("repository") or body["run"]["repository"]
    letters.store.raw("UPDATE repositories SET location = :at", {"at": repository["clone_url"]})
    pull = body.get("pull_request", {})
    named = body.get("ref") or pull.get("head", {}).get("label") or "none"
    commit = body.get("sha") or body.get("run", {}).get("commit_sha")
    commit = commit or next(
        (body[k]["head_sha"] for k in ("workflow_run", "workflow_job") if k in body), "e" * 40
    )
    with letters.store.database.write() as tx:
        tasks.set_branch(tx, task.id, named.removeprefix("refs/heads/"), Sha("a" * 40))
        tasks.set_head(tx, task.id, commit)
        return tasks.get(tx, task.id)


@pytest.mark.parametrize("path", BODIES, ids=[f"{path.parent.name}-{path.stem}" for path in BODIES])
def test_delivery_is_understood_and_its_repeat_is_known(store: Store, path: Path) -> None:
    letters = letters_over(store)
    source, kind, body = read(path)
    task = task_of(letters, source, body)
    sent = letters.send(source, kind, body)
    assert sent is not None
    assert letters.send(source, kind, body) is None
    assert letters.run() == {"handled": 1, "deferred": 0, "failed": 0}
    ended = str(letters.outcome(sent))
    assert "no repository of ours" not in ended
    if source == "gitea" and kind == "push" and not _deleted_or_main(body):
        assert "was moved to" in ended
    if source == "gitea" and kind == "pull_request" and body["action"] in ("closed", "reopened"):
        assert [word.signal.kind for word in letters.words(task)] == ["pull-request"]
    if kind.startswith(("workflow_run", "workflow_job", "action_run", "status")):
        assert "said" in ended or ended == "nothing to do"


@pytest.mark.parametrize("path", BODIES, ids=[f"{path.parent.name}-{path.stem}" for path in BODIES])
def test_delivery_is_taken_in_as_it_was_sent(
    letters: Letters, serve_webhooks: ServeWebhooks, client: httpx.Client, path: Path
) -> None:
    """Its bytes, its headers, the signature that a server made of them; with one byte more it is refused."""
    sidecar = json.loads(path.with_suffix(".headers.json").read_text())
    source, kind, body = read(path)
    headers = {name: value for name, value in sidecar["headers"].items() if name not in HOPS}
    address = f"{serve_webhooks((sidecar.get('secret', MADE_UP),))}/webhooks/{source}"
    assert client.post(address, content=path.read_bytes() + b" ", headers=headers).status_code == 403
    assert client.post(address, content=path.read_bytes(), headers=headers).status_code == 202
    [row] = letters.store.rows("SELECT source, kind, payload FROM inbox")
    assert (row["source"], row["kind"], json.loads(row["payload"])) == (source, kind, body)


@pytest.mark.parametrize(
    "path", [p for p in BODIES if "issue_updated_state" in p.name], ids=lambda path: path.stem
)
def test_state_of_a_ticket_is_a_persons_word(store: Store, path: Path) -> None:
    source, kind, body = read(path)
    letters = letters_over(store, approved=body["data"]["state"]["name"].lower())
    body["data"]["updated_at"] = "2030-01-01T00:00:00.000000Z"  # after what is on show
    task = task_of(letters, source, body)
    letters.send(source, kind, body)
    letters.run()
    assert [word.signal.kind for word in letters.words(task)] == ["approved"]


def _deleted_or_main(body: dict[str, Any]) -> bool:
    return set(body["after"]) == {"0"}
