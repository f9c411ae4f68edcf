import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agents.agent import (
    AgentTask,
    Delta,
    Limits,
    Raw,
    Retry,
    RunEnd,
    Session,
    Stop,
    StopReason,
    Tally,
    ToolEnd,
    ToolStart,
)
from orchestrator.agents.claude import ClaudeAgent, bundled
from orchestrator.domain.job import RunOutcome, Usage
from orchestrator.domain.stage import Role
from orchestrator.repo_config.records import AgentConfig
from tests.unit.agents.captured import ENDS, FIXTURES, events, finish, lines, tally

CLAUDE = ClaudeAgent()

# What each captured session came to. Its exit code and `subtype` alone would often say otherwise.
VERDICTS = {
    "claude-write-commit": RunOutcome.DONE,
    "claude-denied": RunOutcome.DONE,
    "claude-dontask": RunOutcome.DONE,
    "claude-malformed": RunOutcome.DONE,
    "claude-partial": RunOutcome.DONE,
    "claude-background": RunOutcome.DONE,
    "claude-rate-limited": RunOutcome.DONE,
    "claude-overloaded": RunOutcome.DONE,
    "claude-midstream": RunOutcome.DONE,
    "claude-reset": RunOutcome.DONE,
    "claude-long-output": RunOutcome.DONE,
    "claude-max-turns": RunOutcome.LIMIT_TURNS,
    "claude-max-budget": RunOutcome.LIMIT_BUDGET,
    "claude-rate-limited-forever": RunOutcome.RATE_LIMITED,
    "claude-overloaded-forever": RunOutcome.OVERLOADED,
    "claude-server-error": RunOutcome.API_ERROR,
    "claude-overflow": RunOutcome.CONTEXT_OVERFLOW,
    "claude-unauthorized": RunOutcome.AUTH,
    "claude-stall-headers-timeout": RunOutcome.API_ERROR,
    "claude-stall-start-watchdog": RunOutcome.API_ERROR,
    "claude-sigint": RunOutcome.KILLED,
    "claude-sigterm": RunOutcome.CRASHED,
    "claude-sigkill": RunOutcome.CRASHED,
    "claude-badresume": RunOutcome.CRASHED,
    "claude-root-nosandbox": RunOutcome.CRASHED,
}


@pytest.mark.parametrize(("name", "outcome"), VERDICTS.items())
def test_verdict(name: str, outcome: RunOutcome) -> None:
    assert finish(CLAUDE, name).outcome is outcome


def test_exit_code_lies_in_both_directions() -> None:
    assert ENDS["claude-sigint"]["exit_code"] == 0
    assert finish(CLAUDE, "claude-sigint").outcome is not RunOutcome.DONE


def test_refused_tools_are_a_warning_each_once() -> None:
    assert finish(CLAUDE, "claude-denied").warnings == (
        "The program refused its tool Write.",
        "The program refused its tool Bash.",
    )


def test_result_has_the_true_totals() -> None:
    result = finish(CLAUDE, "claude-write-commit")
    assert result.usage == Usage(1900, 160, 18000, 9000, pytest.approx(0.04725))
    assert result.session_id == "23a16a17-9f20-441d-8bae-d162a6a98086"
    assert result.model == "claude-sonnet-4-5"
    assert result.summary == "Wrote hello.py and committed it."


def test_live_usage_counts_each_answer_once_and_knows_its_output() -> None:
    counted = tally(CLAUDE, "claude-partial")
    assert counted.turns == 3
    assert counted.usage == Usage(1900, 160, 18000, 9000)


def test_resumed_run_is_charged_its_own_share() -> None:
    result = finish(CLAUDE, "claude-resume")
    assert result.usage.input_tokens == 9874
    assert result.usage.cost_usd == pytest.approx(0.029682)
    final = tally(CLAUDE, "claude-resume").final
    assert final is not None
    assert final.session_usage is not None
    assert final.session_usage.cost_usd == pytest.approx(0.059283)


def test_rate_limit_says_when_to_come_back() -> None:
    assert finish(CLAUDE, "claude-rate-limited-forever").retry_after_s == 2.0


def limited(text: str, retry: Retry | None = None) -> float | None:
    line = {"type": "result", "subtype": "success", "is_error": True, "result": text}
    counted = Tally(final=CLAUDE.parse(json.dumps(line).encode())[0], retry=retry)  # type: ignore[arg-type]
    result = CLAUDE.finish(RunEnd("claude", 1, None, counted, "", {}, None, 1_767_225_600.0))
    assert result.outcome is RunOutcome.RATE_LIMITED
    return result.retry_after_s


def test_usage_limit_of_a_plan_is_a_rate_limit_until_its_reset() -> None:
    assert limited("Claude AI usage limit reached|1767229200") == 3600.0
    assert limited("You've hit your limit · resets 3pm") is None
    (retry,) = CLAUDE.parse(
        b'{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1767226200}}'
    )
    assert isinstance(retry, Retry)
    assert limited("You've hit your limit", retry) == 600.0


