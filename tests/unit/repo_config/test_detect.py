"""Guesses for a new repository, and the file made of them."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.repo_config.detect import Read, Suggestion, render_init_toml, suggest, tells
from orchestrator.repo_config.loader import parse_repo_config


def repository(files: Mapping[str, str | bytes]) -> dict[str, Read]:
    def reader(content: str | bytes) -> Read:
        return lambda: content.encode() if isinstance(content, str) else content

    return {path: reader(content) for path, content in files.items()}


PACKAGE = json.dumps({"scripts": {"test": "jest", "build": "tsc"}, "devDependencies": {"jest": "^29"}})
CASES: dict[str, tuple[dict[str, str | bytes], str, str]] = {
    "pytest": ({"pyproject.toml": "[tool.pytest.ini_options]"}, "python", "python3 -m pytest"),
    "unittest": ({"setup.py": ""}, "python", "python3 -m unittest discover"),
    "conftest": ({"requirements.txt": "", "tests/conftest.py": ""}, "python", "python3 -m pytest"),
    "coverage": ({"pyproject.toml": 'dev = ["pytest", "coverage"]'}, "python", "coverage run -m pytest"),
    "npm": (
        {"package.json": PACKAGE, "package-lock.json": ""},
        "javascript",
        "npm ci && npx jest --coverage",
    ),
    "pnpm": ({"package.json": "{}", "pnpm-lock.yaml": ""}, "javascript", "pnpm test"),
    "yarn": ({"package.json": "{}", "yarn.lock": ""}, "javascript", "yarn test"),
    "broken package": ({"package.json": "{"}, "javascript", "npm test"),
    "odd package": ({"package.json": '[{"scripts": 3}]'}, "javascript", "npm test"),
    "deep package": ({"package.json": "[" * 100_000}, "javascript", "npm test"),
    "cargo": ({"Cargo.toml": "", "Cargo.lock": ""}, "rust", "cargo test --locked"),
    "go": ({"go.mod": ""}, "go", "go test ./..."),
    "make": ({"Makefile": "all:\n\ntest: all\n\ttrue\n"}, "make", "make test"),
    "pytest in a test": (
        {"setup.py": "", "tests/test_x.py": "import pytest\n"},
        "python",
        "python3 -m pytest",
    ),
    "pytest from": (
        {"setup.py": "", "a/tests/test_x.py": "from pytest import raises"},
        "python",
        "-m pytest",
    ),
    "plain functions": (
        {"setup.py": "", "tests/test_x.py": "def test_x():\n    pass\n"},
        "python",
        "-m pytest",
    ),
    "conftest below": ({"setup.py": "", "pkg/tests/conftest.py": ""}, "python", "python3 -m pytest"),
    "tox": ({"setup.py": "", "tox.ini": "[testenv]\ncommands = pytest {posargs}\n"}, "python", "-m pytest"),
    "nox": ({"setup.py": "", "noxfile.py": 'session.run("pytest")\n'}, "python", "python3 -m pytest"),
    "setup.cfg": ({"setup.cfg": "[tool:pytest]\n"}, "python", "python3 -m pytest"),
    "tests alone": ({"test_x.py": "import unittest\n"}, "python", "python3 -m unittest discover"),
    "unittest in a plain folder": (
        {"setup.py": "", "tests/test_x.py": "class X(unittest.TestCase):\n    def test_x(self): pass\n"},
        "python",
        "python3 -m unittest discover -s tests",
    ),
    "binary": ({"pyproject.toml": b"\xff\x00pytest"}, "python", "python3 -m pytest"),
}


@pytest.mark.parametrize("name", CASES)
def test_guess_and_file(name: str) -> None:
    files, language, command = CASES[name]
    suggestion = suggest(repository(files))[0]
    assert suggestion.language == language and suggestion.because in files
    assert command in " ".join(suggestion.ci)
    config = parse_repo_config(render_init_toml(suggestion).encode(), source=name)
    assert config.ci.command == suggestion.ci
    assert (config.coverage is not None) == (suggestion.coverage_report is not None)


def test_the_best_guess_comes_first_and_others_follow() -> None:
    found = suggest(repository({"Makefile": "check:\n", "go.mod": "", "pyproject.toml": ""}))
    assert [suggestion.language for suggestion in found] == ["python", "go", "make"]


@pytest.mark.parametrize("files", [{}, {"README.md": ""}, {"Makefile": "all:\n"}, {"sub/package.json": "{}"}])
def test_nothing_recognised(files: dict[str, str | bytes]) -> None:
    assert suggest(repository(files)) == ()


def test_a_file_that_cannot_be_read_is_no_error() -> None:
    def refuse() -> bytes:
        raise PermissionError

    assert suggest({"pyproject.toml": refuse})[0].ci == ("python3", "-m", "unittest", "discover")
    assert suggest({"Makefile": lambda: b"test:\n" + b"#" * 10_000_000}) == ()


def test_without_a_guess_the_checks_fail_and_say_so() -> None:
    text = render_init_toml(None)
    assert "Nothing was recognised" in text
    assert "exit 1" in parse_repo_config(text.encode(), source="x").ci.command[2]


def test_everything_that_is_commented_out_is_valid_too() -> None:
    suggestion = suggest(repository(CASES["npm"][0]))[0]
    lines = render_init_toml(suggestion, default_branch="trunk", name="shop").splitlines()
    opened = [line.removeprefix("# ") if line.startswith("# [") or " = " in line else line for line in lines]
    config = parse_repo_config("\n".join(opened).encode(), source="x")
    assert config.default_branch == "trunk"
    assert config.staging is not None and config.staging.name == "shop-staging"
    assert config.production is not None and config.production.undo == ("./undo.sh", "production")
    assert config.image is not None and config.image.artifact == "dist"
    assert (config.agent.max_cost_usd, config.budget.max_cost_usd) == (5.0, 20.0)


def test_unittest_from_the_top_where_the_tests_are_a_package() -> None:
    files = {
        "setup.py": "",
        "tests/__init__.py": "",
        "tests/test_x.py": "# not for pytest\nimport unittest\n",
    }
    assert suggest(repository(files))[0].ci == ("python3", "-m", "unittest", "discover")


@pytest.mark.parametrize(
    ("files", "env"),
    [
        ({"pyproject.toml": "", "src/pkg/__init__.py": ""}, {"PYTHONPATH": "src"}),
        ({"pyproject.toml": "", "src/module.py": ""}, {"PYTHONPATH": "src"}),
        ({"pyproject.toml": 'pythonpath = ["src"]', "src/pkg/__init__.py": ""}, {}),
        ({"pyproject.toml": "", "src/__init__.py": "", "src/pkg/deep/__init__.py": ""}, {}),
        ({"pyproject.toml": "", "pkg/__init__.py": ""}, {}),
        ({"pyproject.toml": "pytest coverage", "src/pkg/__init__.py": ""}, {"PYTHONPATH": "src"}),
    ],
)
def test_a_package_below_src_is_found(files: dict[str, str | bytes], env: dict[str, str]) -> None:
    suggestion = suggest(repository(files))[0]
    assert parse_repo_config(render_init_toml(suggestion).encode(), source="x").ci.env == env


def test_which_files_below_the_top_are_looked_at() -> None:
    for path in (
        "tests/test_x.py",
        "a/b/x_test.py",
        "tests/conftest.py",
        "src/pkg/__init__.py",
        "src/x.py",
        "a/tests.py",
    ):
        assert tells(path), path
    for path in ("pkg/module.py", "src/pkg/module.py", "docs/testing.md", "latest.py", "a/contest.py"):
        assert not tells(path), path


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20), max_size=4))
def test_any_command_is_written_so_that_it_is_read_back(arguments: list[str]) -> None:
    ci = ("run", *arguments)
    config = parse_repo_config(render_init_toml(Suggestion("any", "x", ci)).encode(), source="x")
    assert config.ci.command == ci
