"""Who does the agents' work in the demo, and what the watcher is told about it.

``scripted`` is a small program that follows a script. ``claude`` is the real Claude Code: with ANTHROPIC_API_KEY in
the environment it works on that account; without, it talks to the scripted model on loopback, and nothing of the
user's credentials is handed to it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agents.claude import ClaudeAgent
from orchestrator.demo.sample_repository import DATA, write_script
from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.spelling import did_you_mean
from orchestrator.runtime.process import Processes
from orchestrator.scripted_model.scenario import SHIPPED
from orchestrator.scripted_model.server import ScriptedModel

AGENTS = ("scripted", "claude")
KEY = "ANTHROPIC_API_KEY"
CREDENTIALS = (KEY, "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_BASE_URL")
NO_SECRET = "scripted-model"
SCENARIOS = DATA / "scenarios"
RUN_COST_USD = 2  # bounds a run on the user's own account
TASK_COST_USD = 10


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """The agent's table of the sample's configuration, its environment, and words for people."""

    table: str
    environ: Mapping[str, str]
    said: str
    cost_note: str
    patience_s: float  # the demo gives up after so long


@contextmanager
def choose_agent(
    name: str, home: Path, *, python: str, processes: Processes, environ: Mapping[str, str]
) -> Iterator[AgentChoice]:
    """The agent for as long as the demo runs; with it, where needed, the scripted model.

    :raises RequestRefused: there is no such agent, or its program is not installed.
    """
    if name not in AGENTS:
        meant = did_you_mean(name, AGENTS)
        raise RequestRefused(
            f"There is no agent {name!r} for the demo.", hint=meant or "Use scripted or claude."
        )
    if name == "scripted":
        yield _scripted(write_script(home, python=python), environ)
        return
    version = ClaudeAgent().probe(processes, environ, None)
    if version is None:
        raise RequestRefused(
            "Claude Code does not run here.", hint="`./dev demo --agent claude` installs it with the demo."
        )
    if environ.get(KEY):
        yield _own_account(version, environ)
        return
    with ScriptedModel([SCENARIOS, SHIPPED]) as model:
        yield _scripted_model(version, model.url(), environ)


def _scripted(script: Path, environ: Mapping[str, str]) -> AgentChoice:
    table = f'[agent]\nkind = "scripted"\ncommand = [{json.dumps(str(script))}]\ntimeout = "2m"\nstall = "1m"'
    said = (
        "The agent is the scripted one: a small program that follows a script. It is no AI. "
        "Everything else is real: git, the tests, coverage, the build, the deploys, the two services."
    )
    return AgentChoice(table, environ, said, "the scripted agent: tokens are made up, nothing is billed", 300)


def _own_account(version: str, environ: Mapping[str, str]) -> AgentChoice:
    table = (
        f'[agent]\nkind = "claude"\ntimeout = "20m"\nmax_cost_usd = {RUN_COST_USD}\n\n'
        f"[budget]\nmax_cost_usd = {TASK_COST_USD}"
    )
    said = (
        f"The agent is Claude Code ({version}) on your own account: {KEY} is set, and this costs money. "
        f"A run is ended at {RUN_COST_USD} US dollars, a task is stopped at {TASK_COST_USD}."
    )
    return AgentChoice(table, environ, said, "Claude Code's own figures, on your account", 3600)


def _scripted_model(version: str, url: str, environ: Mapping[str, str]) -> AgentChoice:
    kept = {key: value for key, value in environ.items() if key not in CREDENTIALS}
    table = '[agent]\nkind = "claude"\ntimeout = "5m"\nstall = "2m"'
    said = (
        f"The agent is the real Claude Code ({version}), talking to a scripted model on this machine: {KEY} is not "
        "set. The model is no AI; no account is used and nothing leaves the machine."
    )
    note = "Claude Code against the scripted model: tokens and prices are made up, nothing is billed"
    return AgentChoice(table, {**kept, "ANTHROPIC_BASE_URL": url, KEY: NO_SECRET}, said, note, 900)
