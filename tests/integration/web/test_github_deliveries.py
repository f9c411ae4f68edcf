"""What the played GitHub sends by itself, taken in over real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.played.github import FakeGitHub
from tests.fixtures_git import person_at
from tests.fixtures_git_server import repository_at
from tests.fixtures_webhooks import Letters
from tests.fixtures_webhooks_served import ServeWebhooks
from tests.senders import OLD, SECRET
from tests.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeGitHub]:
    with FakeGitHub(tmp_path / "server") as fake:
        yield fake


def test_deliveries_are_taken_once_and_by_either_secret(
    letters: Letters, serve_webhooks: ServeWebhooks, server: FakeGitHub, tmp_path: Path
) -> None:
    url = serve_webhooks((OLD, SECRET)) + "/webhooks/github"
    person = person_at(tmp_path / "person", {"a": "1"})
    there = repository_at(server, person)
    for secret in (OLD, SECRET, "x" * 20):
        server.hook(url, secret)
    sent = server.hooks.deliveries
    there.synchronise("dana")  # the push of its first commit
    there.git("update-ref", "refs/heads/work", there.branch("main") or "")
    pull = there.open("t", "b", "dana", "main", "work", there.branch("main") or "")
    server.close_by_hand(there, pull)

    def answers() -> list[tuple[str, list[int]]]:
        return [(one.event, one.statuses) for one in sent]

    # A ping for each hook that there was; then each event for the three of them.
    wait_until(lambda: len(sent) == 6 + 9 and all(one.statuses for one in sent))
    assert [one.statuses for one in sent if one.hook.secret == "x" * 20] == [[403]] * 4, answers()
    for event in ("push", "pull_request"):
        first, second, _ = [one for one in sent if one.event == event][:3]
        assert (first.statuses, second.statuses) == ([202], [200]), answers()
    server.hooks.again(sent[-3])
    wait_until(lambda: sent[-3].statuses == [202, 200])
    rows = letters.store.rows("SELECT kind FROM inbox ORDER BY id")
    assert [row["kind"] for row in rows] == ["ping", "push", "pull_request", "pull_request"]
    letters.run()
    assert {row["outcome"] for row in letters.store.rows("SELECT outcome FROM inbox")} <= {
        "nothing to do",
        "about no repository of ours",
    }
