"""The scripted agent as a program: what it does in a real repository."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.agents.adapters import AGENTS
from orchestrator.agents.agent import AgentTask, Limits
from orchestrator.agents.prompt import write_brief
from orchestrator.agents.scripted import GREETING
from orchestrator.domain.job import RunOutcome, RunResult
from orchestrator.domain.stage import Role, Track
from orchestrator.repo_config.records import AgentConfig
from orchestrator.work_items.documents import validate
from tests.integration.agents.running import Bench
from tests.unit.agents.test_prompt import STAGES, brief


def git(bench: Bench, *arguments: str) -> str:
    argv = ["git", "-C", str(bench.worktree), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(bench: Bench) -> Bench:
    git(bench, "init", "--quiet", "--initial-branch=main")
    return bench


def play(bench: Bench, role: Role, script: str | None = None, **changes: object) -> tuple[RunResult, str]:
    bench.count += 1
    run_dir = bench.root / f"run-{bench.count}"
    files = write_brief(brief(role, **changes), run_dir)
    command = None
    if script is not None:
        (bench.root / "script.yaml").write_text(script)
        command = (str(bench.root / "script.yaml"),)
    config = AgentConfig(kind="scripted", command=command)
    task = AgentTask(role, bench.worktree, run_dir, files.brief_file, files.prompt_file, "u", config)
    launch = AGENTS["scripted"].launch(task, bench.environ)
    handle = bench.runs.start(run_dir, launch, Limits(), bench.environ)
    return bench.wait(handle), bench.output(handle)


@pytest.mark.parametrize("language", ["en", "ru"])
def test_every_role_does_the_least_that_is_right(repository: Bench, language: str) -> None:
    folder = repository.worktree / "docs" / "work-items" / "ORCH-7"
    for role in Role:
        result, said = play(repository, role, language=language, title='Добавить "кнопку": да')
        assert result.outcome is RunOutcome.DONE
        assert said.startswith(GREETING)
        assert "no AI" in said
        documents = {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }
        assert not validate(documents, work_item="ORCH-7", stage=STAGES[role], track=Track.FULL)
    assert len(git(repository, "log", "--format=%h").splitlines()) == 3
    left = git(repository, "status", "--porcelain", "--untracked-files=all").splitlines()
    assert [line[-len("12-review.md") :] for line in left][0] == "12-review.md"
    assert len(left) == 3


def test_script_is_played_with_its_words(repository: Bench) -> None:
    script = """
developer:
  - steps:
      - write: {path: src/app.py, content: "print(1)\\n"}
      - append: {path: src/app.py, content: "# {work_item}\\n"}
      - replace: {path: src/app.py, old: "1", new: "2"}
      - run: [git, status, --short]
      - commit: {message: "{work_item}: {title}"}
"""
    result, _ = play(repository, Role.DEVELOPER, script, title="$(touch pwn) `id` -m x")
    assert result.outcome is RunOutcome.DONE
    assert (repository.worktree / "src" / "app.py").read_text() == "print(2)\n# ORCH-7\n"
    assert git(repository, "log", "--format=%s").strip() == "ORCH-7: $(touch pwn) `id` -m x"
    assert not list(repository.root.rglob("pwn"))
    assert result.usage.input_tokens > 0


def test_tester_accounts_for_the_planned_cases(repository: Bench) -> None:
    plan = "analyst: [{steps: [{document: {name: 04-test-plan.yaml, plan: {TC-01: one, TC-02: two}}}]}]"
    play(repository, Role.ANALYST, plan)
    play(repository, Role.TESTER)
    report = repository.worktree / "docs" / "work-items" / "ORCH-7" / "13-test-report.md"
    assert "  TC-01: pass\n  TC-02: pass\n" in report.read_text()


@pytest.mark.parametrize(
    "path", ["../out", "/tmp/orch-out", ".git/hooks/pre-commit", "link/out", "a/../../out"]
)
def test_nothing_is_written_outside(repository: Bench, path: str) -> None:
    (repository.worktree / "link").symlink_to(repository.root)
    result, _ = play(
        repository, Role.DEVELOPER, f"developer: [{{steps: [{{write: {{path: {path}, content: x}}}}]}}]"
    )
    assert (result.outcome, result.exit_code) == (RunOutcome.CRASHED, 1)
    assert "outside the worktree" in result.summary
    assert not (repository.root / "out").exists()
    assert not Path("/tmp/orch-out").exists()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("tester: [{steps: [{exit: 3}]}]", 3),
        ("tester: [{steps: [{run: [git, nonsense]}]}]", 1),
        ("tester: [{steps: [{run: [no-such-program]}]}]", 1),
        ("tester: [{steps: [{replace: {path: x, old: a, new: b}}]}]", 1),
        ("nonsense", 2),
    ],
)
def test_failures_end_it_with_a_code(repository: Bench, script: str, code: int) -> None:
    result, _ = play(repository, Role.TESTER, script)
    assert (result.outcome, result.exit_code) == (RunOutcome.CRASHED, code)
