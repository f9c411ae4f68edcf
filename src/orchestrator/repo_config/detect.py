"""Guesses for ``orch init``: how a repository checks itself, from the files it has.

A guess is a suggestion for a person to read, never a configuration by itself. Files are read as data and bounded;
nothing of the repository is run. What must hold: ``render_init_toml`` of any suggestion is accepted by
``parse_repo_config``.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.repo_config.records import Argv

Read = Callable[[], bytes]
"""Gives the content of one file."""

_READ_MAX = 512 * 1024  # a manifest is smaller; of a larger one nothing is believed
_PYTHON_MARKS = ("pyproject.toml", "setup.cfg", "setup.py", "requirements.txt")
_PYTHON_TELLS = (
    *_PYTHON_MARKS, "tox.ini", "noxfile.py", "requirements-dev.txt", "requirements-dev.lock", "Pipfile", ".coveragerc",
)  # fmt: skip
_PYTHON_TEST = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_test|tests?)\.py$")
_IN_SRC = re.compile(r"src/(?:[^/]+/__init__|(?!__init__)[^/]+)\.py")
# Used, or written so that unittest would find nothing: tests that belong to no class.
_NEEDS_PYTEST = re.compile(r"^\s*(?:import|from)\s+pytest\b|\bpytest\.|^(?:async )?def test_", re.MULTILINE)
_FALLBACK: Argv = ("sh", "-c", "echo 'Write your checks into .orchestrator.toml' >&2; exit 1")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One way in which the repository may check itself. ``because`` is the file that says so."""

    language: str
    because: str
    ci: Argv
    coverage_report: str | None = None
    coverage_format: str | None = None
    artifact: str | None = None
    build: Argv | None = None
    env: tuple[tuple[str, str], ...] = ()


def suggest(files: Mapping[str, Read]) -> tuple[Suggestion, ...]:
    """What the files say, the best guess first; empty where they say nothing. Keys are paths with ``/``: the files at
    the top, and :func:`tells` of those below it."""
    guesses = (_python(files), _node(files), _rust(files), _go(files), _make(files))
    return tuple(guess for guess in guesses if guess is not None)


def tells(path: str) -> bool:
    """Whether a file below the top says anything here: tests, and what shows where a package lies."""
    name = path.rpartition("/")[2]
    return bool(_PYTHON_TEST.search(path) or _IN_SRC.fullmatch(path)) or name in (
        "conftest.py",
        "__init__.py",
    )


def render_init_toml(
    suggestion: Suggestion | None, *, default_branch: str = "main", name: str = "app"
) -> str:
    """A commented ``.orchestrator.toml``. ``name`` begins the names of the environments that are only shown."""
    ci = suggestion.ci if suggestion else _FALLBACK
    found = (
        f"Found in {suggestion.because}."
        if suggestion
        else "Nothing was recognised: it fails until you edit it."
    )
    return _TEMPLATE.format(
        branch=_quote(default_branch),
        found=found,
        ci=_argv(ci),
        env=_env(suggestion),
        coverage=_coverage(suggestion),
        build=_argv(suggestion.build if suggestion and suggestion.build else ("make", "dist")),
        artifact=_quote(suggestion.artifact if suggestion and suggestion.artifact else "dist"),
        staging=_quote(f"{name}-staging"),
        production=_quote(f"{name}-production"),
    )


def _python(files: Mapping[str, Read]) -> Suggestion | None:
    tests = sorted(path for path in files if _PYTHON_TEST.search(path))
    because = next((file for file in (*_PYTHON_MARKS, *tests) if file in files), None)
    if because is None:
        return None
    text = "".join(_text(files, file) for file in _PYTHON_TELLS)
    runner = (
        ("-m", "pytest")
        if _says_pytest(files, tests, text)
        else ("-m", "unittest", "discover", *_where(files, tests))
    )
    # An installed package is found by itself; one that only lies in src/ is not.
    in_src = any(_IN_SRC.fullmatch(path) for path in files) and "pythonpath" not in text.lower()
    env = (("PYTHONPATH", "src"),) if in_src else ()
    if "coverage" not in text and "pytest-cov" not in text:
        return Suggestion("python", because, ("python3", *runner), env=env)
    script = (
        f"python3 -m coverage run {' '.join(runner)} && "
        "{ ls .coverage.* >/dev/null 2>&1 && python3 -m coverage combine; "
        "python3 -m coverage json -o coverage.json; }"
    )
    return Suggestion("python", because, ("sh", "-c", script), "coverage.json", "coverage.py", env=env)


def _says_pytest(files: Mapping[str, Read], tests: Sequence[str], text: str) -> bool:
    """Whether anything says so: pytest's own files, a manifest, or the tests themselves."""
    if "pytest" in text or any(file.rpartition("/")[2] in ("pytest.ini", "conftest.py") for file in files):
        return True
    return any(_NEEDS_PYTEST.search(_text(files, file)) for file in tests)


def _where(files: Mapping[str, Read], tests: Sequence[str]) -> tuple[str, ...]:
    """Where unittest has to look: from the top it does not see tests in a folder that is no package."""
    tops = {path.partition("/")[0] for path in tests}
    if len(tops) != 1 or "/" not in tests[0]:
        return ()
    top = tops.pop()
    return () if f"{top}/__init__.py" in files or top == "src" else ("-s", top)


