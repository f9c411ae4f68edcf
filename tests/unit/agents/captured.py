"""Captured output of real agent programs (tests/fixtures/agents), replayed through an adapter."""

import json
from pathlib import Path

from orchestrator.agents.agent import Agent, Event, RunEnd, Session, Stop, Tally
from orchestrator.agents.watch import Counter
from orchestrator.domain.job import RunResult

FIXTURES = Path(__file__).parents[2] / "fixtures" / "agents"
ENDS = json.loads((FIXTURES / "ends.json").read_text())
NOW = 1_767_225_600.0  # 2026-01-01


def lines(name: str) -> list[bytes]:
    return (FIXTURES / f"{name}.jsonl").read_bytes().splitlines()


def events(agent: Agent, name: str) -> list[Event]:
    return [event for line in lines(name) for event in agent.parse(line)]


def tally(agent: Agent, name: str) -> Tally:
    counter = Counter()
    for event in events(agent, name):
        counter.add(event)
    return counter.tally()


def finish(agent: Agent, name: str, *, stop: Stop | None = None, resume: Session | None = None) -> RunResult:
    end = ENDS[name]
    return agent.finish(
        RunEnd(agent.name, end["exit_code"], stop, tally(agent, name), end["stderr"], {}, resume, NOW)
    )
