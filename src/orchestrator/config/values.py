"""Readers of one environment value each: text in, typed value out.

Every reader raises ``ValueError`` whose message says what was expected; whoever calls it knows the variable's name
and whether its value may be shown.
"""

import ipaddress
import re
from collections.abc import Callable, Collection
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from orchestrator.config.secret import Secret, Secrets
from orchestrator.domain.duration import EXPECTED, parse_duration, render_duration
from orchestrator.domain.scope import EVERY_REPOSITORY
from orchestrator.domain.shares import OTHERS, Caps
from orchestrator.domain.stage import Stage

Reader = Callable[[str], Any]

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FULL_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_IDENTIFIER = re.compile(r"[A-Za-z0-9_-]{1,100}")
_TELEGRAM_TOKEN = re.compile(r"[0-9]{3,20}:[A-Za-z0-9_-]{16,100}")
_TELEGRAM_CHAT = re.compile(r"-?[1-9][0-9]{0,17}")
_TELEGRAM_NAME = re.compile(r"@[A-Za-z][A-Za-z0-9_]{3,63}")
_MOST = 10_000  # agents that a cap can speak of
_TOKEN_MIN = 16  # shorter ones can be guessed, and masking them would tear holes into ordinary text

_SECRETS_MAX = 10


def boolean(text: str) -> bool:
    """``true`` and ``false`` in their usual spellings."""
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise ValueError("true or false")
    return word in _TRUE


def whole(low: int, high: int) -> Reader:
    """A whole number between two bounds, both included."""

    def read(text: str) -> int:
        expected = f"a whole number from {low} to {high}"
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18 or not low <= int(digits) <= high:
            raise ValueError(expected)
        return int(digits)

    return read


def seconds(low: float, high: float) -> Reader:
    """A length of time in seconds between two bounds, both included."""

    def read(text: str) -> float:
        try:
            value = parse_duration(text)
        except ValueError:
            value = -1.0
        if not low <= value <= high:
            raise ValueError(f"{EXPECTED}, from {render_duration(low)} to {render_duration(high)}")
        return value

    return read


def one_of(kind: type[StrEnum]) -> Reader:
    """A member of an enumeration, by its value, in any case."""

    def read(text: str) -> StrEnum:
        try:
            return kind(text.strip().lower())
        except ValueError:
            raise ValueError("one of " + ", ".join(kind)) from None

    return read


def folder(text: str) -> Path:
    """A path, absolute or from the current folder; ``~`` stands for the home folder."""
    if "\0" in text:
        raise ValueError("a path")
    try:
        path = Path(text).expanduser().absolute()
        str(path).encode("utf-8")
    except RuntimeError:
        raise ValueError("a path; ~ cannot be resolved here, write it out") from None
    except UnicodeEncodeError:  # the places below it are kept in the database, as text
        raise ValueError("a path of UTF-8 text") from None
    return path


def host(text: str) -> str:
    """A host name or address to listen on."""
    name = text.strip()
    if not name or any(not (c.isalnum() or c in ".:-_%") for c in name):
        raise ValueError("a host name or an IP address, without port")
    return name


def web_address(text: str) -> str:
    """An http(s) address without credentials, query or fragment; returned without its last slash."""
    expected = "an address such as https://orch.example.org, without user, query or fragment"
    try:
        parts = urlsplit(text.strip())
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(expected) from None
    if not plain or parts.username is not None or parts.query or parts.fragment:
        raise ValueError(expected)
    return text.strip().rstrip("/")


def database_url(text: str) -> str:
    """The address of a SQLite file or of a PostgreSQL database. Never echoes the text: it may carry a password."""
    scheme, _, rest = text.strip().partition("://")
    match scheme.lower():
        case "sqlite":
            return _sqlite_url(rest)
        case "postgres" | "postgresql":
            return _postgres_url(rest)
        case _:
            raise ValueError("sqlite:///<absolute path> or postgresql://<user>@<host>/<database>")


def _sqlite_url(rest: str) -> str:
    if not rest.startswith("/") or "?" in rest or "#" in rest or "\0" in rest:
        raise ValueError("sqlite:///<absolute path>, a file and nothing else")
    path = Path("/" + rest.lstrip("/"))
    if path == Path("/") or rest.endswith("/"):
        raise ValueError("sqlite:///<absolute path> of a file, not a folder")
    return f"sqlite://{path}"


def _postgres_url(rest: str) -> str:
    """What libpq takes as a URL, so far as it can be judged without it; the database must be named, for libpq would
    take the user's name for it."""
    address, _, parameters = rest.partition("?")
    _, _, name = address.partition("/")
    if (
        not rest.isascii()
        or not rest.isprintable()
        or " " in rest
        or "/" in name
        or not (name or "dbname" in parse_qs(parameters))
    ):
        raise ValueError(
            "postgresql://<user>@<host>/<database>, with what is special in user and password percent-encoded"
        )
    return f"postgresql://{rest}"


