"""`orch run`: real processes, a real repository, the whole pipeline with the scripted agent."""

import signal

import pytest

from tests.fixtures_db import NO_TABLE
from tests.fixtures_git import Hand
from tests.fixtures_orch import CONFIG, Orch, ended
from tests.waiting import wait_until

WAITING = """\
developer:
  - steps:
      - say: thinking
      - wait: 600
"""


class TestToTheEnd:
    def test_delivers_a_ticket(self, orch: Orch) -> None:
        hand = orch.checkout()
        said = orch("run", "Добавить строку", "--label", "fast", cwd=hand.folder)
        assert said.code == 0, said.err
        assert "Registered as shop" in said.out
        assert "==> done" in said.out
        assert "git pull orch main" in said.out
        hand.git("pull", "-q", "orch", "main")
        assert "Merge SHOP-1: Добавить строку" in hand.git("log", "-1", "--format=%s")
        assert orch("why", "SHOP-1").out.startswith("SHOP-1 done: owned by nobody")
        assert not orch.api_file.exists()

    def test_progress_does_not_disturb_json(self, orch: Orch) -> None:
        said = orch("run", "Add a line", "--label", "fast", "--json", cwd=orch.checkout().folder)
        assert said.data["exit_code"] == said.code == 0
        assert said.data["task"]["stage"] == "done"
        assert "==> done" in said.err

    @pytest.mark.long
    def test_uses_the_service_that_runs_already(self, orch: Orch) -> None:
        hand = orch.checkout()
        assert orch("init", cwd=hand.folder).code == 0
        with orch.serving() as service:
            said = orch("run", "Add a line", "--label", "fast", cwd=hand.folder)
            assert said.code == 0, said.err
            assert "with the service that runs already" in said.out
            assert "==> done" in said.out
            assert ended(service).code == 0

    @pytest.mark.long
    def test_brings_new_commits_along(self, orch: Orch) -> None:
        hand = orch.checkout()
        orch("init", cwd=hand.folder)
        newest = hand.commit("More", {"more.txt": "more\n"})
        said = orch("run", "Add a line", "--label", "fast", "--json", cwd=hand.folder)
        assert said.data["task"]["base_sha"] == newest


class TestAPersonIsNeeded:
    def test_for_an_approval_it_is_4_and_goes_on_after_it(self, orch: Orch) -> None:
        hand = orch.checkout(files={".orchestrator.toml": CONFIG + "[approvals]\nanalysis = true\n"})
        said = orch("run", "Add a line", "--label", "fast", cwd=hand.folder)
        assert said.code == 4, said.err
        assert "orch task approve SHOP-1" in said.out
        with orch.serving() as service:
            assert orch("task", "approve", "SHOP-1", "--json").data["outcome"] == "applied"
            wait_until(lambda: _stage(orch) == "done")
            assert ended(service).code == 0

    def test_an_agent_that_is_not_there_escalates_with_1(self, orch: Orch) -> None:
        config = CONFIG.replace('kind = "scripted"', 'kind = "command"\ncommand = ["/nonexistent/agent"]')
        said = orch("run", "Add a line", cwd=orch.checkout(files={".orchestrator.toml": config}).folder)
        assert said.code == 1
        assert "/nonexistent/agent" in said.out
        assert "orch task retry SHOP-1" in said.out

    @pytest.mark.long
    def test_checks_that_fail_escalate_with_1(self, orch: Orch) -> None:
        config = CONFIG.replace('"true"', '"echo broken >&2; exit 1"') + "[budget]\nmax_rounds = 1\n"
        said = orch(
            "run",
            "Add a line",
            "--label",
            "fast",
            cwd=orch.checkout(files={".orchestrator.toml": config}).folder,
        )
        assert said.code == 1
        assert "escalated" in said.out


class TestRefusals:
    def test_no_repository(self, orch: Orch) -> None:
        said = orch("run", "x")
        assert said.code == 2
        assert "no git repository" in said.err

    def test_an_unborn_main(self, orch: Orch) -> None:
        place = orch.folder / "unborn"
        place.mkdir()
        Hand(place).git("init", "-q", "-b", "main")
        said = orch("run", "x", cwd=place)
        assert said.code == 2
        assert "no commit yet" in said.err

    def test_no_configuration(self, orch: Orch) -> None:
        said = orch("run", "x", cwd=orch.checkout(files={"README.md": "x"}).folder)
        assert said.code == 2
        assert "orch init" in said.err

    def test_a_configuration_that_is_not_committed(self, orch: Orch) -> None:
        hand = orch.checkout(files={"README.md": "x"})
        hand.write(".orchestrator.toml", CONFIG)
        said = orch("run", "x", cwd=hand.folder)
        assert said.code == 2
        assert "git commit" in said.err

    def test_a_missing_ci_command(self, orch: Orch) -> None:
        hand = orch.checkout(files={".orchestrator.toml": 'default_branch = "main"\n'})
        said = orch("run", "x", cwd=hand.folder)
        assert said.code == 2
        assert "ci" in said.err
        assert orch("task", "list", "--json").code in (0, 2)

    def test_a_dirty_checkout_is_told_and_left_alone(self, orch: Orch) -> None:
        hand = orch.checkout()
        hand.write("README.md", "not committed\n")
        said = orch("run", "Add a line", "--label", "fast", cwd=hand.folder)
        assert said.code == 0, said.err
        assert "1 files differ" in said.out
        assert hand.git("status", "--porcelain") == "?? README.md"

    def test_an_unknown_repository(self, orch: Orch) -> None:
        said = orch("run", "x", "--repo", "nowhere")
        assert said.code == 2
        assert "nowhere" in said.err


class TestInterrupted:
    @pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
    def test_stops_watching_and_leaves_the_agent(self, orch: Orch, signum: int) -> None:
        config = CONFIG.replace(
            'kind = "scripted"', f'kind = "scripted"\ncommand = ["{orch.folder}/script.yaml"]'
        )
        (orch.folder / "script.yaml").write_text(
            WAITING + "analyst:\n  - steps:\n      - documents: {}\n      - commit: {message: documents}\n",
            encoding="utf-8",
        )
        hand = orch.checkout(files={".orchestrator.toml": config})
        with orch.started("run", "Add a line", "--label", "fast", cwd=hand.folder) as process:
            wait_until(lambda: orch.supervisors())
            wait_until(lambda: _stage(orch) == "development" and orch.supervisors())
            said = ended(process, signum)
        assert said.code == 130, said.err
        assert "Traceback" not in said.err
        assert "an agent at work keeps running" in said.err
        assert "orch watch SHOP-1" in said.out and "orch serve" in said.out
        assert orch.supervisors(), "the agent was ended with its watcher"
        with orch.serving() as service:
            assert orch("task", "cancel", "SHOP-1", "--json").data["outcome"] == "applied"
            wait_until(lambda: not orch.supervisors())
            assert ended(service).code == 0


def _stage(orch: Orch) -> str | None:
    """Read from the database: asking a command again and again would take the time that the service needs."""
    try:
        rows = orch.shell("SELECT stage FROM tasks")
    except NO_TABLE:  # being made
        return None
    return str(rows[0][0]) if rows else None
