"""Readers of one TOML value each: a parsed value in, the record's value out.

Every reader raises ``ValueError`` whose message says what was expected and, where it helps, how to write it; whoever
calls it knows the key.
"""

import json
import math
import re
import shlex
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from orchestrator.domain.duration import EXPECTED, parse_duration, render_duration

Reader = Callable[[Any], Any]

_DAY = 86400.0
_MANY_CHECKS = 50
_CHECK_NAME = 200  # characters
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}", re.ASCII)
_SHELL = frozenset("|&;<>$`*?~#")  # an unquoted one means that a shell was expected


def text(value: Any) -> str:
    """Any text with something in it, on one line."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError("text in quotes, on one line")
    return value


def one_of(words: Collection[str]) -> Reader:
    """One of a few words."""

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError("one of " + ", ".join(f'"{word}"' for word in words))
        return value

    return read


def flag(value: Any) -> bool:
    """A TOML boolean."""
    if not isinstance(value, bool):
        raise ValueError("true or false, without quotes")
    return value


def whole(low: int, high: int) -> Reader:
    """A whole number between two bounds, both included."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return read


def number(low: float, high: float, what: str = "a number") -> Reader:
    """A finite number between two bounds, both included."""

    def read(value: Any) -> float:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not math.isfinite(value) or not low <= value <= high:
            raise ValueError(f"{what} from {low:g} to {high:g}")
        return float(value)

    return read


def seconds(low: float, high: float = 30 * _DAY) -> Reader:
    """A length of time between two bounds, both included: a number of seconds, or text with a unit."""

    def read(value: Any) -> float:
        found = -1.0
        if isinstance(value, int | float) and not isinstance(value, bool):
            found = float(value)
        elif isinstance(value, str):
            try:
                found = parse_duration(value)
            except ValueError:
                found = -1.0
        if not low <= found <= high:
            raise ValueError(f"{EXPECTED}, from {render_duration(low)} to {render_duration(high)}")
        return found

    return read


def argv(value: Any) -> tuple[str, ...]:
    """A command as a list of its arguments. One text is refused: nobody but the author knows where it is to be cut."""
    if isinstance(value, str):
        raise ValueError(f"a list of arguments, no shell is involved: write {_as_list(value)}")
    if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
        raise ValueError('a list of arguments such as ["python", "-m", "pytest"]')
    if not value[0].strip():
        raise ValueError("a list of arguments whose first is the program")
    if any("\0" in part for part in value):
        raise ValueError("arguments without NUL characters")
    return tuple(value)


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts, possibly empty."""
    if not isinstance(value, list):
        raise ValueError('a list of texts such as ["a", "b"]')
    return tuple(text(part) for part in value)


def check_names(value: Any) -> tuple[str, ...]:
    """Names of checks, letter for letter as the forge shows them."""
    found = texts(value)
    if len(found) > _MANY_CHECKS or any(len(name) > _CHECK_NAME for name in found):
        raise ValueError(f"at most {_MANY_CHECKS} names of at most {_CHECK_NAME} characters")
    if len(set(found)) < len(found):
        raise ValueError("each name once")
    return found


def patterns(value: Any) -> tuple[str, ...]:
    """Patterns of paths as in ``.gitignore``, without its exceptions: a later line cannot take back an earlier one."""
    found = texts(value)
    if any(
        part.startswith("!") or "\\" in part or ".." in part.split("/") or not part.strip("/")
        for part in found
    ):
        raise ValueError('patterns such as "ci/**" or "*.lock", without "!", ".." and backslashes')
    return found


def variables(value: Any) -> dict[str, str]:
    """Environment variables with their values."""
    if not isinstance(value, dict) or not all(isinstance(content, str) for content in value.values()):
        raise ValueError('a table of texts such as { CI = "1" }')
    if any("\0" in content for content in value.values()):
        raise ValueError("values without NUL characters")
    for name in value:
        _variable(name)
    return dict(value)


def variable_names(value: Any) -> tuple[str, ...]:
    """Names of environment variables."""
    return tuple(_variable(name) for name in texts(value))


def inner_path(value: Any) -> str:
    """A path inside the repository, with forward slashes."""
    path = text(value)
    if path.startswith(("/", "~")) or "\\" in path or ".." in path.split("/") or path.split("/")[0] == ".git":
        raise ValueError("a path inside the repository, relative to its top folder")
    return path


def branch(value: Any) -> str:
    """The short name of a branch, from the letters that no tool mistakes for anything else."""
    name = text(value)
    odd = ".." in name or "//" in name or "/." in name or name.endswith(("/", ".", ".lock"))
    if not _BRANCH.fullmatch(name) or odd or name.startswith("refs/"):
        raise ValueError('the short name of a branch such as "main"')
    return name


def place(value: Any) -> str:
    """The name of an environment."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("a name of letters, digits, dots, hyphens and underscores, at most 64")
    return value


def web_address(value: Any) -> str:
    """An http(s) address without credentials."""
    expected = 'an address such as "http://127.0.0.1:8000/version", without user and password'
    address = text(value)
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(expected) from None
    if not usable or parts.username is not None or " " in address:
        raise ValueError(expected)
    return address


def _variable(name: str) -> str:
    """``ORCH_*`` is ours: an agent allowed to see it could see our token."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError("names of environment variables: letters, digits and underscores")
    if name.upper().startswith("ORCH_"):
        raise ValueError("names that do not begin with ORCH_; these belong to the orchestrator")
    return name


def _as_list(command: str) -> str:
    """How to write ``command`` as a list; through a shell only where it visibly needs one."""
    try:
        parts = shlex.split(command)
    except ValueError:
        parts = []
    if not parts or _SHELL & set(command):
        parts = ["sh", "-c", command]
    listed = json.dumps(parts, ensure_ascii=False)
    # As TOML writes them: what is shown may have come from a stranger's file.
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in listed)
