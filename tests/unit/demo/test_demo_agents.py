"""Whose account the demo uses, and that it says so."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from orchestrator.demo.agent_choice import AgentChoice, choose_agent
from orchestrator.repo_config.loader import parse_repo_config
from orchestrator.runtime.process import SystemProcesses

NEEDED = b'default_branch = "main"\n[ci]\ncommand = ["true"]\n'
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def chosen(name: str, home: Path, environ: Mapping[str, str]) -> AgentChoice:
    with choose_agent(
        name, home, python=sys.executable, processes=SystemProcesses(), environ=environ
    ) as choice:
        config = parse_repo_config(NEEDED + choice.table.encode(), source="demo")
        assert config.agent.kind == name
        return choice


def test_the_scripted_agent_says_that_it_is_no_ai(tmp_path: Path) -> None:
    choice = chosen("scripted", tmp_path, ENVIRON)
    assert "no AI" in choice.said
    assert choice.environ == ENVIRON


def test_claude_without_a_key_sees_the_scripted_model_and_no_credentials(tmp_path: Path) -> None:
    given = ENVIRON | {
        "ANTHROPIC_AUTH_TOKEN": "mine",
        "CLAUDE_CODE_OAUTH_TOKEN": "mine",
        "ANTHROPIC_BASE_URL": "https://example.org",
    }
    choice = chosen("claude", tmp_path, given)
    assert "scripted model" in choice.said
    assert "mine" not in choice.environ.values()
    assert choice.environ["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")


def test_claude_with_a_key_works_on_that_account_within_bounds(tmp_path: Path) -> None:
    given = ENVIRON | {"ANTHROPIC_API_KEY": "mine"}
    choice = chosen("claude", tmp_path, given)
    assert "your own account" in choice.said
    assert "costs money" in choice.said
    assert choice.environ == given
    config = parse_repo_config(NEEDED + choice.table.encode(), source="demo")
    assert config.agent.max_cost_usd is not None
    assert config.budget.max_cost_usd is not None
    assert "mine" not in choice.said + choice.table
