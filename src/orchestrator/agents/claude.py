"""Claude Code, headless (``claude -p --output-format stream-json``).

Its exit code and the result's ``subtype`` say nothing reliable: it exits 0 when interrupted or when every
tool was refused, and calls failed requests "success". A run is good iff a ``result`` event came and its
``is_error`` is false.
"""

import importlib.util
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.agents.agent import (
    AgentTask,
    Capabilities,
    Delta,
    Denied,
    Event,
    Final,
    Launch,
    Raw,
    Retry,
    RunEnd,
    Spent,
    Started,
    StopReason,
    Text,
    ToolEnd,
    ToolStart,
    Turn,
)
from orchestrator.agents.environment import agent_environment, find_program, passed_on, withheld
from orchestrator.agents.fields import count, inner, json_object, number, text
from orchestrator.agents.verdicts import STOPPED, USAGE_LIMIT, exit_words, refused, retry_after
from orchestrator.domain.job import RunOutcome, RunResult, Usage
from orchestrator.repo_config.records import Argv
from orchestrator.runtime.process import Processes

PASSED = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_MAX_RETRIES",
)
QUIET = {  # nothing but the model service is called
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_MAX_RETRIES": "4",  # beyond that the job is parked, which costs nothing
}
LIMITED = {
    "max_turns": RunOutcome.LIMIT_TURNS,
    "error_max_turns": RunOutcome.LIMIT_TURNS,
    "budget_exhausted": RunOutcome.LIMIT_BUDGET,
    "error_max_budget_usd": RunOutcome.LIMIT_BUDGET,
    "prompt_too_long": RunOutcome.CONTEXT_OVERFLOW,
}
TOO_LONG = re.compile(r"prompt is too long|context window", re.IGNORECASE)
VERSION_SECONDS = 20.0


class ClaudeAgent:
    """The Claude Code command, from PATH, a configured place, or inside the installed ``claude-agent-sdk``."""

    name = "claude"
    capabilities = Capabilities(
        events=True, live_usage=True, cost=True, resume=True, ladder=(("SIGINT", 5.0), ("SIGTERM", 3.0))
    )

    def probe(self, processes: Processes, environ: Mapping[str, str], command: Argv | None) -> str | None:
        """What ``claude --version`` prints."""
        argv = program(environ, command)
        try:
            done = processes.run([*argv, "--version"], env=dict(environ) | QUIET, timeout=VERSION_SECONDS)
        except OSError:
            return None
        return done.stdout.decode(errors="replace").strip() or None if done.returncode == 0 else None

    def launch(self, task: AgentTask, environ: Mapping[str, str]) -> Launch:
        """The prompt goes in on standard input: it may be long, and it shows in no process list."""
        config, limits, resume = task.config, task.limits, task.resume
        argv = [*program(environ, config.command), "-p", "--output-format", "stream-json", "--verbose"]
        argv += [
            "--include-partial-messages",
            "--permission-mode",
            "bypassPermissions",
            "--strict-mcp-config",
        ]
        argv += ["--model", config.model] if config.model else []
        argv += ["--resume", resume.session_id] if resume else ["--session-id", task.new_session_id]
        argv += ["--max-turns", str(limits.max_turns)] if limits.max_turns is not None else []
        argv += ["--max-budget-usd", f"{limits.max_cost_usd:g}"] if limits.max_cost_usd is not None else []
        env = agent_environment(task, environ) | QUIET
        env["CLAUDE_CONFIG_DIR"] = str(task.run_dir / "home" / ".claude")
        if os.geteuid() == 0:
            env["IS_SANDBOX"] = "1"  # without it the program refuses to run unasked as root
        return Launch(
            agent=self.name,
            argv=tuple(argv),
            env=env,
            cwd=task.worktree,
            secrets=passed_on((*PASSED, *config.env), environ),
            stdin_file=task.prompt_file,
            resume=resume,
            warnings=withheld(config.env),
        )

    def parse(self, line: bytes) -> tuple[Event, ...]:
        """One line of ``stream-json``."""
        data = json_object(line)
        events = tuple(_events(data)) if data is not None else ()
        return events or (Raw(),)

    def finish(self, end: RunEnd) -> RunResult:
        """Result event first, our own stop second, the exit code last."""
        tally, final = end.tally, end.tally.final
        outcome, summary = _outcome(end)
        usage = final.usage if final is not None and final.usage is not None else tally.usage
        denied = tuple(f"The program refused its tool {tool}." for tool in dict.fromkeys(tally.denied))
        limited = outcome is RunOutcome.RATE_LIMITED
        return RunResult(
            outcome=outcome,
            exit_code=end.exit_code,
            usage=usage,
            summary=summary,
            session_id=tally.session_id,
            model=tally.model,
            retry_after_s=retry_after(summary, tally.retry, end.now) if limited else None,
            warnings=(*tally.warnings, *denied),
        )


def program(environ: Mapping[str, str], command: Argv | None) -> Argv:
    """The configured command, else ``claude`` from PATH, else the one inside the wheel, else the bare name."""
    if command:
        return command
    found = find_program("claude", environ) or bundled()
    return (found or "claude",)


def bundled() -> str | None:
    """The command inside ``claude-agent-sdk``, found without importing that package."""
    try:
        spec = importlib.util.find_spec("claude_agent_sdk")
    except (ImportError, ValueError):
        return None
    for folder in spec.submodule_search_locations or () if spec else ():
        place = Path(folder) / "_bundled" / "claude"
        if place.is_file():
            return str(place)
    return None


