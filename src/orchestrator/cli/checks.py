"""What `orch doctor` looks at. Every check is a few lines that end in findings; none changes anything."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from orchestrator.agents.adapters import AGENTS
from orchestrator.cli.checkout import CONFIG_FILE, Registered, config_on_main, default_branch
from orchestrator.cli.findings import Finding, Level
from orchestrator.cli.forge_copy import refresh
from orchestrator.cli.missing_config import has_config, lacks_commit, lacks_config
from orchestrator.cli.others_checks import others
from orchestrator.cli.owner import holder_of, owner_of
from orchestrator.cli.programs import missing_agent, missing_programs, roles_of
from orchestrator.config import Settings
from orchestrator.db import homes, installation
from orchestrator.db.file_lock import lock_of
from orchestrator.db.opening import has_state, place_of, schema_of, would_open
from orchestrator.domain.duration import render_duration
from orchestrator.domain.errors import GitError, OrchestratorError
from orchestrator.domain.ids import Home
from orchestrator.installation.folder_owner import another_owner, what_to_do
from orchestrator.ownership.registration import SERVING, WORKER, named
from orchestrator.ownership.state_folder import FOLDER_KNOWN_SINCE, strange
from orchestrator.places import known_state_id
from orchestrator.repo_config.records import AgentConfig, EnvironmentConfig, RepoConfig
from orchestrator.runtime.git import MINIMUM_VERSION, Git
from orchestrator.runtime.http import Http
from orchestrator.runtime.process import Processes
from orchestrator.web import views
from orchestrator.wiring import App, open_readonly

GIB = 1024**3
SCARCE, EXHAUSTED = (
    2 * GIB,
    GIB // 8,
)  # room for a few checkouts and their builds; room for the database alone


NO_SERVICE = Finding(Level.NOTE, "service", "none is running", "`orch serve` starts it.")


def examine(
    settings: Settings, environ: Mapping[str, str], git: Git, processes: Processes, http: Http
) -> Iterator[Finding]:
    """Everything, the ground first."""
    yield _git(git)
    yield _state_folder(settings)
    yield from _shared_folder(settings, environ)
    yield _disk(settings.home)
    yield from _services(settings, environ, processes)
    found, configs = _repositories(settings, environ, git)
    yield from found
    yield from _agents(configs, environ, git, processes)
    for at, config in configs.items():
        yield from _programs(git, at, config, environ)
        yield from _time_outs(at.name, config, settings.reaper_max_running_s)
        yield from _delivery(at.name, config)
        yield from others(settings, git, http, at, config)
    yield from _left_alone(settings, [at.name for at in configs])
    yield from _own_delivery(settings, {at.name: config for at, config in configs.items()})


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


def _state_folder(settings: Settings) -> Finding:
    home = settings.home
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    if not place.is_dir():
        hint = "Name a folder in ORCH_HOME; it is made where it does not exist."
        return Finding(
            Level.FAILED, "state folder", f"ORCH_HOME has to be a folder, and {place} is none.", hint
        )
    if not os.access(place, os.W_OK | os.X_OK):
        hint = "Make it writable for this user, or name another one in ORCH_HOME."
        return Finding(Level.FAILED, "state folder", f"{place} cannot be written.", hint)
    if place != home:
        return Finding(Level.OK, "state folder", f"{home} (will be made)")
    owner = another_owner(home, lock_of(settings.database_path))
    if owner is not None:
        return Finding(Level.FAILED, "state folder", f"{home} belongs to {owner}.", what_to_do(home, owner))
    if home.stat().st_mode & 0o077:
        hint = f"chmod 700 {home}"
        return Finding(Level.WARNING, "state folder", f"{home} can be read by other users.", hint)
    return Finding(Level.OK, "state folder", str(home))


def _shared_folder(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether it is the one that belongs to the database, where that is a server's; a worker has one of its own."""
    if not settings.on_postgres:
        return
    here = known_state_id(settings.home)
    try:
        if schema_of(settings.database_url) < FOLDER_KNOWN_SINCE:
            return
        with open_readonly(settings, environ) as app, app.database.read() as tx:
            known, worker = installation.folder(tx), homes.get(tx, Home(here)) if here is not None else None
    except OrchestratorError:  # told of with the database
        return
    if known not in (None, here) and worker is None:
        why = strange()
        yield Finding(Level.FAILED, "state folder", f"{settings.home}: {why.message}", why.hint)


def _disk(home: Path) -> Finding:
    place = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / GIB:.1f} GiB free"
    if free < EXHAUSTED:
        return Finding(Level.FAILED, "disk", text, "Free space: nothing can be stored.")
    if free < SCARCE:
        return Finding(Level.WARNING, "disk", text, "Checkouts and builds may not fit.")
    return Finding(Level.OK, "disk", text)