def test_first_refused_key_is_noticed() -> None:
    assert tally(CLAUDE, "claude-unauthorized").auth_failed


def test_running_tool_is_known_until_it_ends() -> None:
    tools = [
        event for event in events(CLAUDE, "claude-parallel-tools") if isinstance(event, ToolStart | ToolEnd)
    ]
    assert len([event for event in tools if isinstance(event, ToolStart)]) == 2
    assert len([event for event in tools if isinstance(event, ToolEnd)]) == 2
    assert tally(CLAUDE, "claude-parallel-tools").tool is None
    assert tally(CLAUDE, "claude-sigkill").tool == "Bash"


def test_our_stop_has_precedence_and_keeps_what_was_spent() -> None:
    stop = Stop(StopReason.TIMEOUT, "too long")
    result = finish(CLAUDE, "claude-sigint", stop=stop)
    assert (result.outcome, result.summary) == (RunOutcome.LIMIT_TIME, "too long")
    assert result.usage.cost_usd


def test_good_end_of_a_program_that_would_not_go_is_good() -> None:
    stop = Stop(StopReason.LINGERING, "")
    assert finish(CLAUDE, "claude-write-commit", stop=stop).outcome is RunOutcome.DONE


def test_exit_zero_without_a_result_is_no_result() -> None:
    end = RunEnd("claude", 0, None, Tally(), "", {}, None, 0.0)
    assert CLAUDE.finish(end).outcome is RunOutcome.NO_RESULT


def test_pieces_of_an_answer_are_marked() -> None:
    assert sum(isinstance(event, Delta) for event in events(CLAUDE, "claude-partial")) > 10


@pytest.mark.parametrize("name", sorted(path.stem for path in FIXTURES.glob("*.jsonl")))
def test_no_prefix_of_a_line_raises(name: str) -> None:
    for line in lines(name):
        for cut in range(0, len(line), max(1, len(line) // 40)):
            assert CLAUDE.parse(line[:cut])


KEYS = st.sampled_from(
    [
        "type",
        "subtype",
        "message",
        "content",
        "usage",
        "id",
        "model",
        "event",
        "result",
        "modelUsage",
        "is_error",
    ]
    + [
        "permission_denials",
        "errors",
        "api_error_status",
        "rate_limit_info",
        "retry_delay_ms",
        "input_tokens",
    ]
) | st.text(max_size=5)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=20,
)
TYPES = st.sampled_from(
    ["system", "assistant", "user", "stream_event", "rate_limit_event", "result", "other"]
)
SUBTYPES = st.sampled_from(["init", "api_retry", "permission_denied", "success"])


@given(TYPES, SUBTYPES, st.dictionaries(KEYS, json_values, max_size=6))
def test_no_shape_of_event_raises(kind: str, subtype: str, rest: dict[str, object]) -> None:
    line = json.dumps({**rest, "type": kind, "subtype": subtype}).encode()
    assert CLAUDE.parse(line)


@given(st.binary(max_size=200))
def test_no_bytes_raise(line: bytes) -> None:
    assert CLAUDE.parse(line)


def test_deep_nesting_is_just_a_line() -> None:
    assert CLAUDE.parse(b'{"a":' * 100_000) == (Raw(),)


def task(tmp_path: Path, **more: object) -> AgentTask:
    return AgentTask(
        Role.DEVELOPER,
        tmp_path / "tree",
        tmp_path,
        tmp_path / "brief.json",
        tmp_path / "prompt.md",
        "uuid",
        **more,
    )  # type: ignore[arg-type]


def test_launch_passes_limits_and_hides_the_key(tmp_path: Path) -> None:
    config = AgentConfig(model="claude-x", command=("/opt/claude",))
    environ = {"PATH": "/bin", "ANTHROPIC_API_KEY": "sk-secret", "ORCH_GITEA_TOKEN": "t", "OTHER": "x"}
    launch = CLAUDE.launch(
        task(tmp_path, config=config, limits=Limits(max_turns=7, max_cost_usd=1.5)), environ
    )
    assert launch.argv[0] == "/opt/claude"
    assert launch.argv[-4:] == ("--max-turns", "7", "--max-budget-usd", "1.5")
    assert launch.argv[launch.argv.index("--session-id") :][:2] == ("--session-id", "uuid")
    assert launch.secrets == {"ANTHROPIC_API_KEY": "sk-secret"}
    assert "sk-secret" not in str(launch.env) + str(launch.argv)
    assert not {"ORCH_GITEA_TOKEN", "OTHER"} & set(launch.env)
    assert launch.stdin_file == tmp_path / "prompt.md"
    assert launch.env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] == "1"
    assert ("IS_SANDBOX" in launch.env) == (os.geteuid() == 0)


def test_launch_resumes(tmp_path: Path) -> None:
    argv = CLAUDE.launch(task(tmp_path, resume=Session("abc", tmp_path)), {}).argv
    assert argv[argv.index("--resume") + 1] == "abc"
    assert "--session-id" not in argv


def test_command_in_the_wheel_is_found() -> None:
    found = bundled()
    assert found is not None
    assert os.access(found, os.X_OK)
