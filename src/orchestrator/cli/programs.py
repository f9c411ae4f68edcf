"""Whether the programs that a repository's configuration names can be started where they will be.

What must hold: nothing is started here. A program with a folder in its name is looked for in the tree that the command
will run in; one without is looked for on the PATH that it will see.
"""

import os
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agents.environment import find_program
from orchestrator.cli.checkout import HEADS, Registered, default_branch
from orchestrator.domain.stage import Role
from orchestrator.repo_config.records import AgentConfig, Argv, RepoConfig
from orchestrator.runtime.git import Git

STARTED_BY_NAME = frozenset({"command", "claude", "codex"})  # kinds whose `command` is a program
_RUNNABLE = ("100755", "120000")  # git's modes of an executable file and of a link


@dataclass(frozen=True, slots=True)
class Missing:
    """A program that cannot be started."""

    where: str  # the key that names it
    text: str
    hint: str


def roles_of(config: RepoConfig) -> Mapping[Role, AgentConfig]:
    """Who does which role; nobody deploys where there is no staging to look at."""
    roles = [role for role in Role if role is not Role.DEPLOYER or config.staging is not None]
    return {role: config.agent_for(role) for role in roles}


def missing_programs(
    git: Git, at: Registered, config: RepoConfig, environ: Mapping[str, str]
) -> Iterator[Missing]:
    """Every program of the configuration that is not there or not executable."""
    for where, argv, env in _commands(config):
        why = _why_not(git, at, argv[0], {**environ, **env})
        if why:
            yield Missing(where, f"{argv[0]}: {why}.", _hint(where, argv[0], default_branch(at)))


def missing_agent(git: Git, at: Registered, agent: AgentConfig, environ: Mapping[str, str]) -> str:
    """Why an agent's own program cannot be started; empty where it can, or where none is named."""
    if agent.kind not in STARTED_BY_NAME or not agent.command:
        return ""
    return _why_not(git, at, agent.command[0], environ)


def _commands(config: RepoConfig) -> Iterator[tuple[str, Argv, Mapping[str, str]]]:
    """The commands that are started in a checkout of the default branch's tree or outside of any."""
    yield "[ci] command", config.ci.command, config.ci.env
    image = config.image
    if image is not None:
        yield "[image] command", image.command, {}
    for section, place in (("staging", config.staging), ("production", config.production)):
        for key, argv in (("deploy", place.deploy), ("undo", place.undo)) if place else ():
            # With [image], a deploy runs in the artefact, which nobody has built yet.
            if place is not None and argv and (image is None or "/" not in argv[0] or argv[0][0] == "/"):
                yield f"[{section}] {key}", argv, place.env


def _why_not(git: Git, at: Registered, program: str, environ: Mapping[str, str]) -> str:
    if "/" not in program:
        return "" if find_program(program, environ) else "there is no such program on PATH"
    if program.startswith("/"):
        place = Path(program)
        if not place.is_file():
            return "there is no such file"
        return "" if os.access(place, os.X_OK) else "the file is not executable"
    return _why_not_in_tree(git, at, program)


def _why_not_in_tree(git: Git, at: Registered, program: str) -> str:
    branch, path = default_branch(at), posixpath.normpath(program)
    listed = git.run(["ls-tree", "-z", f"{HEADS}{branch}", "--", path], git_dir=at.location, check=False)
    mode = listed.stdout.decode("utf-8", "replace").partition(" ")[0]
    if not mode or mode == "040000":
        return f"there is no such file on {branch}, and a command sees nothing but what is committed"
    return "" if mode in _RUNNABLE else f"the file on {branch} is not executable"


def _hint(where: str, program: str, branch: str) -> str:
    if "/" not in program:
        return f"Install {program}, or name another one as {where} in .orchestrator.toml."
    if program.startswith("/"):
        return f"Put it there (`chmod +x {program}`), or name another one as {where} in .orchestrator.toml."
    path = posixpath.normpath(program)
    return f"`git add --chmod=+x {path}`, commit and push it to {branch}; or name another one as {where}."
