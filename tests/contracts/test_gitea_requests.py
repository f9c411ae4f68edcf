"""Every request that the forge sends, and every answer that it gets, is one of the published API."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.config import Secret
from orchestrator.domain.errors import OutsideError
from orchestrator.forges.hooks import GITEA, Hooks
from orchestrator.played.gitea import FakeGitea, Style
from orchestrator.runtime.git import Git
from tests.contracts.gitea_client import conforms
from tests.fixtures_git import BRANCH, person_at
from tests.fixtures_git_server import RemoteHouse
from tests.fixtures_gitea import gitea_house


@pytest.fixture(params=[Style.FAST_FORWARD, Style.MERGE])
def house(request: pytest.FixtureRequest, tmp_path: Path, git: Git) -> Iterator[RemoteHouse]:
    with FakeGitea(tmp_path / "server") as server:
        made = gitea_house(tmp_path, server, person_at(tmp_path / "person", {"README.md": "Sample\n"}), git)
        made.there.styles = {request.param}
        yield made


def test_from_the_branch_to_the_merge(house: RemoteHouse) -> None:
    head = house.clone.commit_files(house.main, {"a.txt": b"1\n"}, "A")
    house.push(BRANCH, head)
    for _ in range(2):
        house.forge.open_pr(BRANCH, "S-1: Change it", "Text <b>")
    extra = house.there.open("S-1: Change it", "", "orchbot", "main", BRANCH, head)
    house.forge.close_pr(extra.number)
    with pytest.raises(OutsideError):
        house.forge.close_pr(99)
    candidate = house.candidate(head)
    house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    house.forge.merge(candidate, 1)
    house.forge.pull_requests(BRANCH)
    api = house.forge._api  # type: ignore[attr-defined]
    api.branch("main")
    house.there.rights["orchbot"] = "admin"
    house.there.protections["main"] = {"required_approvals": 1, "dismiss_stale_approvals": True}
    assert api.branch("main").dismisses
    for _ in range(2):
        Hooks(api, GITEA).settle("https://orch.example.org/webhooks/gitea", Secret("s"))
    assert len(Hooks(api, GITEA).remove("https://orch.example.org/webhooks/gitea")) == 1
    house.there.rights["erin"] = "write"
    for number in range(60):
        said = {"context": f"ci/{number}", "state": "success"}
        house.server.say("erin", "POST", house.there, f"/statuses/{head}", said)
    remark = {"path": "a.txt", "new_position": 1, "body": "Words"}
    asks = {"event": "REQUEST_CHANGES", "body": "Words", "commit_id": head, "comments": [remark]}
    house.server.say("erin", "POST", house.there, "/pulls/1/reviews", asks)
    others = house.forge.others  # type: ignore[attr-defined]
    assert len(others.checks(head)) == 60
    [review] = others.reviews(1)
    assert len(others.remarks(1, review.number)) == 1
    calls = [call for call in house.server.journal.calls if call.path.startswith("/api/v1/")]
    assert {call.method for call in calls} == {"GET", "POST", "PATCH", "DELETE"}
    for call in calls:
        path = call.path.removeprefix("/api/v1")
        answer = "" if call.answer is None else call.answer
        conforms(call.method, path, call.query, call.body, call.status, answer)
