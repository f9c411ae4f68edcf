"""Webhooks through the real command: secrets from a file, and a kill between the commit and the answer."""

import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.deliveries import gitea_push
from tests.fixtures_orch import Orch
from tests.senders import OLD, SECRET, Sender
from tests.waiting import wait_until

CHILD = Path(__file__).parent.parent / "web" / "serving_child.py"
PUSH = gitea_push("main", "a" * 40, address="https://git.example.org/acme/shop")


def outcomes(orch: Orch) -> list[str | None]:
    """Of everything that is stored."""
    return [row["outcome"] for row in orch.shell("SELECT outcome FROM inbox")]


def test_secrets_from_a_file_are_exchanged_without_a_gap(orch: Orch, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.write_text(f"{OLD}\n{SECRET}\n")
    orch.settings["ORCH_GITEA_WEBHOOK_SECRET_FILE"] = str(secrets)
    with orch.serving(), httpx.Client(trust_env=False, timeout=60) as client:
        url = orch.api()["url"]
        old, new, foreign = (Sender(client, url, "gitea", key) for key in (OLD, SECRET, "x" * 20))
        assert [sender.send(PUSH).status_code for sender in (old, new, foreign)] == [202, 200, 403]
        metrics = client.get(url + "/metrics").json()["counters"]
        assert metrics["orch_webhooks_refused_total"] == {"signature": 1}
        wait_until(lambda: client.get(url + "/queue").json()["inbox"]["open"] == 0)


def test_killed_between_commit_and_answer_the_senders_repeat_changes_nothing(orch: Orch) -> None:
    orch.settings["ORCH_GITEA_WEBHOOK_SECRET"] = SECRET
    with (
        subprocess.Popen([sys.executable, str(CHILD), "webhooks.before_answer"], env=orch.environ) as child,
        httpx.Client(trust_env=False, timeout=60) as client,
    ):
        wait_until(lambda: child.poll() is not None or orch.api_file.exists())
        assert child.poll() is None
        with pytest.raises(httpx.TransportError):
            Sender(client, orch.api()["url"], "gitea").send(PUSH)
        assert child.wait(60) == -signal.SIGKILL
    with orch.serving(), httpx.Client(trust_env=False, timeout=60) as client:
        url = orch.api()["url"]
        assert Sender(client, url, "gitea").send(PUSH).status_code == 200
        wait_until(lambda: client.get(url + "/queue").json()["inbox"]["open"] == 0)
    assert outcomes(orch) == ["about no repository of ours"]
