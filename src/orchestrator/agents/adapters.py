"""The adapters by name. Read by the wiring and by the supervisor, which is a process of its own."""

from orchestrator.agents.agent import Agent
from orchestrator.agents.claude import ClaudeAgent
from orchestrator.agents.codex import CodexAgent
from orchestrator.agents.command import CommandAgent
from orchestrator.agents.scripted_agent import ScriptedAgent

AGENTS: dict[str, Agent] = {
    agent.name: agent for agent in (ClaudeAgent(), CodexAgent(), CommandAgent(), ScriptedAgent())
}
