"""Makes the demo's sample service a git repository with one commit.

The files lie beside this module as they are committed; only the configuration has places to fill in, for it names
this machine's Python, two free ports and the folders of the demo.
"""

import json
import shutil
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.ids import Sha
from orchestrator.runtime.git import Git

DATA = Path(__file__).parent
SAMPLE = DATA / "sample"
SCRIPT = DATA / "agent.yaml"
RENAMED = {"orchestrator.toml": ".orchestrator.toml", "gitignore": ".gitignore"}
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Environment:
    """One place that the sample is deployed to: a port, and a folder for the deploy command's own records."""

    name: str
    port: int
    state: Path

    @property
    def url(self) -> str:
        """Where the service says which commit it runs."""
        return f"http://{LOOPBACK}:{self.port}/version"


@dataclass(frozen=True, slots=True)
class Sample:
    """The repository and where its service goes."""

    repository: Path
    first_commit: Sha
    staging: Environment
    production: Environment


def write_sample(home: Path, git: Git, *, python: str, agent: str, more: str = "") -> Sample:
    """Write and commit the sample below ``home``. ``agent`` is the configuration's table of that name, ``more`` what it
    says beside that.

    :raises GitError: git failed.
    :raises OSError: the folder cannot be written.
    """
    repository = home / "greeter"
    shutil.copytree(SAMPLE, repository, ignore=shutil.ignore_patterns("__pycache__"))
    for packaged, name in RENAMED.items():
        (repository / packaged).rename(repository / name)
    ports = free_ports(2)
    staging = Environment("staging", ports[0], home / "staging")
    production = Environment("production", ports[1], home / "production")
    fill_in(repository / ".orchestrator.toml", {**_places(staging, production), "PYTHON": _quoted(python)})
    fill_in(repository / ".orchestrator.toml", {"AGENT": agent + "\n" + more})
    git.run(["init", "-q", "--initial-branch=main", "--template=", "--", str(repository)], cwd=home)
    git.run(["add", "--all", "--", "."], cwd=repository)
    git.run(["commit", "-q", "-m", "Serve the version, with tests, a build and a deploy"], cwd=repository)
    return Sample(repository, Sha(git.text(["rev-parse", "HEAD"], cwd=repository)), staging, production)


def write_script(home: Path, *, python: str) -> Path:
    """The scripted agent's script, ready to be played on this machine.

    :raises OSError: the folder cannot be written.
    """
    place = home / SCRIPT.name
    place.write_text(SCRIPT.read_text(encoding="utf-8"), encoding="utf-8")
    fill_in(place, {"PYTHON": _quoted(python)})
    return place


def fill_in(place: Path, words: dict[str, str]) -> None:
    """Replace each ``@NAME@`` in a file."""
    text = place.read_text(encoding="utf-8")
    for name, word in words.items():
        text = text.replace(f"@{name}@", word)
    place.write_text(text, encoding="utf-8")


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on. They stay free only for as long as nobody else takes them."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in held]


def _places(*environments: Environment) -> dict[str, str]:
    words = {}
    for environment in environments:
        name = environment.name.upper()
        words[f"{name}_PORT"] = _quoted(str(environment.port))
        words[f"{name}_STATE"] = _quoted(str(environment.state))
        words[f"{name}_URL"] = _quoted(environment.url)
    return words


def _quoted(text: str) -> str:
    """A basic string of TOML, and a double-quoted one of YAML."""
    return json.dumps(text)
