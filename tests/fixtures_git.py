"""Real repositories for tests: a person's checkout, the local forge made of it, our clone, an agent's hand."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.domain.ids import RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.task import Candidate, Landed
from orchestrator.forges.local import LocalForge
from orchestrator.forges.local_create import create_local_forge
from orchestrator.rules.trailers import candidate_message
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import SystemProcesses
from orchestrator.workspace.candidate import CandidateBuilt, build_candidate
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.worktree import Workspaces

BRANCH = "orch/ORCH-1-change-it"


@dataclass(frozen=True)
class Hand:
    """Somebody who works in a repository with plain git, as a person or an agent would."""

    folder: Path

    def git(self, *args: str, check: bool = True) -> str:
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *args], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert not check or done.returncode == 0, f"git {args}: {done.stderr}"
        return done.stdout.strip()

    def write(self, path: str, text: str) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def commit(self, message: str, files: dict[str, str] | None = None) -> Sha:
        for path, text in (files or {}).items():
            self.write(path, text)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.head()

    def head(self) -> Sha:
        return Sha(self.git("rev-parse", "HEAD"))


@dataclass(frozen=True)
class House:
    """Everything that one repository needs, below one folder."""

    root: Path
    person: Hand
    git: Git
    forge: LocalForge
    clone: Clone
    workspaces: Workspaces

    @property
    def main(self) -> Sha:
        tip = self.forge.tip("main")
        assert tip is not None
        return tip

    def push(self, branch: str, head: Sha) -> None:
        """Deliver a commit of the clone as a branch of the forge."""
        self.forge.push(self.clone.path, head, branch, self.forge.tip(branch))

    def candidate(self, head: Sha, *, task: int = 1, sequence: int = 1, main: Sha | None = None) -> Candidate:
        """M for a head, built and ready to be prepared."""
        base = main or self.main
        nonce = f"nonce-{task}-{sequence}"
        message = candidate_message(WorkItem(f"ORCH-{task}"), "Change it", nonce, "installation", sequence)
        built = build_candidate(self.clone, main=base, head=head, message=message)
        assert isinstance(built, CandidateBuilt)
        return Candidate(
            TaskId(task),
            sequence,
            built.sha,
            built.tree,
            base,
            head,
            nonce,
            sequence,
            f"fence-{task}-{sequence}",
        )

    def outsider_pushes(self, files: dict[str, str], message: str = "By somebody else") -> Sha:
        """A person pushes to main past the orchestrator."""
        self.person.git("pull", "-q", "--ff-only", str(self.forge.path), "main")
        sha = self.person.commit(message, files)
        self.person.git("push", "-q", str(self.forge.path), "HEAD:main")
        return sha


def as_it_is(candidate: Candidate) -> Landed:
    """A candidate on main as the commit that it is."""
    return Landed(candidate, candidate.sha, candidate.tree)


def person_at(folder: Path, files: dict[str, str]) -> Hand:
    """A person's repository with one commit on main."""
    folder.mkdir(parents=True)
    hand = Hand(folder)
    hand.git("init", "-q", "-b", "main")
    hand.git("config", "user.name", "Person")
    hand.git("config", "user.email", "person@example.org")
    hand.commit("First", files)
    return hand


def house_at(root: Path, person: Hand, git: Git) -> House:
    clock, entropy = SystemClock(), SystemEntropy()
    forge = create_local_forge(
        git, root / "forge.git", RepoName("sample"), source=person.folder, clock=clock, entropy=entropy
    )
    repos = root / "state" / "repos" / "sample"
    clone = Clone(git, repos / "clone.git", forge.fetch_url(), "main", clock=clock, entropy=entropy)
    clone.open_or_create().fetch()
    return House(root, person, git, forge, clone, Workspaces(clone, repos, clock))


def porcelain(folder: Path) -> Sequence[str]:
    """What git itself calls changed in a checkout."""
    return Hand(folder).git("status", "--porcelain").splitlines()


@pytest.fixture
def git() -> Git:
    return Git(SystemProcesses())


@pytest.fixture
def person(tmp_path: Path) -> Hand:
    return person_at(
        tmp_path / "person",
        {
            "README.md": "Sample\n",
            "src/app.py": "print('one')\n",
            "src/util.py": "x = 1\n",
            ".gitignore": "*.log\n",
        },
    )


@pytest.fixture
def house(tmp_path: Path, person: Hand, git: Git) -> House:
    return house_at(tmp_path, person, git)
