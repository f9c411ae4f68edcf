"""The documentation: generated pages are as the code has it, links lead somewhere, examples are accepted."""

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from orchestrator.cli.entry import orch
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Role, Stage, Track
from orchestrator.domain.task import Hold
from orchestrator.repo_config.loader import parse_repo_config
from tests.project.checkout import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def names(paths: list[Path]) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in paths]


def generated() -> dict[Path, str]:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[Path, str] = module.pages()
    return pages


def test_generated_pages_are_up_to_date() -> None:
    stale = [str(place) for place, text in generated().items() if place.read_text(encoding="utf-8") != text]
    assert not stale, "run ./dev docs"


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    targets = [target for target in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in target]
    missing = [t for t in targets if not (page.parent / t.partition("#")[0]).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_examples_of_configuration_are_accepted(page: Path) -> None:
    """Each TOML block, completed by the two things that every configuration needs."""
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "toml":
            given = tomllib.loads(text)
            head = "" if "default_branch" in given else 'default_branch = "main"\n'
            tail = "" if "ci" in given else '\n[ci]\ncommand = ["true"]\n'
            parse_repo_config((head + text + tail).encode(), source=page.name)


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_commands_exist(page: Path) -> None:
    """Each `orch …` in the text names a command that is there, and options that it has."""
    text = page.read_text(encoding="utf-8")
    lines = [line for _, block in BLOCK.findall(text) for line in block.splitlines()]
    said = [line for line in lines if line.startswith(("orch ", "./dev orch "))]
    said += re.findall(r"`((?:\./dev )?orch [^`]+)`", text)
    for line in said:
        words = shlex.split(line.removeprefix("./dev "), comments=True)[1:]
        if words[0] == "…" or "[OPTIONS]" in words:
            continue
        command: click.Command = orch
        context = click.Context(command)
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.get_command(context, words[0])
            assert found is not None, f"{line}: there is no command {words[0]}"
            command, words = found, words[1:]
        known = {name for parameter in command.params for name in parameter.opts}
        unknown = [w for w in words if w.startswith("--") and w.partition("=")[0] not in known | {"--help"}]
        assert not unknown, line


def test_the_floors_are_those_that_lint_holds() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    rooms = [room for layer in layers for room in re.findall(r"\w+", layer)]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    floors = next(block for _, block in BLOCK.findall(text) if block.startswith("__main__"))
    told = [word for word in re.findall(r"\w+", floors) if word in rooms]
    assert list(dict.fromkeys(told)) == rooms


def test_the_glossary_has_the_words_of_the_code() -> None:
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    for words in (Stage, Hold, Role, Track, Actor):
        missing = [word.value for word in words if f"`{word.value}`" not in glossary]
        assert not missing, words.__name__


def test_every_decision_is_listed() -> None:
    listed = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    pages = [page.name for page in DOCS.glob("decisions/0*.md")]
    assert pages
    assert not [page for page in pages if f"({page})" not in listed]


def test_the_demo_is_told_of_by_its_command() -> None:
    told = CliRunner().invoke(orch, ["demo", "--help"]).output
    assert "--agent" in told
    assert "--keep" in told
