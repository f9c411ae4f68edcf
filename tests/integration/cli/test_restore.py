"""``orch restore`` and ``/restore``: what is closed is told, and accepted for a reason, with and without a service."""

import json
import subprocess
import sys

import httpx

from orchestrator.domain.task import Hold
from orchestrator.web.api import create_api
from orchestrator.web.server import WebServer
from tests.fixtures_pipeline import Build, Pipeline


def orch(line: Pipeline, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        env={**line.environ, **line.variables()},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def lose_the_mark(line: Pipeline) -> None:
    line.start().stop()
    line.forge.git("update-ref", "-d", "refs/orch/installation")


def test_without_a_service(pipeline: Build) -> None:
    line = pipeline().start()
    item = line.add()
    line.done(item)
    line.stop()
    assert orch(line, "restore", "status") == (0, "Nothing is closed: database and forges belong together.\n")
    code, said = orch(line, "restore", "accept", "--reason", "x")
    assert (code, "nothing was changed" in said) == (2, True)
    lose_the_mark(line)
    code, said = orch(line, "restore", "status")
    assert code == 1
    assert "lost the mark" in said
    code, said = orch(line, "doctor")
    assert (code, "Ready to work" in said) == (1, False)
    assert "sample" in said
    assert "lost the mark" in said
    assert "`orch restore accept --reason …` lets work go on" in said
    assert orch(line, "restore", "accept")[0] == 2
    code, said = orch(line, "restore", "accept", "--reason", "the disk was lost", "--as", "Ann")
    assert (code, "sample is open again." in said) == (0, True)
    assert orch(line, "restore", "status")[0] == 0
    line.start()
    assert line.app.guard.open_repositories() == {"sample"}


def test_over_http(pipeline: Build) -> None:
    line = pipeline()
    lose_the_mark(line)
    line.start()
    item = line.add()
    api = create_api(
        line.app.operations,
        token=None,
        ready=line._service.ready,
        restore=line.app.restore,  # type: ignore[union-attr]
    )
    with (
        WebServer(api, host="127.0.0.1", port=0) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http,
    ):
        assert http.get("/readyz").status_code == 503
        [state] = http.get("/queue").json()["installation"]
        assert (state["repo"], state["closed"], state["generation"]) == ("sample", "forge", 1)
        assert "orch restore status" in http.get(f"/tasks/{item}/why").json()["waits_for"]
        told = http.get("/restore").json()
        assert [one["wait_for_a_person"] for one in told["repositories"]] == [[item]]
        assert http.post("/restore/accept", json={"person": "Ann"}).status_code == 409
        done = http.post("/restore/accept", json={"person": "Ann", "reason": "the disk was lost"})
        assert (done.status_code, done.json()["opened"]) == (200, {"sample": True})
        again = http.post("/restore/accept", json={"person": "Ann", "reason": "once more"})
        assert (again.status_code, json.loads(again.text)["status"]) == (409, 409)
        assert http.get("/readyz").status_code == 200
        assert http.get("/queue").json()["installation"][0]["closed"] is None
    task = line.held(item, Hold.ESCALATED)
    assert "accepted by Ann" in str(task.hold_reason)
    assert line.agents() == []
    line.retry(item)
    line.done(item)
