"""Codex (``codex exec --json``).

It reports tokens only when a turn ends and counts a resumed conversation on from its beginning; it never says
what it cost. A run is good iff ``turn.completed`` came. Its ``error`` items are warnings; only
``turn.failed`` is the end.
"""

import json
import re
from collections.abc import Iterator, Mapping

from orchestrator.agents.agent import (
    AgentTask,
    Capabilities,
    Event,
    Final,
    Launch,
    Raw,
    Retry,
    RunEnd,
    Started,
    StopReason,
    Text,
    ToolEnd,
    ToolStart,
    Turn,
    Warned,
)
from orchestrator.agents.environment import agent_environment, find_program, passed_on, withheld
from orchestrator.agents.fields import count, inner, json_object, text
from orchestrator.agents.verdicts import STOPPED, USAGE_LIMIT, exit_words, refused, retry_after
from orchestrator.agents.watch import minus
from orchestrator.domain.job import RunOutcome, RunResult, Usage
from orchestrator.repo_config.records import Argv
from orchestrator.runtime.process import Processes

PASSED = ("OPENAI_API_KEY", "CODEX_API_KEY")
BASE_URL = "OPENAI_BASE_URL"
TOOLS = frozenset({"command_execution", "mcp_tool_call", "file_change", "web_search"})
STATUS = re.compile(r"\bstatus:? (\d{3})\b")
TOO_LONG = re.compile(r"context window|context_length", re.IGNORECASE)
BUSY = re.compile(r"high demand|overloaded", re.IGNORECASE)
VERSION_SECONDS = 20.0


class CodexAgent:
    """The Codex command, from PATH or a configured place."""

    name = "codex"
    capabilities = Capabilities(
        events=True, live_usage=False, cost=False, resume=True, ladder=(("SIGINT", 3.0), ("SIGTERM", 3.0))
    )

    def probe(self, processes: Processes, environ: Mapping[str, str], command: Argv | None) -> str | None:
        """What ``codex --version`` prints."""
        try:
            done = processes.run(
                [*_program(environ, command), "--version"], env=environ, timeout=VERSION_SECONDS
            )
        except OSError:
            return None
        return done.stdout.decode(errors="replace").strip() or None if done.returncode == 0 else None

    def launch(self, task: AgentTask, environ: Mapping[str, str]) -> Launch:
        """Without its own sandbox, which would make ``.git`` read-only; the prompt goes in on standard input."""
        config = task.config
        argv = [*_program(environ, config.command), "exec", "--json", "--skip-git-repo-check"]
        argv += ["--dangerously-bypass-approvals-and-sandbox", "--disable", "plugins"]
        argv += ["-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false"]
        argv += ["-c", f"model={json.dumps(config.model)}"] if config.model else []
        if environ.get(BASE_URL):
            url = json.dumps(environ[BASE_URL])
            provider = f'{{name="custom",base_url={url},env_key="CODEX_API_KEY",wire_api="responses"}}'
            argv += ["-c", 'model_provider="custom"', "-c", f"model_providers.custom={provider}"]
        argv += ["resume", task.resume.session_id] if task.resume else []
        secrets = passed_on((*PASSED, *config.env), environ)
        if "OPENAI_API_KEY" in secrets:
            secrets.setdefault("CODEX_API_KEY", secrets["OPENAI_API_KEY"])  # the name it reads when headless
        return Launch(
            agent=self.name,
            argv=(*argv, "-"),
            env=agent_environment(task, environ) | {"CODEX_HOME": str(task.run_dir / "home" / ".codex")},
            cwd=task.worktree,
            secrets=secrets,
            stdin_file=task.prompt_file,
            resume=task.resume,
            warnings=withheld(config.env),
        )

    def parse(self, line: bytes) -> tuple[Event, ...]:
        """One line of ``exec --json``."""
        data = json_object(line)
        events = tuple(_events(data)) if data is not None else ()
        return events or (Raw(),)

    def finish(self, end: RunEnd) -> RunResult:
        """``turn.completed`` or ``turn.failed`` first, our own stop before both, the exit code last."""
        outcome, summary = _outcome(end)
        final = end.tally.final
        usage = Usage()
        if final is not None and final.session_usage is not None:
            usage = minus(final.session_usage, end.resume.usage if end.resume else Usage())
        limited = outcome is RunOutcome.RATE_LIMITED
        return RunResult(
            outcome=outcome,
            exit_code=end.exit_code,
            usage=usage,
            summary=summary,
            session_id=end.tally.session_id,
            model=end.tally.model,
            retry_after_s=retry_after(summary, end.tally.retry, end.now) if limited else None,
            warnings=end.tally.warnings,
        )


def _program(environ: Mapping[str, str], command: Argv | None) -> Argv:
    return command or (find_program("codex", environ) or "codex",)


def _outcome(end: RunEnd) -> tuple[RunOutcome, str]:
    final, stop = end.tally.final, end.stop
    if stop is not None and stop.reason is not StopReason.LINGERING:
        return STOPPED[stop.reason], stop.message
    if final is None:
        return RunOutcome.NO_RESULT if end.exit_code == 0 else RunOutcome.CRASHED, exit_words(end)
    if not final.is_error:
        return RunOutcome.DONE, end.tally.text
    if TOO_LONG.search(final.text):
        return RunOutcome.CONTEXT_OVERFLOW, final.text
    if USAGE_LIMIT.search(final.text):
        return RunOutcome.RATE_LIMITED, final.text
    if BUSY.search(final.text):
        return RunOutcome.OVERLOADED, final.text
    return refused(final.status) or RunOutcome.API_ERROR, final.text


def _events(data: Mapping[str, object]) -> Iterator[Event]:
    match data.get("type"):
        case "thread.started":
            yield Started(text(data, "thread_id") or None, None)
        case "item.started":
            item = inner(data, "item")
            if item.get("type") in TOOLS:
                yield ToolStart(text(item, "id"), text(item, "type"))
        case "item.completed":
            yield from _item(inner(data, "item"))
        case "turn.completed":
            yield Final(is_error=False, text="", session_usage=_usage(inner(data, "usage")))
        case "turn.failed":
            said = text(inner(data, "error"), "message")
            yield Final(is_error=True, text=said, status=_status(said))
        case "error":
            said = text(data, "message")
            yield Retry(_status(said), said)


def _item(item: Mapping[str, object]) -> Iterator[Event]:
    kind, name = item.get("type"), text(item, "id")
    if kind == "error":
        yield Warned(text(item, "message"))
    elif kind == "agent_message":
        yield Turn(name)
        yield Text(text(item, "text"))
    elif kind in TOOLS:
        yield Turn(name)
        yield ToolEnd(name, item.get("status") == "completed")


def _status(said: str) -> int | None:
    found = STATUS.search(said)
    return int(found.group(1)) if found else None


def _usage(usage: Mapping[str, object]) -> Usage:
    cached, written = count(usage, "cached_input_tokens"), count(usage, "cache_write_input_tokens")
    fresh = max(0, count(usage, "input_tokens") - cached)  # its input includes what came from the cache
    return Usage(fresh, count(usage, "output_tokens"), cached, written)
