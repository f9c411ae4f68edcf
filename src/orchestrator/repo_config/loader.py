"""Reads ``.orchestrator.toml``.

What must hold: a key that nobody knows, a wrong type and a missing requirement are errors, never ignored; all of them
are reported at once, each with its place. The text comes from the target branch, never from the branch under
judgement; this module trusts its author's intentions but not his typing, and bounds what it reads.
"""

import tomllib
from collections.abc import Mapping
from typing import Any

from orchestrator.domain.errors import ConfigError
from orchestrator.domain.stage import Role
from orchestrator.repo_config import keys, records
from orchestrator.repo_config.reading import Reading

FILE_NAME = ".orchestrator.toml"
DEFAULT_BRANCH = "main"
_MAX_BYTES = 256 * 1024
_TABLES = (
    "ci",
    "coverage",
    "image",
    "staging",
    "production",
    "approvals",
    "forge",
    "agent",
    "agents",
    "paths",
    "budget",
)
# What belongs to one kind of agent and means something else, or nothing, for another.
_OF_KIND = ("command", "model")


def parse_repo_config(data: bytes, *, source: str) -> records.RepoConfig:
    """The configuration in ``data``. ``source`` says in messages where it came from.

    :raises ConfigError: with all problems at once.
    """
    text = _decode(data, source)
    reading = Reading(text)
    config = _repo_config(reading, _parse(text, source))
    if config is None or reading.problems:
        listed = "\n".join(f"  - {problem}" for problem in reading.problems)
        raise ConfigError(
            f"{source} cannot be used; no task of this repository moves until it is corrected.\n{listed}",
            hint=f"\nCorrect {FILE_NAME} on the default branch.",
        )
    return config


def _repo_config(reading: Reading, document: Mapping[str, Any]) -> records.RepoConfig | None:
    """The whole record, or ``None`` where a part without which it makes no sense is missing."""
    top = reading.keys("", document, keys.TOP, others=_TABLES)
    tables = {name: reading.table(name, document) for name in _TABLES}
    ci = _ci(reading, tables["ci"])
    agent_table = tables["agent"] or {}
    parts: dict[str, Any] = {
        "coverage": _optional(reading, "coverage", tables, keys.COVERAGE, records.CoverageConfig),
        "image": _optional(reading, "image", tables, keys.IMAGE, records.ImageConfig),
        "staging": _environment(reading, "staging", tables["staging"]),
        "production": _environment(reading, "production", tables["production"]),
        "approvals": _optional(reading, "approvals", tables, keys.APPROVALS, records.ApprovalsConfig),
        "forge": _optional(reading, "forge", tables, keys.FORGE, records.ForgeConfig),
        "agent": _agent(reading, "agent", agent_table, {}),
        "agents": _agents(reading, tables["agents"] or {}, agent_table),
        "paths": _paths(reading, tables["paths"]),
        "budget": _optional(reading, "budget", tables, keys.BUDGET, records.BudgetConfig),
    }
    _check_places(reading, parts["staging"], parts["production"])
    if ci is None:
        return None
    top.setdefault("default_branch", DEFAULT_BRANCH)
    return records.RepoConfig(
        ci=ci, **top, **{name: part for name, part in parts.items() if part is not None}
    )


def _ci(reading: Reading, table: Mapping[str, Any] | None) -> records.CiConfig | None:
    if table is None:
        if not reading.reported("ci"):
            reading.problem("ci", f"is missing: {_why(keys.CI, 'command')} in a table [ci].")
        return None
    found: records.CiConfig | None = reading.record("ci", table, keys.CI, records.CiConfig)
    return found


def _optional(
    reading: Reading,
    name: str,
    tables: Mapping[str, Mapping[str, Any] | None],
    known: tuple[keys.Key, ...],
    record: Any,
) -> Any:
    table = tables[name]
    return None if table is None else reading.record(name, table, known, record)


def _environment(
    reading: Reading, name: str, table: Mapping[str, Any] | None
) -> records.EnvironmentConfig | None:
    if table is None:
        return None
    probe_name = f"{name}.probe"
    probe_table = reading.table("probe", table, within=name)
    probe: records.ProbeConfig | None = None
    if probe_table is not None:
        probe = reading.record(probe_name, probe_table, keys.PROBE, records.ProbeConfig)
        if probe is not None and (probe.url is None) == (probe.command is None):
            reading.problem(probe_name, "must hold either url or command, so that there is one answer.")
    elif not reading.reported(probe_name):
        reading.problem(
            probe_name,
            "is missing: without it nobody can tell which version runs. "
            f'Write a table [{probe_name}] with url = "http://…" or command = [ … ].',
        )
    values = reading.keys(name, table, keys.ENVIRONMENT, others=("probe",))
    if probe is None or not reading.complete(keys.ENVIRONMENT, values):
        return None
    return records.EnvironmentConfig(probe=probe, **values)


def _agent(
    reading: Reading, name: str, table: Mapping[str, Any], inherited: Mapping[str, Any]
) -> records.AgentConfig | None:
    """An agent's record; what ``table`` does not say comes from ``inherited``, except what belongs to another kind."""
    own = reading.keys(name, table, keys.AGENT)
    kind = own.get("kind", inherited.get("kind", records.AgentConfig().kind))
    same = kind == inherited.get("kind", records.AgentConfig().kind)
    merged = {key: value for key, value in inherited.items() if same or key not in _OF_KIND} | own
    if kind == "command" and "command" not in merged and not reading.reported(f"{name}.command"):
        reading.problem(
            name, 'has kind "command" and no command. Write for example command = ["./agent.sh"].'
        )
        return None
    return records.AgentConfig(**merged)


def _agents(
    reading: Reading, tables: Mapping[str, Any], inherited: Mapping[str, Any]
) -> dict[Role, records.AgentConfig]:
    # Read a second time, in silence: its problems were reported when [agent] itself was read.
    common = Reading("").keys("agent", inherited, keys.AGENT)
    reading.unknown("agents", tables, [*keys.ROLES])
    found: dict[Role, records.AgentConfig] = {}
    for role in keys.ROLES:
        table = reading.table(role, tables, within="agents")
        agent = None if table is None else _agent(reading, f"agents.{role}", table, common)
        if agent is not None:
            found[role] = agent
    return found


def _paths(reading: Reading, table: Mapping[str, Any] | None) -> records.PathPolicy | None:
    """The path policy; our own file cannot be taken out of it, for it says what every gate does."""
    if table is None:
        return None
    values = reading.keys("paths", table, keys.PATHS)
    if FILE_NAME not in values.get("protected", (FILE_NAME,)):
        values["protected"] = (FILE_NAME, *values["protected"])
    return records.PathPolicy(**values)


def _check_places(
    reading: Reading,
    staging: records.EnvironmentConfig | None,
    production: records.EnvironmentConfig | None,
) -> None:
    if staging is not None and production is not None and staging.name == production.name:
        reading.problem("production.name", "is the name of staging too: they must be two places.")


def _decode(data: bytes, source: str) -> str:
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{source} is longer than {_MAX_BYTES // 1024} KiB; no configuration needs that.")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{source}, line {line}: the text is not UTF-8.", hint="Save the file as UTF-8."
        ) from None


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        said = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(
            f"{source} is not valid TOML, so no task of this repository moves: {said}.",
            hint="Texts stand in quotes, lists in square brackets.",
        ) from None


def _why(known: tuple[keys.Key, ...], name: str) -> str:
    return next(key.why for key in known if key.name == name)