def _services(settings: Settings, environ: Mapping[str, str], processes: Processes) -> Iterator[Finding]:
    """Who works on the tasks: whoever owns the file; on a server all that are on its list."""
    if not settings.on_postgres:
        yield _owner(settings, processes)
        yield from _agents_nowhere(settings, 0)
        return
    try:
        if has_state(settings.database_url):
            with open_readonly(settings, environ) as app:
                others = [row for row in app.registration.others() if row.role in SERVING | {WORKER}]
        else:
            others = []
    except OrchestratorError:  # told of with the database
        return
    if not any(row.role in SERVING for row in others):
        yield NO_SERVICE
    for row in others:
        yield Finding(Level.OK, "worker" if row.role == WORKER else "service", named(row))
    yield from _agents_nowhere(settings, sum(row.role == WORKER for row in others))


def _agents_nowhere(settings: Settings, workers: int) -> Iterator[Finding]:
    if settings.max_agents == 0 and not workers:
        text = "none run: ORCH_MAX_AGENTS is 0, and no worker is heard of"
        yield Finding(Level.WARNING, "agents", text, "Start `orch worker`, or raise it for the service.")


def _owner(settings: Settings, processes: Processes) -> Finding:
    owner = owner_of(settings.home, processes)
    holder = holder_of(settings.database_path)
    if owner is None and holder is not None:
        return Finding(Level.NOTE, "service", f"the state is in use by {holder}", "It takes no commands.")
    if owner is None:
        return NO_SERVICE
    return Finding(Level.OK, "service", f"orch {owner.role} (pid {owner.process.pid}) at {owner.url}")


def _repositories(
    settings: Settings, environ: Mapping[str, str], git: Git
) -> tuple[list[Finding], dict[Registered, RepoConfig]]:
    """Whether each repository's configuration can be used, and those that can."""
    try:
        place = place_of(settings.database_url)
        if not would_open(settings.database_url, settings.home):
            empty = "empty" if settings.on_postgres else "not there yet"
            text = f"{place} ({empty}: `orch init` or `orch serve` makes it)"
            hint = "`orch init` in a repository registers it."
            none = Finding(Level.NOTE, "repositories", "none is registered yet", hint)
            return [Finding(Level.OK, "database", text), none], {}
        with open_readonly(settings, environ) as app:
            taken = [one for one in app.operations.repositories() if one.left_at is None]
            known = [Registered.of(views.record(one)) for one in taken]
            closed = list(_closed(app))
    except OrchestratorError as error:
        return [Finding(Level.FAILED, "database", error.message, error.hint)], {}
    findings = [Finding(Level.OK, "database", place), *closed]
    configs: dict[Registered, RepoConfig] = {}
    for at in known:
        finding, config = _repository(git, at)
        findings.append(finding)
        if config is not None:
            configs[at] = config
    return findings, configs


def _closed(app: App) -> Iterator[Finding]:
    """Repositories for which nothing is done, as where the database or the forge is a restored one or a copy."""
    try:
        told = app.restore.status()
    except OrchestratorError:  # a forge that does not answer is told of with its repository
        return
    for one in cast(list[views.Plain], told["repositories"]):
        yield Finding(
            Level.FAILED,
            str(one["repo"]),
            f"It is closed, and nothing is done for it: {one['reason']}.",
            "`orch restore status` tells more; `orch restore accept --reason …` lets work go on from there.",
        )


def _repository(git: Git, at: Registered) -> tuple[Finding, RepoConfig | None]:
    try:
        refresh(git, at)
    except OrchestratorError as error:
        return Finding(Level.FAILED, at.name, error.message, error.hint), None
    if not at.location.is_dir():
        text = f"Its forge is gone: there is no folder {at.location}."
        hint = "Was the state folder moved or cleaned up? Restore it from a backup."
        return Finding(Level.FAILED, at.name, text, hint), None
    try:
        if not has_config(git, at):
            text = (
                f"There is no {CONFIG_FILE} on {default_branch(at)} of its forge: its tickets cannot start."
            )
            return Finding(Level.WARNING, at.name, text, lacks_config(git, at, Path.cwd())), None
        config = config_on_main(git, at)
    except OrchestratorError as error:
        hint = lacks_commit(git, at, Path.cwd()) or error.hint
        return Finding(Level.WARNING, at.name, error.message, hint), None
    return Finding(Level.OK, at.name, "its configuration is in order"), config


