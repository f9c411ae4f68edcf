"""The command tree, and the way out of it: every error is one or two lines and an exit code, never a traceback.

Exit codes: 0 done; 1 failed, refused or escalated; 2 the person has to change something; 3 something outside failed;
4 a person's decision is needed; 130 interrupted. Commands are imported when they are called, so that `orch --version`
and `orch --help` cost nothing.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType

import click

import orchestrator
from orchestrator.cli.terminal import complain
from orchestrator.domain.errors import OrchestratorError, OutsideError
from orchestrator.domain.spelling import did_you_mean

INTERRUPTED = 130
_DEBUG = "debug"


@dataclass(frozen=True, slots=True)
class Lazy:
    """A command that is not imported yet."""

    module: str
    text: str  # what the list of commands says


COMMANDS: Mapping[str, Lazy] = {
    "demo": Lazy("demo", "Deliver two tickets of a sample service, and prove it."),
    "init": Lazy("init", "Make a repository ready: write .orchestrator.toml, register it."),
    "connect": Lazy("connect", "Connect with Plane, Gitea or GitHub, and try it."),
    "disconnect": Lazy("disconnect", "Take no more tickets of a repository, or of its tracker's project."),
    "repo": Lazy("repo", "Repositories: which there are, and where they lie."),
    "run": Lazy("run", "File a ticket and watch it until it is done or needs you."),
    "serve": Lazy("serve", "Run the service: work, API and board."),
    "worker": Lazy("worker", "Run agents for orchestrators on other machines."),
    "watch": Lazy("watch", "Watch a task until it is done or needs you."),
    "task": Lazy("task", "File, look at and decide about tasks."),
    "queue": Lazy("queue", "What runs, waits and holds."),
    "why": Lazy("why", "Why a task stands where it stands, in one line."),
    "pipeline": Lazy("pipeline", "The stages, their steps and gates."),
    "lease": Lazy("lease", "Who owns which task's transition."),
    "effect": Lazy("effect", "What is being done outside and not settled; say what became of it."),
    "restore": Lazy(
        "restore", "Go on after a database or a forge was restored or copied, or the state folder was lost."
    ),
    "unfreeze": Lazy("unfreeze", "Let a frozen repository deliver again, or only the task that mends it."),
    "db": Lazy("db", "Where the ledger lies: copy it from a SQLite file to PostgreSQL, or back."),
    "doctor": Lazy("doctor", "Look for what will not work, and say how to mend it."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which a person meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        command = getattr(importlib.import_module(f"orchestrator.cli.{lazy.module}"), "command")  # noqa: B009
        if not isinstance(command, click.Command):
            raise TypeError(f"{lazy.module} has no command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say which command was probably meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"There is no command {args[0][:60]!r}. {did_you_mean(args[0], COMMANDS)}".rstrip())
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List them without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.text) for name, lazy in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed or escalated, 2 change something and repeat, 3 something outside failed, "
    "4 a person's decision is needed. Settings are ORCH_… variables; the state lies in ORCH_HOME.",
)
@click.version_option(orchestrator.__version__, prog_name="orch", message="%(prog)s %(version)s")
def orch() -> None:
    """Tickets in, merged and deployed software out.

    Start with `orch demo`; then `orch init` in a repository of your own, and `orch run "what you want"`.
    """


def run(args: Sequence[str]) -> int:
    """Run one command line; its exit code."""
    sys.excepthook = _unexpected
    try:
        result = orch.main(args=list(args) or ["--help"], prog_name="orch", standalone_mode=False)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        complain(error.format_message())
        return 2
    except (click.Abort, KeyboardInterrupt):
        complain("Interrupted.")
        return INTERRUPTED
    except OrchestratorError as error:
        return _known(error)
    except BrokenPipeError:
        # Whoever read us has seen enough; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        place = f" ({error.filename})" if error.filename else ""
        return _known(
            OutsideError(f"{error.strerror or error}{place}.", hint="Mend that and repeat the command.")
        )
    return result if isinstance(result, int) else 0


def _known(error: OrchestratorError) -> int:
    if os.environ.get("ORCH_LOG_LEVEL", "").lower() == _DEBUG:
        sys.__excepthook__(type(error), error, error.__traceback__)
    complain(error.message, error.hint)
    return error.exit_code


def _usage(error: click.UsageError) -> int:
    where = error.ctx.command_path if error.ctx else "orch"
    complain(error.format_message(), f"`{where} --help` says more.")
    return 2


def _unexpected(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """An error that nobody foresaw is ours; the person sees what to do, and the trace when asked for."""
    if os.environ.get("ORCH_LOG_LEVEL", "").lower() == _DEBUG:
        sys.__excepthook__(kind, error, trace)
        return
    complain(
        f"Something went wrong that should not: {kind.__name__}: {error}",
        "Nothing half-done was stored. Repeat it with ORCH_LOG_LEVEL=debug and report what it prints.",
    )
