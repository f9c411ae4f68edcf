"""Reads the settings from the environment, once.

What must hold: a secret's value appears in no message; nothing else in the product reads ``ORCH_*`` for itself.
All problems are reported at once as one ``ConfigError``; nothing is guessed and nothing falls back. An empty variable
counts as not set, but for the few whose field says otherwise.
"""

import os
import pwd
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import orchestrator
from orchestrator.config import values
from orchestrator.config.settings import PREFIX, Settings, holds_secret, variable_of
from orchestrator.domain.duration import render_duration
from orchestrator.domain.errors import ConfigError
from orchestrator.domain.lease import own_term_s
from orchestrator.domain.spelling import did_you_mean

# What we ourselves give to deploy commands, checks and agents. A service that one of them starts inherits them.
FOREIGN = frozenset(
    {
        "ORCH_ARTIFACT",
        "ORCH_BRIEF",
        "ORCH_CHECK_ID",
        "ORCH_DEPLOY_ID",
        "ORCH_DEPLOY_KIND",
        "ORCH_DEPLOY_TOKEN",
        "ORCH_DIGEST",
        "ORCH_ENVIRONMENT",
        "ORCH_GENERATION",
        "ORCH_INSTALLATION",
        "ORCH_PREVIOUS_ARTIFACT",
        "ORCH_PREVIOUS_SHA",
        "ORCH_PROCESS",
        "ORCH_PROMPT",
        "ORCH_RUN_ID",
        "ORCH_SHA",
        "ORCH_USAGE",
        "ORCH_WORK_ITEM",
    }
)
BUILD_FILE = Path(orchestrator.__file__).parent / "BUILD_SHA"
_SHOWN = 80  # characters of a wrong value that a message repeats
_SECRET_FILE_MAX = 4096


def load_settings(environ: Mapping[str, str]) -> Settings:
    """The settings that ``environ`` describes.

    :raises ConfigError: with all problems at once: unknown names, wrong values, values that contradict each other.
    """
    known = {variable_of(f): f for f in fields(Settings)}
    problems = [_unknown(name, known) for name in sorted(environ) if _ours(name) and name not in known]
    given: dict[str, Any] = {}
    for variable, f in known.items():
        text = environ.get(variable)
        if text is None or not (text.strip() or f.metadata["empty_counts"]):
            continue
        try:
            given[f.name] = f.metadata["reader"](text)
        except ValueError as expected:
            problems.append(f"{variable} is {_quote(f, text)}, expected {expected}.")
    if "home" not in given:
        given["home"] = _default_home(environ, problems)
        _check_home(given["home"], problems)
    given.setdefault("database_url", f"sqlite://{given['home'] / 'orchestrator.db'}")
    for f in fields(Settings):
        if f"{f.name}_file" in given:
            _read_secret_file(f, given, problems)
    if "build_sha" not in given:
        _read_build_sha(given, problems)
    settings = Settings(**given)
    if not problems:
        problems += _contradictions(settings)
    if problems:
        raise ConfigError(
            "The settings cannot be used; nothing was started.\n"
            + "\n".join(f"  - {line}" for line in problems),
            hint="\nCorrect these environment variables and start again.",
        )
    return settings if settings.base_url else _with_base_url(settings)