def passwords_in(url: str) -> tuple[str, ...]:
    """The passwords that a database's address holds, as they stand there and as they are meant."""
    address, _, parameters = url.partition("://")[2].partition("?")
    user, at, _ = address.partition("/")[0].rpartition("@")
    written = [user.partition(":")[2]] if at else []
    named = parse_qs(parameters)
    found = [*written, *map(unquote, written), *named.get("password", []), *named.get("sslpassword", [])]
    return tuple(dict.fromkeys(password for password in found if password))


def full_sha(text: str) -> str:
    """One commit, by its full SHA."""
    sha = text.strip()
    if not _FULL_SHA.fullmatch(sha):
        raise ValueError("a full SHA: 40 or 64 lower-case hexadecimal digits")
    return sha


def repository(text: str) -> str:
    """The name of one repository."""
    name = text.strip()
    if not _REPOSITORY.fullmatch(name):
        raise ValueError("the name of a repository: letters, digits, dots, dashes and underscores")
    return name


def repositories(text: str) -> tuple[str, ...]:
    """Names of repositories, separated by commas, in order and each once; ``*`` is every one. Empty: none is named."""
    if not text.strip():
        return ()
    parts = [part.strip() for part in text.split(",")]
    if not all(part == EVERY_REPOSITORY or _REPOSITORY.fullmatch(part) for part in parts):
        raise ValueError("names of repositories separated by commas, or * for every one")
    return (EVERY_REPOSITORY,) if EVERY_REPOSITORY in parts else tuple(sorted(set(parts)))


def caps(kind: str, known: Collection[str] | None = None) -> Reader:
    """How many each of some names may have at once; ``known``: the names there are, else those of repositories."""
    expected = (
        f"{kind}=number pairs separated by commas, each name once, each number from 0 to {_MOST}, * for all others"
        + (f"; the names are {', '.join(known)}" if known else "")
    )

    def read(text: str) -> Caps:
        found: dict[str, int] = {}
        for part in text.split(","):
            name, sign, number = (piece.strip() for piece in part.partition("="))
            right = name == OTHERS or (name in known if known else _REPOSITORY.fullmatch(name) is not None)
            if not sign or not right or name in found:
                raise ValueError(expected)
            try:
                found[name] = whole(0, _MOST)(number)
            except ValueError:
                raise ValueError(expected) from None
        return tuple(sorted(found.items()))

    return read


def identifier(text: str) -> str:
    """An id that another system has given, such as a UUID."""
    given = text.strip()
    if not _IDENTIFIER.fullmatch(given):
        raise ValueError("an id: letters, digits, - and _, at most 100")
    return given


def names(text: str) -> frozenset[str]:
    """Names that another system uses, separated by commas, in any case."""
    found = frozenset(" ".join(part.split()).lower() for part in text.split(","))
    if "" in found or any(not name.isprintable() or len(name) > 100 for name in found):
        raise ValueError("names or ids separated by commas")
    return found


def stage_states(text: str) -> tuple[tuple[str, str], ...]:
    """What another system calls the states that show a stage, as ``stage=name`` pairs; names in any case."""
    found: dict[str, str] = {}
    for part in text.split(","):
        stage, _, name = (" ".join(piece.split()) for piece in part.partition("="))
        if not name or stage not in set(Stage) or stage in found:
            raise ValueError(
                f"stage=state pairs separated by commas, each stage once; the stages are {', '.join(Stage)}"
            )
        (found[stage],) = names(name)
    return tuple(found.items())


def token(text: str) -> str:
    """A bearer token."""
    value = text.strip()
    if len(value) < _TOKEN_MIN or not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(f"at least {_TOKEN_MIN} printable ASCII characters without blanks")
    return value


def secrets(text: str) -> Secrets:
    """One secret or several, separated by blanks or line ends."""
    try:
        found = Secrets(Secret(token(word)) for word in dict.fromkeys(text.split()))
    except ValueError:
        found = Secrets()
    if not 0 < len(found) <= _SECRETS_MAX:
        raise ValueError(
            f"one to {_SECRETS_MAX} secrets of at least {_TOKEN_MIN} printable ASCII characters, separated by blanks"
        )
    return found


def telegram_token(text: str) -> str:
    """The token of a bot, which becomes part of an address."""
    given = text.strip()
    if not _TELEGRAM_TOKEN.fullmatch(given):
        raise ValueError("a bot's token as BotFather gives it: digits, a colon, letters, digits, - and _")
    return given


def telegram_chat(text: str) -> int | str:
    """The number of a chat, below zero for a group, or the name of a public channel."""
    given = text.strip()
    if _TELEGRAM_NAME.fullmatch(given):
        return given
    if not _TELEGRAM_CHAT.fullmatch(given):
        raise ValueError(
            "the number of a chat, such as -1001234567890, or @name of a public channel or group"
        )
    return int(given)


def loopback(address: str) -> bool:
    """True where only this machine can reach ``address``."""
    if address.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False