def _agents(
    configs: Mapping[Registered, RepoConfig], environ: Mapping[str, str], git: Git, processes: Processes
) -> Iterator[Finding]:
    """Whether the programs that are configured are there; with no repository, whether any is."""
    if not configs:
        for kind in ("claude", "codex"):
            version = AGENTS[kind].probe(processes, environ, None)
            if version is not None:
                yield Finding(Level.OK, f"agent {kind}", version)
            else:
                text = "Only needed if a repository names it."
                yield Finding(Level.NOTE, f"agent {kind}", "not found", text)
    for at, config in configs.items():
        named = {(agent.kind, agent.command): agent for agent in roles_of(config).values()}
        for agent in named.values():
            yield _agent(at, agent, environ, git, processes)


def _agent(
    at: Registered, agent: AgentConfig, environ: Mapping[str, str], git: Git, processes: Processes
) -> Finding:
    about, program = f"agent {agent.kind} of {at.name}", (agent.command or (agent.kind,))[0]
    why = missing_agent(git, at, agent, environ)
    if why:
        hint = "Install it, or name its path as `command` under [agent] in .orchestrator.toml."
        return Finding(Level.FAILED, about, f"{program}: {why}.", hint)
    if agent.command and "/" in program and not program.startswith("/"):
        return Finding(
            Level.OK, about, f"{program} of the repository"
        )  # it lies in no folder yet to be asked in
    version = AGENTS[agent.kind].probe(processes, environ, agent.command)
    if version is not None:
        return Finding(Level.OK, about, version)
    if agent.command:
        hint = "Call it with --version by hand: it should say its version and end with 0."
        return Finding(Level.WARNING, about, f"{program} does not say its version.", hint)
    hint = "Install it, or name its path as `command` under [agent] in .orchestrator.toml."
    return Finding(Level.FAILED, about, "The program does not run here.", hint)


def _programs(git: Git, at: Registered, config: RepoConfig, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Programs of checks, builds and deploys that cannot be started."""
    for missing in missing_programs(git, at, config, environ):
        yield Finding(Level.FAILED, f"{at.name} {missing.where}", missing.text, missing.hint)


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


def _left_alone(settings: Settings, names: Sequence[str]) -> Iterator[Finding]:
    """Whose tasks a mechanism leaves alone, on purpose or by a misspelt name (FR-7, S-21)."""
    for about, setting, scope, what, hint in (
        (
            "leases",
            "ORCH_TRANSITION_LEASE",
            settings.lease_scope,
            "the tasks of {} run without a lease: two actors may do the same work, once in vain.",
            "Nothing happens twice all the same. ",
        ),
        (
            "reaper",
            "ORCH_REAPER",
            settings.reaper_scope,
            "dead and hung runs of {} are left alone; what hangs keeps its task, and its place among all agents and "
            "checks.",
            "`orch lease release` frees a task, a start of the service the rest. ",
        ),
        (
            "reconciler",
            "ORCH_RECONCILER",
            settings.reconciler_scope,
            "the tasks of {} move only when something signals them, and at the next start.",
            "",
        ),
        (
            "drift watch",
            "ORCH_DRIFT_WATCH",
            settings.drift_watch_scope,
            "nobody looks at what the environments of {} run once their deploys are over.",
            "",
        ),
    ):
        outside = sorted(name for name in names if not scope.covers(name))
        if outside:
            text = what.format(", ".join(outside))
            yield Finding(Level.WARNING, about, text, f"{hint}See {setting}_ENABLED and {setting}_REPOS.")


def _own_delivery(settings: Settings, configs: Mapping[str, RepoConfig]) -> Iterator[Finding]:
    """Whether a version of ourselves that does not come up would be undone (S-15)."""
    if not settings.self_repo:
        return
    about, config = "self-deploy", configs.get(settings.self_repo)
    if config is None:
        text = f"{settings.self_repo} (ORCH_SELF_REPO) is not registered, or its configuration is not usable."
        yield Finding(
            Level.WARNING, about, text, "Register it under that name, or mend what is said of it above."
        )
        return
    if config.production is None:
        yield Finding(
            Level.NOTE, about, f"{settings.self_repo} has no production; nothing of ours is deployed."
        )
        return
    if config.production.undo is None:
        text = "Nobody would undo a version that does not come up: production has no undo."
        yield Finding(
            Level.WARNING, about, text, "Configure [production] undo; see docs/how-to/self-deploy.md."
        )
        return
    if not settings.build_sha:
        text = (
            "This version does not know its own commit. A version that does not cannot report, and is undone."
        )
        hint = "Let the deploy command write it to BUILD_SHA beside the package's modules, or set ORCH_BUILD_SHA."
        yield Finding(Level.WARNING, about, text, hint)
        return
    within = render_duration(settings.self_deploy_timeout_s + config.production.stable_for_s)
    yield Finding(Level.OK, about, f"a version that has not reported after {within} is undone by its runner")
