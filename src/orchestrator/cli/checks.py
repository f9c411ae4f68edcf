"""What `orch doctor` looks at. Every check is a few lines that end in findings; none changes anything."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from orchestrator.agents.adapters import AGENTS
from orchestrator.cli.checkout import Registered, config_on_main, lacks_commit
from orchestrator.cli.owner import holder_of, owner_of
from orchestrator.config import Settings
from orchestrator.domain.duration import render_duration
from orchestrator.domain.errors import GitError, OrchestratorError
from orchestrator.repo_config.records import EnvironmentConfig, RepoConfig
from orchestrator.runtime.git import MINIMUM_VERSION, Git
from orchestrator.runtime.process import Processes
from orchestrator.wiring import open_readonly

GIB = 1024**3
SCARCE, EXHAUSTED = (
    2 * GIB,
    GIB // 8,
)  # room for a few checkouts and their builds; room for the database alone


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"  # worth knowing
    WARNING = "warning"  # some tasks will suffer
    FAILED = "failed"  # nothing will work until it is mended


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says."""

    level: Level
    about: str
    text: str
    hint: str = ""


def examine(
    settings: Settings, environ: Mapping[str, str], git: Git, processes: Processes
) -> Iterator[Finding]:
    """Everything, the ground first."""
    yield _git(git)
    yield _state_folder(settings.home)
    yield _disk(settings.home)
    yield _owner(settings, processes)
    found, configs = _repositories(settings, environ, git)
    yield from found
    yield from _agents(configs, environ, processes)
    for name, config in configs.items():
        yield from _time_outs(name, config, settings.reaper_max_running_s)
        yield from _delivery(name, config)


def _git(git: Git) -> Finding:
    wanted = ".".join(map(str, MINIMUM_VERSION))
    try:
        version = git.version()
    except GitError as error:
        return Finding(Level.FAILED, "git", error.message, error.hint)
    shown = ".".join(map(str, version))
    if version < MINIMUM_VERSION:
        return Finding(Level.FAILED, "git", f"Version {shown} is too old.", f"Install git {wanted} or newer.")
    return Finding(Level.OK, "git", f"version {shown}")


def _state_folder(home: Path) -> Finding:
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        hint = "Make it writable for this user, or name another one in ORCH_HOME."
        return Finding(Level.FAILED, "state folder", f"{place} cannot be written.", hint)
    if place != home:
        return Finding(Level.OK, "state folder", f"{home} (will be made)")
    if home.stat().st_mode & 0o077:
        hint = f"chmod 700 {home}"
        return Finding(Level.WARNING, "state folder", f"{home} can be read by other users.", hint)
    return Finding(Level.OK, "state folder", str(home))


def _disk(home: Path) -> Finding:
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / GIB:.1f} GiB free"
    if free < EXHAUSTED:
        return Finding(Level.FAILED, "disk", text, "Free space: nothing can be stored.")
    if free < SCARCE:
        return Finding(Level.WARNING, "disk", text, "Checkouts and builds may not fit.")
    return Finding(Level.OK, "disk", text)


def _owner(settings: Settings, processes: Processes) -> Finding:
    owner = owner_of(settings.home, processes)
    holder = holder_of(settings.database_path)
    if owner is None and holder is not None:
        return Finding(Level.NOTE, "service", f"the state is in use by {holder}", "It takes no commands.")
    if owner is None:
        return Finding(Level.NOTE, "service", "none is running", "`orch serve` starts it.")
    return Finding(Level.OK, "service", f"orch {owner.role} (pid {owner.process.pid}) at {owner.url}")


def _repositories(
    settings: Settings, environ: Mapping[str, str], git: Git
) -> tuple[list[Finding], dict[str, RepoConfig]]:
    """Whether each repository's configuration can be used, and those that can."""
    if not settings.database_path.exists():
        hint = "`orch init` in a repository registers it."
        return [Finding(Level.NOTE, "repositories", "none is registered yet", hint)], {}
    try:
        with open_readonly(settings, environ) as app:
            known = [
                Registered(one.name, one.prefix, Path(one.location)) for one in app.operations.repositories()
            ]
    except OrchestratorError as error:
        return [Finding(Level.FAILED, "database", error.message, error.hint)], {}
    findings, configs = [Finding(Level.OK, "database", str(settings.database_path))], {}
    for at in known:
        try:
            configs[str(at.name)] = config_on_main(git, at)
        except OrchestratorError as error:
            hint = lacks_commit(git, at, Path.cwd()) or error.hint
            findings.append(Finding(Level.WARNING, at.name, error.message, hint))
        else:
            findings.append(Finding(Level.OK, at.name, "its configuration is in order"))
    return findings, configs


def _agents(
    configs: Mapping[str, RepoConfig], environ: Mapping[str, str], processes: Processes
) -> Iterator[Finding]:
    """Whether the programs that are configured are there; with no repository, whether any is."""
    wanted = {
        (agent.kind, agent.command): name
        for name, config in configs.items()
        for agent in (config.agent, *config.agents.values())
    }
    asked: dict[tuple[str, tuple[str, ...] | None], str] = wanted or {
        ("claude", None): "",
        ("codex", None): "",
    }
    for (kind, command), repo in asked.items():
        about = f"agent {kind}" + (f" of {repo}" if repo else "")
        version = AGENTS[kind].probe(processes, environ, command)
        if version is not None:
            yield Finding(Level.OK, about, version)
        elif repo:
            hint = "Install it, or name its path as `command` under [agent] in .orchestrator.toml."
            yield Finding(Level.WARNING, about, "The program does not run here.", hint)
        else:
            yield Finding(Level.NOTE, about, "not found", "Only needed if a repository names it.")


def _time_outs(name: str, config: RepoConfig, backstop_s: float) -> Iterator[Finding]:
    """Time-outs that never come, because the reaper ends the job before."""
    given = {
        "[ci]": config.ci.timeout_s,
        "[agent]": config.agent.timeout_s,
        **{f"[agents.{role}]": agent.timeout_s for role, agent in config.agents.items()},
    }
    if config.image is not None:
        given["[image]"] = config.image.timeout_s
    late = [f"{where} {render_duration(length)}" for where, length in given.items() if length > backstop_s]
    if late:
        yield Finding(
            Level.WARNING,
            f"{name} time-outs",
            f"longer than a job may run ({render_duration(backstop_s)}), then the reaper ends it: {', '.join(late)}",
            "Shorten them, or raise ORCH_REAPER_MAX_RUNNING_S for the service.",
        )


def _delivery(name: str, config: RepoConfig) -> Iterator[Finding]:
    """What the configuration promises less than it could."""
    places: tuple[tuple[str, EnvironmentConfig | None], ...] = (
        ("staging", config.staging),
        ("production", config.production),
    )
    for stage, environment in places:
        if environment is None:
            continue
        about = f"{name} {stage}"
        if environment.honours_token:
            yield Finding(Level.OK, about, "deploy fencing: target (it compares ORCH_DEPLOY_TOKEN)")
        else:
            yield Finding(
                Level.NOTE,
                about,
                "deploy fencing: start-only (each deploy starts at most once; one already running is not refused)",
                "Let the target compare ORCH_DEPLOY_TOKEN, then set honours_token = true.",
            )
    if config.image is not None and config.image.rebuild:
        text = "image.rebuild: the digest in production is not the tested one."
        yield Finding(Level.WARNING, f"{name} image", text, "Leave it out to promote the tested digest.")
    if config.coverage is None:
        yield Finding(
            Level.NOTE, f"{name} coverage", "not measured", "[coverage] makes the baseline only rise."
        )
