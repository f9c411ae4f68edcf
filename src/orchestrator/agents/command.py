"""Any program as an agent: its brief by file (``ORCH_BRIEF``) and on standard input, its exit code and git
decide.

It may leave ``usage.json`` at the path in ``ORCH_USAGE``: ``input_tokens, output_tokens, cache_read_tokens,
cache_write_tokens, cost_usd, model, summary, retry_after_s``, each optional. A non-zero exit with
``retry_after_s`` is a rate limit.
"""

from collections.abc import Mapping

from orchestrator.agents.agent import AgentTask, Capabilities, Event, Launch, RunEnd, StopReason, Text
from orchestrator.agents.environment import agent_environment, passed_on, withheld
from orchestrator.agents.fields import count, json_object, number, text
from orchestrator.agents.verdicts import MAX_RETRY_AFTER, STOPPED, exit_words
from orchestrator.domain.job import RunOutcome, RunResult, Usage
from orchestrator.repo_config.records import Argv
from orchestrator.runtime.process import Processes

USAGE_FILE = "usage.json"
MAX_LINE_SHOWN = 2000


class CommandAgent:
    """A configured argument list."""

    name = "command"
    capabilities = Capabilities(
        events=False, live_usage=False, cost=True, resume=False, ladder=(("SIGTERM", 2.0),)
    )

    def probe(self, processes: Processes, environ: Mapping[str, str], command: Argv | None) -> str | None:
        """A program of someone else's is not asked: whether it is there shows when it is started."""
        return " ".join(command) if command else None

    def launch(self, task: AgentTask, environ: Mapping[str, str]) -> Launch:
        """The argument list as configured."""
        return Launch(
            agent=self.name,
            argv=task.config.command or ("",),
            env=agent_environment(task, environ),
            cwd=task.worktree,
            secrets=passed_on(task.config.env, environ),
            stdin_file=task.prompt_file,
            artifacts={"usage": task.run_dir / USAGE_FILE},
            warnings=withheld(task.config.env),
        )

    def parse(self, line: bytes) -> tuple[Event, ...]:
        """Every line is words."""
        return (Text(line[:MAX_LINE_SHOWN].decode(errors="replace").strip()),)

    def finish(self, end: RunEnd) -> RunResult:
        """Exit code 0 is done; git says whether that is true."""
        left = json_object(end.artifacts.get("usage", "")) or {}
        again = number(left, "retry_after_s")
        outcome, summary = _outcome(end, again)
        return RunResult(
            outcome=outcome,
            exit_code=end.exit_code,
            usage=Usage(
                count(left, "input_tokens"),
                count(left, "output_tokens"),
                count(left, "cache_read_tokens"),
                count(left, "cache_write_tokens"),
                number(left, "cost_usd"),
            ),
            summary=text(left, "summary") or summary,
            model=text(left, "model") or None,
            retry_after_s=min(again, MAX_RETRY_AFTER)
            if again and outcome is RunOutcome.RATE_LIMITED
            else None,
            warnings=end.tally.warnings,
        )


def _outcome(end: RunEnd, again: float | None) -> tuple[RunOutcome, str]:
    if end.stop is not None and end.stop.reason is not StopReason.LINGERING:
        return STOPPED[end.stop.reason], end.stop.message
    if end.exit_code == 0:
        return RunOutcome.DONE, end.tally.text
    if again:
        return RunOutcome.RATE_LIMITED, exit_words(end)
    words, last = exit_words(end), end.tally.text.strip()
    # What a program prints on the one stream may be explained on the other: git says "nothing to commit" on stdout.
    more = f" Its last line: {last}" if last and end.stderr.strip() else ""
    return RunOutcome.CRASHED, words + more
