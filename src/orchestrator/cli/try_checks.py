"""The checks of a repository, run once before any ticket depends on them (``orch init --check``).

Must hold: they run as a ticket's checks do, in a clean checkout of one commit and with nothing secret of ours in their
environment; the person's checkout is not touched. What they did is a value; nothing here decides about a ticket.
"""

import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.check_runner import MARKER
from orchestrator.cli.checkout import Checkout
from orchestrator.domain.ids import Sha
from orchestrator.places import Folders
from orchestrator.repo_config.records import CiConfig
from orchestrator.runtime.files import read_tail
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Completed, Processes
from orchestrator.runtime.sweep import sweep
from orchestrator.workspace.checkout import checked_out

TAIL_BYTES = 2_000

_TESTED_NOTHING = re.compile(
    r"\bran 0 tests\b|\bno tests ran\b|\bcollected 0 items\b|\bno tests found\b", re.I
)


@dataclass(frozen=True, slots=True)
class Tried:
    """``said`` is a sentence for people; ``tail`` is the end of the output where there is something to warn of."""

    passed: bool
    said: str
    tail: str = ""


def try_checks(
    git: Git, processes: Processes, checkout: Checkout, ci: CiConfig, environ: Mapping[str, str]
) -> Tried:
    """Run the checks on the checkout's last commit.

    :raises GitError: the commit cannot be checked out.
    :raises OSError: there is no room for it.
    """
    sha = Sha(checkout.tip)
    own = git.text(["rev-parse", "--absolute-git-dir"], cwd=checkout.top)
    with tempfile.TemporaryDirectory(prefix="orch-check-") as folder:
        env = {**Folders(Path(folder)).environ(environ), **ci.env, "CI": "true", "ORCH_SHA": sha}
        mark = Path(folder).name
        env[MARKER] = mark
        log = Path(folder) / "log"
        with checked_out(git, Path(own), sha, Path(folder) / "checkout") as place, log.open("wb") as sink:
            try:
                ended = processes.run(ci.command, cwd=place, env=env, timeout=ci.timeout_s, output=sink)
            except OSError as error:
                return Tried(False, f"Warning: the checks cannot start: {ci.command[0]}: {error.strerror}.")
            finally:
                sweep(f"{MARKER}={mark}")
        return judge(ended, read_tail(log, TAIL_BYTES).decode("utf-8", "replace"), ci.timeout_s)


def judge(ended: Completed, tail: str, timeout_s: float) -> Tried:
    """What an end of the checks means."""
    if ended.timed_out:
        return Tried(False, f"Warning: the checks did not end within {timeout_s:g} s.", tail)
    if _TESTED_NOTHING.search(tail):
        return Tried(False, "Warning: the checks found no tests to run. Correct [ci] command.", tail)
    if ended.returncode != 0:
        return Tried(
            False,
            f"Warning: the checks ended with exit code {ended.returncode}; every ticket would fail them.",
            tail,
        )
    return Tried(True, "The checks pass on the last commit.")
