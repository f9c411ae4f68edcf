"""`orch serve` as a real process, and commands that talk to it."""

import json
import os
import re
import signal
import socket
import stat
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from orchestrator.runtime.clock import SystemClock
from tests.fixtures_orch import CONFIG, Orch, ended
from tests.waiting import PATIENCE_S, wait_until

TOKEN = "a-token-of-more-than-sixteen"


@pytest.fixture
def shop(orch: Orch) -> Orch:
    """A registered repository whose tasks wait for a person after the analysis, so that they stay for a look."""
    files = {".orchestrator.toml": CONFIG + "[approvals]\nanalysis = true\n"}
    said = orch("init", cwd=orch.checkout(files=files).folder)
    assert said.code == 0, said.err
    return orch


class TestOwning:
    @pytest.mark.of_the_file  # several work on one server
    def test_the_second_one_refuses_and_the_first_goes_on(self, shop: Orch) -> None:
        with shop.serving() as first:
            said = shop("serve")
            assert said.code == 2
            assert f"orch serve (pid {first.pid})" in said.err
            assert shop("queue", "--json").code == 0
            told = shop("queue").out
            assert all(word in told for word in ("Leases: ", "\nReaper: ", "\nReconciler: "))
            assert ended(first).code == 0

    def test_commands_talk_to_it(self, shop: Orch) -> None:
        """Filed, refused, decided and looked at through the owner, with the words of a local command."""
        with shop.serving():
            filed = shop("task", "add", "Корзина", "--json")
            assert filed.data["served"] is True
            for command, words in (
                (("task", "show", "SHOP-9"), "There is no task SHOP-9"),
                (("task", "cancel", "SHOP-9"), "There is no task SHOP-9"),
                (("task", "cancel", "../.."), "There is no task ../.."),
                (("task", "add", "x" * 5001), "5000"),
                (("task", "add", "x", "--repo", "nowhere"), "nowhere"),
                (("unfreeze", "nowhere"), "not registered"),
            ):
                said = shop(*command)
                assert said.code == 2
                assert words in said.err
            done = shop("task", "cancel", filed.data["work_item"], "--json")
            assert done.code == 0, done.err
            assert done.data["outcome"] == "applied"
            assert shop("task", "cancel", filed.data["work_item"]).code == 2  # it has ended

    def test_a_repository_is_registered_with_it(self, shop: Orch) -> None:
        other = shop.checkout("other", files={".orchestrator.toml": CONFIG, "x.txt": "x"})
        with shop.serving():
            said = shop("init", "--json", cwd=other.folder)
            assert said.code == 0, said.err
            assert said.data["repository"] == "other"
        assert "other" in shop("doctor").out

    def test_a_stale_address_is_believed_by_nobody(self, shop: Orch) -> None:
        with shop.serving() as process:
            told = shop.api_file.read_text(encoding="utf-8")
            process.kill()
            process.wait(PATIENCE_S)
        assert shop.api_file.read_text(encoding="utf-8") == told
        said = shop("task", "add", "After the crash", "--json")
        assert said.code == 0, said.err
        assert said.data["served"] is False
        with shop.serving() as process:
            assert shop.api()["process"]["pid"] == process.pid

    def test_the_address_file_is_private_and_short_lived(self, shop: Orch) -> None:
        with shop.serving() as process:
            assert stat.S_IMODE(shop.api_file.stat().st_mode) == 0o600
            token = shop.api()["token"]
            for shown in ("cmdline", "environ"):
                assert token.encode() not in Path(f"/proc/{process.pid}/{shown}").read_bytes()
            said = ended(process)
        assert token not in said.out + said.err
        assert not shop.api_file.exists()