def _outcome(end: RunEnd) -> tuple[RunOutcome, str]:
    final, stop = end.tally.final, end.stop
    if stop is not None and stop.reason is not StopReason.LINGERING:
        return STOPPED[stop.reason], stop.message
    if final is None:
        if end.tally.auth_failed:
            return RunOutcome.AUTH, exit_words(end)
        return RunOutcome.NO_RESULT if end.exit_code == 0 else RunOutcome.CRASHED, exit_words(end)
    if not final.is_error:
        return RunOutcome.DONE, final.text
    if final.reason in LIMITED:
        return LIMITED[final.reason], final.text or final.reason
    if final.reason.startswith("aborted"):
        return RunOutcome.KILLED, final.text or "The run was interrupted from outside."
    if TOO_LONG.search(final.text):
        return RunOutcome.CONTEXT_OVERFLOW, final.text
    if USAGE_LIMIT.search(final.text):
        return RunOutcome.RATE_LIMITED, final.text
    known = refused(final.status)
    if known is not None:
        return known, final.text
    if final.reason == "error_during_execution":
        return RunOutcome.CRASHED, final.text or exit_words(end)
    return RunOutcome.API_ERROR, final.text or exit_words(end)


def _events(data: Mapping[str, object]) -> Iterator[Event]:
    match data.get("type"):
        case "system":
            yield from _system(data)
        case "assistant":
            yield from _assistant(data)
        case "user":
            for block in _blocks(data):
                if block.get("type") == "tool_result":
                    yield ToolEnd(text(block, "tool_use_id"), block.get("is_error") is not True)
        case "stream_event":
            yield from _stream(data)
        case "rate_limit_event":
            info = inner(data, "rate_limit_info")
            if info.get("status") == "rejected":
                yield Retry(429, "usage limit", None, number(info, "resetsAt"))
        case "result":
            yield from _result(data)


def _system(data: Mapping[str, object]) -> Iterator[Event]:
    match data.get("subtype"):
        case "init":
            yield Started(text(data, "session_id") or None, text(data, "model") or None)
        case "api_retry":
            delay = number(data, "retry_delay_ms")
            status = data.get("error_status")
            reason = text(data, "error")
            known = status if isinstance(status, int) else 401 if reason == "authentication_failed" else None
            yield Retry(known, reason, delay / 1000 if delay is not None else None)
        case "permission_denied":
            yield Denied(text(data, "tool_name"))


def _assistant(data: Mapping[str, object]) -> Iterator[Event]:
    message = inner(data, "message")
    answer = text(message, "id")
    if message.get("model") == "<synthetic>":  # the program's own words about a failed call
        return
    if data.get("parent_tool_use_id") is None:
        yield Turn(answer)
    usage = message.get("usage")
    if isinstance(usage, dict):
        yield Spent(answer, _usage(usage))
    for block in _blocks(data):
        if block.get("type") == "text":
            yield Text(text(block, "text"))
        elif block.get("type") == "tool_use":
            yield ToolStart(text(block, "id"), text(block, "name"))


def _stream(data: Mapping[str, object]) -> Iterator[Event]:
    """Pieces of an answer; the closing one has the true number of output tokens."""
    yield Delta()
    event = inner(data, "event")
    usage, answer = event.get("usage"), text(data, "api_message_id")
    if event.get("type") == "message_delta" and isinstance(usage, dict) and answer:
        yield Spent(answer, _usage(usage))


def _result(data: Mapping[str, object]) -> Iterator[Event]:
    denials = data.get("permission_denials")
    for denial in denials if isinstance(denials, list) else ():
        if isinstance(denial, dict):
            yield Denied(text(denial, "tool_name"))
    errors = data.get("errors")
    told = "; ".join(str(error) for error in errors if error) if isinstance(errors, list) else ""
    status, subtype, terminal = (
        data.get("api_error_status"),
        text(data, "subtype"),
        text(data, "terminal_reason"),
    )
    reason = subtype if subtype in LIMITED or terminal in ("", "completed") else terminal
    usage = data.get("usage")
    own, total = _model_usage(data.get("model_usage_since_last_result")), _model_usage(data.get("modelUsage"))
    if own is None and isinstance(usage, dict):
        own = _usage(usage, number(data, "total_cost_usd"))
    yield Final(
        is_error=data.get("is_error") is not False,
        text=text(data, "result") or told,
        reason=reason,
        status=status if isinstance(status, int) else None,
        usage=own,
        session_usage=total or own,
    )


def _model_usage(models: object) -> Usage | None:
    """Sum over the models of one conversation; None where there is no such account."""
    if not isinstance(models, dict):
        return None
    known = [model for model in models.values() if isinstance(model, dict)]
    return Usage(
        sum(count(model, "inputTokens") for model in known),
        sum(count(model, "outputTokens") for model in known),
        sum(count(model, "cacheReadInputTokens") for model in known),
        sum(count(model, "cacheCreationInputTokens") for model in known),
        sum(number(model, "costUSD") or 0.0 for model in known),
    )


def _usage(usage: Mapping[str, object], cost: float | None = None) -> Usage:
    return Usage(
        count(usage, "input_tokens"),
        count(usage, "output_tokens"),
        count(usage, "cache_read_input_tokens"),
        count(usage, "cache_creation_input_tokens"),
        cost,
    )


def _blocks(data: Mapping[str, object]) -> list[Mapping[str, object]]:
    content = inner(data, "message").get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
