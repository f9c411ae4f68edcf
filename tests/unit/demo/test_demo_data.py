"""The demo's data: what is shipped can be read by those who will read it."""

import json
from pathlib import Path

import pytest

from orchestrator.agents.brief import Brief
from orchestrator.agents.prompt import render_prompt
from orchestrator.agents.script import default_steps, parse_script, steps_for
from orchestrator.demo.agent_choice import SCENARIOS
from orchestrator.demo.run import tickets
from orchestrator.demo.sample_repository import free_ports, write_sample, write_script
from orchestrator.domain.ids import RepoName, WorkItem
from orchestrator.domain.stage import Role, Stage
from orchestrator.repo_config.loader import parse_repo_config
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import SystemProcesses
from orchestrator.scripted_model.scenario import SHIPPED, load

AGENT = '[agent]\nkind = "scripted"'


def brief(role: Role, ticket: int, round_: int = 1) -> Brief:
    chosen = tickets()[ticket]
    return Brief(
        work_item=WorkItem("GREET-1"),
        role=role,
        stage=Stage.DEVELOPMENT,
        round=round_,
        attempt=1,
        title=chosen.title,
        body=chosen.body,
        language="en",
        repo=RepoName("greeter"),
    )


def test_one_ticket_is_russian() -> None:
    english, russian = tickets()
    assert english.title.isascii()
    assert any("а" <= letter <= "я" for letter in russian.title)


def test_the_sample_is_committed_and_its_configuration_is_accepted(tmp_path: Path) -> None:
    git = Git(SystemProcesses())
    sample = write_sample(tmp_path, git, python='/odd "path"/python', agent=AGENT)
    config = parse_repo_config((sample.repository / ".orchestrator.toml").read_bytes(), source="sample")
    assert config.ci.command == ('/odd "path"/python', "ci/check.py")
    assert config.staging is not None and config.production is not None
    assert config.staging.probe.url == sample.staging.url
    assert config.production.env["GREETER_PORT"] == str(sample.production.port)
    assert sample.staging.port != sample.production.port
    assert git.text(["status", "--porcelain"], cwd=sample.repository) == ""
    assert git.text(["rev-parse", "main"], cwd=sample.repository) == sample.first_commit


def test_every_place_is_filled_in(tmp_path: Path) -> None:
    sample = write_sample(tmp_path, Git(SystemProcesses()), python="python3", agent=AGENT)
    filled = [sample.repository / ".orchestrator.toml", write_script(tmp_path, python="python3")]
    for place in filled:
        left = [line for line in place.read_text(encoding="utf-8").splitlines() if "@" in line]
        assert all(line.startswith("#") for line in left), left


def test_ports_differ() -> None:
    assert len(set(free_ports(8))) == 8


@pytest.mark.parametrize("ticket", [0, 1])
def test_the_script_has_a_part_for_whoever_changes_code(tmp_path: Path, ticket: int) -> None:
    place = write_script(tmp_path, python="python3")
    script = parse_script(place.read_text(encoding="utf-8"), str(place))
    for role in (Role.ANALYST, Role.DEVELOPER):
        asked = brief(role, ticket)
        assert steps_for(script, asked) != default_steps(asked)


def test_the_review_rejects_the_second_ticket_once(tmp_path: Path) -> None:
    place = write_script(tmp_path, python="python3")
    script = parse_script(place.read_text(encoding="utf-8"), str(place))

    def verdicts(ticket: int, round_: int) -> str:
        return json.dumps(steps_for(script, brief(Role.REVIEWER, ticket, round_)))

    assert "rejected" in verdicts(1, 1)
    assert "rejected" not in verdicts(1, 2)
    assert "rejected" not in verdicts(0, 1)


@pytest.mark.parametrize(
    ("role", "ticket", "round_", "expected"),
    [
        (Role.DEVELOPER, 0, 1, "demo-developer-hello"),
        (Role.DEVELOPER, 1, 1, "demo-developer-bye-first"),
        (Role.DEVELOPER, 1, 2, "demo-developer-bye-next"),
        (Role.REVIEWER, 1, 1, "demo-reviewer-bye-first"),
        (Role.REVIEWER, 1, 2, "reviewer"),
        (Role.REVIEWER, 0, 1, "reviewer"),
        (Role.ANALYST, 1, 1, "analyst"),
    ],
)
def test_the_scripted_model_knows_each_part(role: Role, ticket: int, round_: int, expected: str) -> None:
    prompt = render_prompt(brief(role, ticket, round_))
    fitting = [scenario.name for scenario in load([SCENARIOS, SHIPPED]) if scenario.fits(prompt)]
    assert fitting[0] == expected