class TestStopping:
    @pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
    def test_ends_with_0_within_its_budget(self, shop: Orch, signum: int) -> None:
        """With clients that keep connections open, one of them in the middle of a request."""
        shop.settings["ORCH_SHUTDOWN_BUDGET_S"] = "10"
        clock = SystemClock()
        with shop.serving() as process:
            parts = urlsplit(shop.api()["url"])
            opened = [socket.create_connection((parts.hostname, parts.port), timeout=60) for _ in range(3)]
            opened[1].sendall(b"GET /queue HTTP/1.1\r\nHost: localhost\r\n\r\n")
            opened[2].sendall(b"POST /tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
            began = clock.boottime()
            said = ended(process, signum)
            for connection in opened:
                connection.close()
        assert said.code == 0, said.err
        assert clock.boottime() - began < 10.0
        assert "Traceback" not in said.err

    def test_a_second_signal_changes_nothing(self, shop: Orch) -> None:
        with shop.serving() as process:
            process.send_signal(signal.SIGTERM)
            assert ended(process, signal.SIGTERM).code == 0
        with shop.serving() as process:
            assert ended(process).code == 0

    def test_a_taken_port_starts_nothing(self, shop: Orch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            shop.settings["ORCH_PORT"] = str(taken.getsockname()[1])
            said = shop("serve")
        assert said.code == 3
        assert "ORCH_PORT" in said.err
        assert not shop.api_file.exists()

    def test_a_start_that_fails_does_not_say_that_it_serves(self, shop: Orch) -> None:
        shop.shell("ALTER TABLE jobs RENAME TO mislaid")
        said = shop("serve")
        assert said.code == 3
        assert re.search('no such table: jobs|relation "jobs" does not exist', said.err)
        assert said.out == "" and not shop.api_file.exists()


class TestBeyondLoopback:
    def test_a_token_is_required(self, shop: Orch) -> None:
        shop.settings["ORCH_HOST"] = "0.0.0.0"
        said = shop("serve")
        assert said.code == 2
        assert "ORCH_TOKEN" in said.err

    def test_with_a_token_it_asks_for_it_and_commands_need_none(self, shop: Orch) -> None:
        shop.settings |= {"ORCH_HOST": "0.0.0.0", "ORCH_TOKEN": TOKEN}
        with shop.serving():
            url = shop.api()["url"]
            assert url.startswith("http://127.0.0.1:")
            with httpx.Client(base_url=url, trust_env=False, headers={"host": "any.example"}) as client:
                assert client.get("/queue").status_code == 401
                assert client.get("/queue", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
            assert shop("task", "add", "x", "--json").data["served"] is True


class TestAnswering:
    def test_says_where_it_is(self, shop: Orch) -> None:
        with shop.started("serve", "--json") as process:
            wait_until(lambda: shop.api_file.exists())
            told = json.loads(ended(process).out)
        assert told["pid"] == process.pid and told["home"] == str(shop.home)

    def test_is_ready_and_shows_its_daemons(self, shop: Orch) -> None:
        with shop.serving(), httpx.Client(base_url=shop.api()["url"], trust_env=False) as client:
            assert client.get("/readyz").status_code == 200
            assert "queue_worker" in client.get("/queue").json()
            assert "<h2>No tickets yet</h2>" in client.get("/").text

    def test_who_does_not_know_the_token_changes_nothing(self, shop: Orch) -> None:
        """The address alone is not enough, neither to decide nor to file; the command line sends the token."""
        with shop.serving():
            assert shop("task", "add", "x").code == 0
            with httpx.Client(base_url=shop.api()["url"], trust_env=False) as client:
                assert client.post("/tasks", json={"repo": "shop", "title": "x"}).status_code == 401
                assert client.post("/tasks/SHOP-1/cancel").status_code == 401

    def test_runs_as_one_process(self, shop: Orch) -> None:
        with shop.serving() as process:
            wait_until(lambda: shop("queue").code == 0)
            threads = Path(f"/proc/{process.pid}/task").glob("*/children")
            children = " ".join(place.read_text(encoding="ascii") for place in threads).split()
            assert [pid for pid in children if b"orchestrator" in _cmdline(pid)] == []


def _cmdline(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_suite_asks_nobody_for_its_own_settings(orch: Orch) -> None:
    assert not {name for name in orch.environ if name.startswith("ORCH_")} - {
        "ORCH_HOME",
        "ORCH_PORT",
        "ORCH_RUN_ORPHAN_TTL_S",
        *orch.settings,
    }
    assert os.environ["PATH"] == orch.environ["PATH"]