def _contradictions(settings: Settings) -> list[str]:
    """What each value allows and all of them together do not."""
    found = []
    if not settings.loopback and not settings.token:
        found.append(
            f"ORCH_HOST {settings.host} can be reached from other machines, and neither ORCH_TOKEN nor ORCH_TOKEN_FILE "
            "is set. Set one, or listen on 127.0.0.1."
        )
    for place, url, token in (
        ("GITEA", settings.gitea_url, settings.gitea_token),
        ("PLANE", settings.plane_url, settings.plane_token),
    ):
        if bool(url) != bool(token):
            found.append(
                f"ORCH_{place}_URL and a token, ORCH_{place}_TOKEN_FILE or ORCH_{place}_TOKEN, go together: one of "
                "them is set. Set both or none."
            )
    if settings.github_url.startswith("https://api.") or settings.github_url.endswith("/api/v3"):
        found.append(
            "ORCH_GITHUB_URL is the address of an API. Give the one that people open, such as https://github.com."
        )
    if settings.heartbeat_interval_s >= own_term_s(settings.process_ttl_s):
        found.append(
            f"ORCH_HEARTBEAT_INTERVAL_S ({render_duration(settings.heartbeat_interval_s)}) must be shorter than "
            "the term in which a process trusts its own leases, two thirds of ORCH_PROCESS_TTL_S "
            f"({render_duration(settings.process_ttl_s)}): between two heartbeats it would stand still. "
            "Shorten the interval to a third of the TTL or less."
        )
    elif settings.process_ttl_s < 3 * settings.heartbeat_interval_s:
        found.append(
            f"ORCH_PROCESS_TTL_S ({render_duration(settings.process_ttl_s)}) must be at least three times "
            f"ORCH_HEARTBEAT_INTERVAL_S ({render_duration(settings.heartbeat_interval_s)}), "
            "else one late heartbeat makes a living process look dead."
        )
    if settings.reaper_max_running_s <= settings.reaper_finalize_grace_s:
        found.append(
            f"ORCH_REAPER_MAX_RUNNING_S ({render_duration(settings.reaper_max_running_s)}) must be longer than "
            f"ORCH_REAPER_FINALIZE_GRACE_S ({render_duration(settings.reaper_finalize_grace_s)}), "
            "else the backstop ends runs that their monitor may still finalise."
        )
    if bool(settings.telegram_token) != (settings.telegram_chat is not None):
        missing = (
            "ORCH_TELEGRAM_CHAT"
            if settings.telegram_token
            else "ORCH_TELEGRAM_TOKEN or ORCH_TELEGRAM_TOKEN_FILE"
        )
        found.append(f"Alerts to Telegram need a bot and a chat. Set {missing}, too, or neither.")
    return found


def _read_secret_file(f: "Field[Any]", given: dict[str, Any], problems: list[str]) -> None:
    """Put what the file holds where the variable of ``f`` would have put it."""
    variable = variable_of(f)
    path: Path = given[f"{f.name}_file"]
    if f.name in given:
        problems.append(f"{variable} and {variable}_FILE are both set. Keep one.")
        return
    named = f"{variable}_FILE {_cut(str(path))}"
    try:
        with path.open(encoding="ascii") as file:
            given[f.name] = f.metadata["reader"](file.read(_SECRET_FILE_MAX))
    except OSError as error:
        problems.append(f"{named} cannot be read: {error.strerror}.")
    except UnicodeDecodeError:
        problems.append(f"{named} holds no ASCII text.")
    except ValueError as expected:
        problems.append(f"{named} holds nothing usable, expected {expected}.")


def _read_build_sha(given: dict[str, Any], problems: list[str]) -> None:
    """What the build has left beside the modules that really run; without it nobody knows."""
    try:
        text = BUILD_FILE.read_text(encoding="ascii", errors="replace")[:_SHOWN]
    except OSError:
        return
    try:
        given["build_sha"] = values.full_sha(text)
    except ValueError as expected:
        problems.append(f"The file {BUILD_FILE} holds {_cut(text)}, expected {expected}.")


def _default_home(environ: Mapping[str, str], problems: list[str]) -> Path:
    """The user's state folder; a relative ``XDG_STATE_HOME`` is ignored, as its specification asks."""
    state = environ.get("XDG_STATE_HOME", "")
    if Path(state).is_absolute():
        return Path(state) / "orchestrator"
    home = environ.get("HOME", "")
    if not Path(home).is_absolute():
        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            home = ""
    if not Path(home).is_absolute():
        problems.append("There is no home folder to keep state in. Set ORCH_HOME to a folder.")
        return Path("/nonexistent")
    return Path(home) / ".local" / "state" / "orchestrator"


def _check_home(home: Path, problems: list[str]) -> None:
    try:
        values.folder(str(home))
    except ValueError as expected:
        problems.append(
            f"The state folder would be {_cut(str(home))}, expected {expected}. Set ORCH_HOME to another."
        )


def _with_base_url(settings: Settings) -> Settings:
    """The same settings with the address that the board has on this machine."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    filled = {f.name: getattr(settings, f.name) for f in fields(Settings)}
    return Settings(**filled | {"base_url": f"http://{host}:{settings.port}"})


def _ours(name: str) -> bool:
    return name.upper().startswith(PREFIX) and name not in FOREIGN


def _unknown(name: str, known: Mapping[str, object]) -> str:
    """Names an unknown variable; never its value, which may be a secret under a misspelt name."""
    meant = did_you_mean(name.upper(), known)
    return f"{_cut(name)} is no setting. {meant}".rstrip()


def _quote(f: "Field[Any]", text: str) -> str:
    if holds_secret(f) or f.name in ("database_url", "base_url"):
        return "not usable (value not shown)"
    return _cut(text)


def _cut(text: str) -> str:
    """``text`` quoted, control characters escaped, bounded."""
    return ascii(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
