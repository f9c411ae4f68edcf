import json
from pathlib import Path

import pytest

from orchestrator.agents.agent import AgentTask, RunEnd, Stop, StopReason, Tally
from orchestrator.agents.command import CommandAgent
from orchestrator.domain.job import RunOutcome, RunResult, Usage
from orchestrator.domain.stage import Role
from orchestrator.repo_config.records import AgentConfig

COMMAND = CommandAgent()


def finish(code: int | None, left: object = None, stop: Stop | None = None, stderr: str = "") -> RunResult:
    artifacts = {} if left is None else {"usage": left if isinstance(left, str) else json.dumps(left)}
    return COMMAND.finish(RunEnd("agent", code, stop, Tally(text="last words"), stderr, artifacts, None, 0.0))


def test_exit_zero_is_done() -> None:
    assert finish(0).outcome is RunOutcome.DONE


def test_other_exit_is_a_crash_with_its_last_words() -> None:
    result = finish(3, stderr="no such thing")
    assert result.outcome is RunOutcome.CRASHED
    assert result.summary == "agent ended with exit code 3. It said: no such thing Its last line: last words"
    assert "SIGSEGV" in finish(-11).summary


def test_usage_is_taken_from_the_file_it_left() -> None:
    left = {"input_tokens": 10, "output_tokens": 2, "cost_usd": 0.5, "model": "m", "summary": "did it"}
    result = finish(0, left)
    assert result.usage == Usage(10, 2, 0, 0, 0.5)
    assert (result.model, result.summary) == ("m", "did it")


@pytest.mark.parametrize(
    "left",
    ["", "[]", "nonsense", '{"input_tokens": -1, "cost_usd": NaN}', '{"input_tokens": true, "cost_usd": "9"}']
    + [
        '{"input_tokens": 1e300, "cost_usd": 1e999}',
        '{"input_tokens": 99999999999999999999, "cost_usd": -2}',
    ],
)
def test_nonsense_in_that_file_counts_for_nothing(left: str) -> None:
    assert finish(0, left).usage == Usage()


def test_stated_retry_makes_a_failure_a_rate_limit() -> None:
    result = finish(75, {"retry_after_s": 60})
    assert (result.outcome, result.retry_after_s) == (RunOutcome.RATE_LIMITED, 60.0)
    assert finish(0, {"retry_after_s": 60}).retry_after_s is None


def test_our_stop_has_precedence() -> None:
    assert finish(0, stop=Stop(StopReason.KILLED, "cancelled")).outcome is RunOutcome.KILLED


def test_brief_goes_in_by_file_and_on_standard_input(tmp_path: Path) -> None:
    config = AgentConfig(
        kind="command", command=("agent", "--fast"), env=("MY_KEY", "ORCH_SECRET", "NOT_SET")
    )
    task = AgentTask(
        Role.TESTER, tmp_path, tmp_path / "run", tmp_path / "brief.json", tmp_path / "prompt.md", "u", config
    )
    launch = COMMAND.launch(
        task, {"MY_KEY": "k", "ORCH_SECRET": "s", "ANTHROPIC_API_KEY": "a", "LANG": "C.UTF-8"}
    )
    assert launch.argv == ("agent", "--fast")
    assert launch.stdin_file == tmp_path / "prompt.md"
    assert launch.env["ORCH_BRIEF"] == str(tmp_path / "brief.json")
    assert launch.env["LANG"] == "C.UTF-8"
    assert launch.secrets == {"MY_KEY": "k"}
    assert "ORCH_SECRET" in launch.warnings[0]
    assert "ORCH_SECRET" not in launch.env
