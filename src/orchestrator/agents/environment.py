"""What an agent may see of our environment: a list that names it (law 10). Everything else does not exist for
it.

Variables of ours (``ORCH_…``) are never passed on, whatever a configuration names: they hold the secrets of
forges, trackers and deploys. The markers of a run are made here, not inherited.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.agents.agent import AgentTask

COMMON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ")
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
OURS = "ORCH_"
SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|COOKIE", re.IGNORECASE)
GIT_SETTINGS = (
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("core.fsmonitor", "false"),
    ("commit.gpgsign", "false"),
)


def agent_environment(task: AgentTask, environ: Mapping[str, str]) -> dict[str, str]:
    """The part without secrets: the common list, private folders, the agent's git identity, the run's markers."""
    env = {name: environ[name] for name in COMMON if name in environ}
    env.setdefault("PATH", DEFAULT_PATH)
    home, tmp = task.run_dir / "home", task.run_dir / "tmp"
    env |= {
        "TERM": "dumb",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "TMPDIR": str(tmp),
        "GIT_AUTHOR_NAME": task.identity.name,
        "GIT_AUTHOR_EMAIL": task.identity.email,
        "GIT_COMMITTER_NAME": task.identity.name,
        "GIT_COMMITTER_EMAIL": task.identity.email,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "GIT_PAGER": "cat",
        "PAGER": "cat",
        "ORCH_BRIEF": str(task.brief_file),
        "ORCH_PROMPT": str(task.prompt_file),
        "ORCH_USAGE": str(task.run_dir / "usage.json"),
        "GIT_CONFIG_COUNT": str(len(GIT_SETTINGS)),
    }
    for index, (key, value) in enumerate(GIT_SETTINGS):
        env |= {f"GIT_CONFIG_KEY_{index}": key, f"GIT_CONFIG_VALUE_{index}": value}
    return env


def passed_on(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The named variables that are set, ours aside."""
    return {name: environ[name] for name in names if environ.get(name) and not name.startswith(OURS)}


def withheld(names: Iterable[str]) -> tuple[str, ...]:
    """Warnings for configured names that are never passed on."""
    return tuple(
        f"{name} is the orchestrator's own and was not passed to the agent; remove it from the agent's env list."
        for name in names
        if name.startswith(OURS)
    )


def secret_values(passed: Mapping[str, str]) -> dict[str, str]:
    """Those of the passed variables whose values must not show in a log, by their names."""
    return {name: value for name, value in passed.items() if SECRET_NAME.search(name)}


def find_program(name: str, environ: Mapping[str, str]) -> str | None:
    """Where a program lies on PATH."""
    for folder in environ.get("PATH", DEFAULT_PATH).split(os.pathsep):
        place = Path(folder or ".") / name
        if place.is_file() and os.access(place, os.X_OK):
            return str(place)
    return None
