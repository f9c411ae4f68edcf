"""A forge without the configuration that its tickets need, and what brings it there from a checkout."""

from pathlib import Path

from orchestrator.cli.checkout import (
    CONFIG_FILE,
    HEADS,
    REMOTE,
    Checkout,
    Registered,
    default_branch,
    find_registered,
    look_at,
    rev,
)
from orchestrator.domain.errors import ConfigError, OutsideError
from orchestrator.runtime.git import Git


def has_config(git: Git, at: Registered) -> bool:
    """Whether the forge's default branch has a configuration.

    :raises OutsideError: the forge is gone.
    """
    name = f"{HEADS}{default_branch(at)}:{CONFIG_FILE}"
    return git.run(["cat-file", "-e", name], git_dir=at.location, check=False).returncode == 0


def lacks_config(git: Git, at: Registered, folder: Path) -> str:
    """What brings a configuration to a forge that has none; ``folder`` is where the person stands."""
    push = f"`git push {REMOTE} {default_branch(at)}`"
    committed = lacks_commit(git, at, folder)
    if committed:
        return committed
    try:
        here: Checkout | None = look_at(git, folder)
    except ConfigError:
        here = None
    if here is None or find_registered(git, here, [at]) is None or not (here.top / CONFIG_FILE).is_file():
        return f"In its checkout: `orch init` writes one. Read it, commit it, then {push}."
    return f"It lies in {here.top} and is not committed: `git add {CONFIG_FILE} && git commit`, then {push}."


def lacks_commit(git: Git, at: Registered, folder: Path) -> str:
    """What brings the configuration to the forge where it is committed in the checkout around ``folder`` alone; else
    an empty text."""
    try:
        here, branch = look_at(git, folder), default_branch(at)
    except (ConfigError, OutsideError):
        return ""
    tip = rev(git, here.top, HEADS + branch)
    if find_registered(git, here, [at]) is None or tip == rev(git, at.location, HEADS + branch, bare=True):
        return ""
    found = git.run(["cat-file", "-e", f"{HEADS}{branch}:{CONFIG_FILE}"], cwd=here.top, check=False)
    if found.returncode != 0:
        return ""
    return f"It is committed in {here.top} and not yet in the forge: `git push {REMOTE} {branch}`."
