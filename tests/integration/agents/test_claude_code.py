"""The real Claude Code command against the scripted model: no network, no account."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agents.claude import ClaudeAgent, bundled
from orchestrator.agents.prompt import render_prompt
from orchestrator.agents.runs import RunHandle
from orchestrator.domain.job import RunOutcome, RunResult
from orchestrator.domain.stage import Role, Track
from orchestrator.repo_config.records import AgentConfig
from orchestrator.runtime.process import SystemProcesses
from orchestrator.scripted_model.server import ScriptedModel
from orchestrator.work_items.documents import validate
from tests.integration.agents.running import Bench
from tests.unit.agents.test_prompt import STAGES, brief

KEY = "sk-scripted-canary"


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def claude(tmp_path: Path, model: ScriptedModel) -> "Claude":
    return Claude(tmp_path, model)


class Claude:
    """Runs the command in a fresh repository."""

    def __init__(self, root: Path, model: ScriptedModel) -> None:
        command = bundled()
        assert command is not None, "claude-agent-sdk is not installed: ./dev installs it"
        self.root, self.model = root, model
        self.bench = Bench(root, dict(os.environ))
        self.config = AgentConfig(kind="claude", command=(command,), model="claude-sonnet-4-5")
        self.git("init", "--quiet", "--initial-branch=main")
        self.git(
            "-c", "user.name=t", "-c", "user.email=t@t", "commit", "--quiet", "--allow-empty", "-m", "init"
        )

    def git(self, *arguments: str) -> str:
        argv = ["git", "-C", str(self.bench.worktree), *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def start(self, scenario: str, prompt: str = "Do what the script says.", **more: object) -> RunHandle:
        base = self.model.url(scenario, self.root.name)
        self.bench.environ = {**os.environ, "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": base}
        self.bench.environ = {**self.bench.environ, "CLAUDE_CODE_MAX_RETRIES": "2"}
        return self.bench.start(kind="claude", prompt=prompt, config=self.config, **more)  # type: ignore[arg-type]

    def run(self, scenario: str, prompt: str = "Do what the script says.", **more: object) -> RunResult:
        return self.bench.wait(self.start(scenario, prompt, **more))


def test_probe_tells_the_version(tmp_path: Path) -> None:
    command = bundled()
    assert command is not None
    told = ClaudeAgent().probe(SystemProcesses(), {**os.environ, "HOME": str(tmp_path)}, (command,))
    assert told is not None
    assert "Claude Code" in told
    assert ClaudeAgent().probe(SystemProcesses(), os.environ, ("/no/such/claude",)) is None


def test_writes_and_commits_under_the_agents_name(claude: Claude) -> None:
    result = claude.run("write-commit")
    assert result.outcome is RunOutcome.DONE
    assert claude.git("log", "-1", "--format=%an: %s").strip() == "orchestrator agent: Add hello"
    assert (claude.bench.worktree / "hello.py").read_text() == "print('hello')\n"
    assert (result.usage.input_tokens, result.usage.output_tokens) == (1900, 160)
    assert result.usage.cost_usd is not None
    assert result.model == "claude-sonnet-4-5"


def test_key_is_in_no_file_of_the_run(claude: Claude) -> None:
    handle = claude.start("write-commit")
    claude.bench.wait(handle)
    ours = [path for path in handle.run_dir.iterdir() if path.is_file()]
    assert {"launch.json", "exit.json", "output.log"} <= {path.name for path in ours}
    assert not [path for path in ours if KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    ("scenario", "outcome"),
    [
        ("rate-limited-forever", RunOutcome.RATE_LIMITED),
        ("unauthorized", RunOutcome.AUTH),
        ("server-error", RunOutcome.API_ERROR),
        ("overloaded-forever", RunOutcome.OVERLOADED),
        ("overflow", RunOutcome.CONTEXT_OVERFLOW),
        ("overloaded", RunOutcome.DONE),
        ("midstream", RunOutcome.DONE),
        ("reset", RunOutcome.DONE),
        ("malformed", RunOutcome.DONE),
    ],
)
def test_faults_of_the_service(claude: Claude, scenario: str, outcome: RunOutcome) -> None:
    result = claude.run(scenario)
    assert result.outcome is outcome
    assert (result.retry_after_s is not None) == (outcome is RunOutcome.RATE_LIMITED)


@pytest.mark.parametrize("scenario", ["stall-start", "stall-ping"])
def test_service_that_falls_silent_is_noticed(claude: Claude, scenario: str) -> None:
    assert claude.run(scenario, stall_s=2.0).outcome is RunOutcome.STALLED


def test_limits(claude: Claude) -> None:
    assert claude.run("loop", max_turns=2).outcome is RunOutcome.LIMIT_TURNS
    assert claude.run("costly", max_cost_usd=0.5).outcome is RunOutcome.LIMIT_BUDGET
    assert claude.run("loop", max_tokens=3000).outcome is RunOutcome.LIMIT_BUDGET


def test_timeout_in_a_tool_leaves_nothing(claude: Claude) -> None:
    handle = claude.start("long-tool", timeout_s=4.0)
    assert claude.bench.wait(handle).outcome is RunOutcome.LIMIT_TIME
    assert not claude.bench.left_of(handle)


def test_helper_left_at_a_good_end_is_ended(claude: Claude) -> None:
    handle = claude.start("background")
    assert claude.bench.wait(handle).outcome is RunOutcome.DONE
    assert not claude.bench.left_of(handle)


def test_resumed_conversation_goes_on_and_pays_its_own_share(claude: Claude) -> None:
    handle = claude.start("ask")
    first = claude.bench.wait(handle)
    session = claude.bench.runs.session_of(handle.run_dir)
    assert session is not None
    second = claude.run("ask", "Do what the script says.", resume=session)
    assert (first.summary, second.summary) == ("First answer.", "Second answer after resume.")
    assert second.session_id == first.session_id
    assert first.usage.cost_usd is not None
    assert second.usage.cost_usd is not None
    assert second.usage.cost_usd < first.usage.cost_usd * 1.5


def test_all_roles_leave_valid_documents_for_the_right_commit(claude: Claude) -> None:
    for role in Role:
        prompt = render_prompt(brief(role, language="ru", title='Добавить "кнопку": да'))
        assert claude.run("auto", prompt).outcome is RunOutcome.DONE, role
        folder = claude.bench.worktree / "docs" / "work-items" / "ORCH-7"
        documents = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        assert not validate(documents, work_item="ORCH-7", stage=STAGES[role], track=Track.FULL)
    assert "gated_sha: " + "a" * 40 in (folder / "12-review.md").read_text()
    assert "candidate_sha: " + "c" * 40 in (folder / "14-staging-log.md").read_text()
    subjects = claude.git("log", "--format=%s").splitlines()
    assert subjects == ["ORCH-7: make the change", "ORCH-7: architecture", "ORCH-7: analysis", "init"]


def test_review_sends_the_first_development_back_where_asked(claude: Claude) -> None:
    told = brief(body="scripted: reject the first development")
    review = claude.bench.worktree / "docs" / "work-items" / "ORCH-7" / "12-review.md"
    claude.run("auto", render_prompt(told))
    assert "verdict: rejected" in review.read_text()
    review.unlink()
    claude.run("auto", render_prompt(replace(told, round=2)))
    assert "verdict: approved" in review.read_text()
