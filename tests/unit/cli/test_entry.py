"""The command tree as a whole."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from orchestrator.cli.entry import COMMANDS, orch
from orchestrator.cli.reference import reference
from tests.fixtures_orch import Here

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
OF_A_SERVICE = ("fastapi", "pydantic", "httpx", "uvicorn", "detect_secrets")
UNWANTED = ("fastapi", "pydantic", "httpx", "uvicorn", "jinja2", "sqlite3", "structlog", "yaml")


def leaves() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []

    def walk(path: str, command: click.Command) -> None:
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            for name in command.list_commands(ctx):
                below = command.get_command(ctx, name)
                assert below is not None
                walk(f"{path} {name}".strip(), below)
        else:
            found.append((path, command))

    walk("", orch)
    return found


@pytest.mark.parametrize(("path", "command"), leaves(), ids=[path for path, _ in leaves()])
def test_every_command_explains_itself_and_speaks_json(path: str, command: click.Command) -> None:
    assert command.help
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options or path == "demo"
    for parameter in command.params:
        assert (
            isinstance(parameter, click.Argument) or parameter.help or parameter.hidden or path == "task list"
        )


def test_the_list_of_commands_is_what_they_say_of_themselves() -> None:
    for name, lazy in COMMANDS.items():
        command = orch.get_command(click.Context(orch), name)
        assert command is not None
        assert (command.help or "").split("\n\n")[0].strip() == lazy.text


@pytest.mark.parametrize("args", [["--version"], ["--help"]], ids=["version", "help"])
def test_version_and_help_load_nothing(args: list[str]) -> None:
    program = (
        "import sys\nfrom orchestrator.cli.entry import run\n"
        f"code = run({args!r})\nprint(sorted(set({UNWANTED!r}) & set(sys.modules)), code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.splitlines()[-1] == "[] 0"


@pytest.mark.parametrize("args", [["watch", "X-1"], ["task", "list"], ["doctor"]], ids=lambda args: args[0])
def test_who_serves_nobody_loads_no_server(args: list[str], tmp_path: Path) -> None:
    program = (
        "import sys\nfrom orchestrator.cli.entry import run\n"
        f"run({args!r})\nprint(sorted(set({OF_A_SERVICE!r}) & set(sys.modules)))"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "ORCH_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_reference_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run: python -m orchestrator.cli.reference > docs/reference/cli.md"
    )


def test_nothing_at_all_shows_the_help(here: Here) -> None:
    said = here()
    assert (said.code, said.err) == (0, "")
    assert "orch demo" in said.out


class TestErrors:
    def test_an_unknown_command_is_guessed(self, here: Here) -> None:
        said = here("tsk")
        assert (said.code, said.out) == (2, "")
        assert "Did you mean task?" in said.err

    def test_an_unknown_option_is_2(self, here: Here) -> None:
        assert here("queue", "--jsn").code == 2

    def test_wrong_settings_are_all_named_at_once(self, here: Here) -> None:
        here.monkeypatch.setenv("ORCH_PORT", "no port")
        here.monkeypatch.setenv("ORCH_MAX_AGENT", "2")
        said = here("queue")
        assert said.code == 2
        assert "ORCH_PORT" in said.err and "Did you mean ORCH_MAX_AGENTS?" in said.err

    def test_there_is_nothing_yet(self, here: Here) -> None:
        for command in (["task", "list"], ["queue"], ["why", "X-1"], ["lease", "list"]):
            said = here(*command)
            assert said.code == 2
            assert "orch init" in said.err
            assert "Traceback" not in said.err

    def test_debug_shows_the_trace(self, here: Here) -> None:
        here.monkeypatch.setenv("ORCH_LOG_LEVEL", "debug")
        assert "Traceback" in here("task", "list").err


def test_what_names_no_commit_is_refused_before_anybody_is_asked(here: Here) -> None:
    said = here("task", "approve", "SHOP-1", "--sha", "zz")
    assert said.code == 2 and "at least 7 hexadecimal digits" in said.err and "pattern" not in said.err
