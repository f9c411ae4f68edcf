from pathlib import Path

import pytest

from orchestrator.agents.agent import AgentTask, Session, Stop, StopReason
from orchestrator.agents.codex import CodexAgent
from orchestrator.domain.job import RunOutcome, Usage
from orchestrator.domain.stage import Role
from orchestrator.repo_config.records import AgentConfig
from tests.unit.agents.captured import FIXTURES, finish, lines, tally

CODEX = CodexAgent()

VERDICTS = {
    "codex-write-commit": RunOutcome.DONE,
    "codex-ask": RunOutcome.DONE,
    "codex-background": RunOutcome.DONE,
    "codex-malformed": RunOutcome.DONE,
    "codex-sandboxed": RunOutcome.DONE,  # the commit failed unseen: git has to say so
    "codex-overloaded": RunOutcome.DONE,
    "codex-rate-limited": RunOutcome.DONE,
    "codex-rate-limited-forever": RunOutcome.RATE_LIMITED,
    "codex-overloaded-forever": RunOutcome.OVERLOADED,
    "codex-server-error": RunOutcome.OVERLOADED,  # it says "high demand" for a 500
    "codex-unauthorized": RunOutcome.AUTH,
    "codex-overflow": RunOutcome.CONTEXT_OVERFLOW,
    "codex-stall-start": RunOutcome.API_ERROR,
    "codex-sigint": RunOutcome.CRASHED,
    "codex-sigterm": RunOutcome.CRASHED,
    "codex-sigkill": RunOutcome.CRASHED,
}


@pytest.mark.parametrize(("name", "outcome"), VERDICTS.items())
def test_verdict(name: str, outcome: RunOutcome) -> None:
    assert finish(CODEX, name).outcome is outcome


def test_cached_input_is_counted_once() -> None:
    assert finish(CODEX, "codex-write-commit").usage == Usage(1900, 160, 18000, 0)


def test_resumed_run_is_charged_its_own_share() -> None:
    before = Session("x", Path("/nowhere"), Usage(4972, 4))
    assert finish(CODEX, "codex-resume", resume=before).usage == Usage(4981, 4)


def test_summary_is_the_last_message() -> None:
    result = finish(CODEX, "codex-write-commit")
    assert result.summary == "Wrote hello.py and committed it."
    assert result.session_id == "01a2283a-114c-7053-96a5-894608b9ca6f"


def test_turns_are_counted_from_what_it_does() -> None:
    assert tally(CODEX, "codex-write-commit").turns == 4


def test_refused_key_is_noticed_at_once() -> None:
    assert tally(CODEX, "codex-unauthorized").auth_failed


def test_our_stop_has_precedence() -> None:
    stop = Stop(StopReason.STALLED, "silent")
    assert finish(CODEX, "codex-sigterm", stop=stop).outcome is RunOutcome.STALLED


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.jsonl")))
def test_no_prefix_of_a_line_raises(name: str) -> None:
    for line in lines(name):
        for cut in range(0, len(line), max(1, len(line) // 40)):
            assert CODEX.parse(line[:cut])


def test_launch_names_the_key_it_reads(tmp_path: Path) -> None:
    config = AgentConfig(kind="codex", model='gpt-"5"', command=("/opt/codex",))
    task = AgentTask(Role.DEVELOPER, tmp_path, tmp_path, tmp_path, tmp_path / "prompt.md", "uuid", config)
    launch = CODEX.launch(task, {"OPENAI_API_KEY": "sk-secret", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    assert launch.argv[-1] == "-"
    assert 'model="gpt-\\"5\\""' in launch.argv
    assert launch.secrets == {"OPENAI_API_KEY": "sk-secret", "CODEX_API_KEY": "sk-secret"}
    assert "sk-secret" not in str(launch.argv)