def _node(files: Mapping[str, Read]) -> Suggestion | None:
    if "package.json" not in files:
        return None
    try:
        package = json.loads(_text(files, "package.json"))
    except (ValueError, RecursionError):
        package = {}
    scripts = _table(package, "scripts")
    tools = _table(package, "devDependencies") | _table(package, "dependencies")
    tool, install = "npm", "npm ci" if "package-lock.json" in files else "npm install"
    if "pnpm-lock.yaml" in files:
        tool, install = "pnpm", "pnpm install --frozen-lockfile"
    elif "yarn.lock" in files:
        tool, install = "yarn", "yarn install --frozen-lockfile"
    build: Argv | None = ("sh", "-c", f"{install} && {tool} run build") if "build" in scripts else None
    test = f"{tool} test"
    report: str | None = None
    if "vitest" in tools and "@vitest/coverage-v8" in tools:
        test, report = "npx vitest run --coverage --coverage.reporter=lcov", "coverage/lcov.info"
    elif "jest" in tools:
        test, report = "npx jest --coverage --coverageReporters=lcov", "coverage/lcov.info"
    return Suggestion(
        "javascript", "package.json", ("sh", "-c", f"{install} && {test}"), report, "lcov" if report else None,
        artifact="dist" if build else None, build=build,
    )  # fmt: skip


def _rust(files: Mapping[str, Read]) -> Suggestion | None:
    if "Cargo.toml" not in files:
        return None
    return Suggestion(
        "rust", "Cargo.toml", ("cargo", "test", "--locked") if "Cargo.lock" in files else ("cargo", "test"),
        artifact="target/release", build=("cargo", "build", "--release"),
    )  # fmt: skip


def _go(files: Mapping[str, Read]) -> Suggestion | None:
    if "go.mod" not in files:
        return None
    return Suggestion(
        "go", "go.mod", ("go", "test", "./..."), artifact="bin", build=("go", "build", "-o", "bin/", "./...")
    )


def _make(files: Mapping[str, Read]) -> Suggestion | None:
    makefile = next((file for file in ("Makefile", "makefile", "GNUmakefile") if file in files), None)
    if makefile is None:
        return None
    lines = _text(files, makefile).splitlines()
    found = [name for name in ("check", "test", "ci") if any(line.startswith(f"{name}:") for line in lines)]
    return Suggestion("make", makefile, ("make", found[0])) if found else None


def _text(files: Mapping[str, Read], path: str) -> str:
    """A file's text, or nothing where it is missing, too large or unreadable."""
    if path not in files:
        return ""
    try:
        data = files[path]()
    except OSError:
        return ""
    return data.decode("utf-8", "replace") if len(data) <= _READ_MAX else ""


def _table(package: Any, name: str) -> dict[str, Any]:
    value = package.get(name) if isinstance(package, dict) else None
    return value if isinstance(value, dict) else {}


def _quote(text: str) -> str:
    """A TOML basic string: JSON's escapes are TOML's too, except that DEL has to be written out."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _argv(command: Argv) -> str:
    return "[" + ", ".join(map(_quote, command)) + "]"


def _env(suggestion: Suggestion | None) -> str:
    pairs = suggestion.env if suggestion else ()
    inside = ", ".join(f"{name} = {_quote(value)}" for name, value in pairs)
    return f"env = {{ {inside} }}" if pairs else '# env = { PYTHONPATH = "src" }'


def _coverage(suggestion: Suggestion | None) -> str:
    mark = "" if suggestion and suggestion.coverage_report else "# "
    report = (suggestion and suggestion.coverage_report) or "coverage.json"
    kind = (suggestion and suggestion.coverage_format) or "coverage.py"
    lines = ["[coverage]", f"report = {_quote(report)}", f"format = {_quote(kind)}"]
    return "\n".join(mark + line for line in lines)


_TEMPLATE = """\
# How this repository is checked, built and delivered. Read from the default branch only, so that a change under
# judgement cannot alter its own judges. Commands are lists of arguments; no shell is involved unless you name one.
# Times are seconds, or text such as "90s", "10m", "2h".

default_branch = {branch}

# The repository's own checks, run in a clean checkout of the exact commit. {found}
[ci]
command = {ci}
timeout = "30m"
{env}

# Where the checks leave their coverage report, and its format: coverage.py, cobertura or lcov. With this table the
# baseline may only rise.
{coverage}

# Who does the work: claude, codex, or any command. [agents.reviewer] and so on set it for one role.
[agent]
kind = "claude"
timeout = "1h"
# max_cost_usd = 5.0

# Where a person must agree before the work goes on.
[approvals]
analysis = false
deploy = false

# Checks and people at Gitea, Forgejo or GitHub that have to agree as well; a local forge has neither.
# [forge]
# required_checks = ["build"]
# required_reviews = 1

# What all runs of one task may cost together.
[budget]
max_rounds = 3
# max_cost_usd = 20.0

# Builds what is deployed, in a clean checkout of the merge candidate.
# [image]
# command = {build}
# artifact = {artifact}

# Where the candidate runs before it is merged. The commands get ORCH_SHA, ORCH_ARTIFACT, ORCH_DIGEST and
# ORCH_DEPLOY_TOKEN in their environment. The probe answers with the commit that runs.
# [staging]
# name = {staging}
# deploy = ["./deploy.sh", "staging"]
# [staging.probe]
# url = "http://127.0.0.1:8001/version"

# [production]
# name = {production}
# deploy = ["./deploy.sh", "production"]
# undo = ["./undo.sh", "production"]
# [production.probe]
# url = "http://127.0.0.1:8002/version"
"""
