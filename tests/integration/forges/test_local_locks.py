"""Locks that a killed git leaves behind, and locks that are somebody's."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.errors import AuthorityUnreachable, GitError
from orchestrator.domain.ids import RepoName
from orchestrator.domain.task import Candidate
from orchestrator.forges.local import LocalForge
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Completed, SystemProcesses
from tests.fixtures_git import House


class KilledAfterPrepare(SystemProcesses):
    """Runs git for real, but SIGKILLs `update-ref` when it has everything locked and nothing moved."""

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        stdin = options.get("stdin") or b""
        if "update-ref" not in argv or b"prepare\n" not in stdin:
            return super().run(argv, **options)
        with subprocess.Popen(
            list(argv),
            cwd=options["cwd"],
            env=options["env"],
            pass_fds=tuple(options["pass_fds"]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(stdin[: stdin.index(b"prepare\n") + len(b"prepare\n")])
            child.stdin.flush()
            while child.stdout.readline() != b"prepare: ok\n":
                assert child.poll() is None
            self.prepared(child)
            child.kill()
            child.communicate()
            return Completed(tuple(argv), child.returncode, b"", b"")

    def prepared(self, child: "subprocess.Popen[bytes]") -> None:
        """Called while git holds its locks."""


def forge_with(house: House, processes: SystemProcesses, wait_s: float = 20.0) -> LocalForge:
    return LocalForge(
        Git(processes), house.forge.path, RepoName("sample"), "main",
        clock=SystemClock(), entropy=SystemEntropy(), lock_wait_s=wait_s,
    )  # fmt: skip


def locks(house: House) -> set[str]:
    return {path.relative_to(house.forge.path).as_posix() for path in house.forge.path.rglob("*.lock")} - {
        "orch.lock",
        "orch/pulls/.lock",
    }


def test_a_git_killed_between_prepare_and_commit_stops_nobody(house: House, candidate: Candidate) -> None:
    with pytest.raises(GitError):
        forge_with(house, KilledAfterPrepare()).merge(candidate, None)
    left = {"refs/heads/main.lock", "refs/orch/fence/1.lock", "refs/orch/installation.lock", "HEAD.lock"}
    assert locks(house) == left
    assert house.forge.landed([candidate]) is None
    house.forge.merge(candidate, None)
    assert house.main == candidate.sha
    assert locks(house) == set()
    assert list((house.forge.path / "orch/writers").iterdir()) == []


def test_the_one_who_takes_over_can_give_up_too(house: House, candidate: Candidate) -> None:
    with pytest.raises(GitError):
        forge_with(house, KilledAfterPrepare()).merge(candidate, None)
    house.forge.revoke_merge(candidate, "newer")
    assert house.forge.landed([candidate]) is None
    # main's lock is still there; the next one to move main removes it.
    other = house.candidate(house.clone.commit_files(house.main, {"b": b"1"}, "B"), task=2)
    house.forge.prepare_merge(other, house.clone.path, "other")
    house.forge.merge(other, None)
    assert house.main == other.sha
    assert locks(house) == set()


@pytest.mark.parametrize(
    "content", ["", "0123456789012345678901234567890123456789\n"], ids=["empty", "other-value"]
)
def test_a_strangers_lock_is_waited_for_and_never_removed(
    house: House, candidate: Candidate, content: str
) -> None:
    lock = house.forge.path / "refs/heads/main.lock"
    lock.write_text(content)
    with pytest.raises(AuthorityUnreachable, match="main.lock") as refused:
        forge_with(house, SystemProcesses(), wait_s=0.3).merge(candidate, None)
    assert "remove the .lock file" in str(refused.value)
    assert lock.read_text() == content
    assert house.main == candidate.base_sha
    lock.unlink()
    house.forge.merge(candidate, None)
    assert house.main == candidate.sha


def test_a_strangers_lock_after_our_own_writer_was_killed(house: House, candidate: Candidate) -> None:
    """Our note accounts for main, but what the lock holds is not what we would have written."""
    with pytest.raises(GitError):
        forge_with(house, KilledAfterPrepare()).merge(candidate, None)
    lock = house.forge.path / "refs/heads/main.lock"
    lock.write_text("1" * 40 + "\n")
    with pytest.raises(AuthorityUnreachable):
        forge_with(house, SystemProcesses(), wait_s=0.3).merge(candidate, None)
    assert lock.exists()


def test_a_note_about_another_reference_accounts_for_nothing(house: House, candidate: Candidate) -> None:
    """Our writer was killed over another task's fence; main's lock is a stranger's, though it is still empty."""
    other = house.candidate(house.clone.commit_files(house.main, {"b": b"1"}, "B"), task=2)
    with pytest.raises(GitError):
        forge_with(house, KilledAfterPrepare()).revoke_merge(other, "newer")
    lock = house.forge.path / "refs/heads/main.lock"
    lock.write_text("")
    with pytest.raises(AuthorityUnreachable):
        forge_with(house, SystemProcesses(), wait_s=0.3).merge(candidate, None)
    assert locks(house) == {"refs/heads/main.lock"}


CHILD = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from orchestrator.domain.ids import RepoName
from orchestrator.domain.task import Candidate
from tests.integration.forges.test_local_locks import KilledAfterPrepare
from orchestrator.forges.local import LocalForge
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git

class Frozen(KilledAfterPrepare):
    def prepared(self, child):
        os.kill(child.pid, signal.SIGSTOP)
        print(child.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

path, clock, entropy = Path({path!r}), SystemClock(), SystemEntropy()
forge = LocalForge(Git(Frozen()), path, RepoName("sample"), "main", clock=clock, entropy=entropy)
forge.merge({candidate!r}, None)
"""


def test_a_git_that_outlives_its_killed_orchestrator_keeps_its_locks(
    house: House, candidate: Candidate
) -> None:
    """While it lives nothing of its is removed; once it is gone, all of it is."""
    program = CHILD.format(
        tests=str(Path(__file__).parents[3]), path=str(house.forge.path), candidate=replace(candidate)
    )
    child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    frozen = int(child.stdout)
    try:
        before = locks(house)
        assert "refs/heads/main.lock" in before
        with pytest.raises(AuthorityUnreachable):
            forge_with(house, SystemProcesses(), wait_s=0.3).merge(candidate, None)
        assert locks(house) == before
    finally:
        os.kill(frozen, signal.SIGKILL)
    house.forge.merge(candidate, None)
    assert house.main == candidate.sha
    assert locks(house) == set()


def test_a_full_or_read_only_repository_is_unreachable(house: House, candidate: Candidate) -> None:
    """Stands for every refusal of the file system: the notes' folder is no folder."""
    writers = house.forge.path / "orch/writers"
    for note in writers.iterdir():
        note.unlink()
    writers.rmdir()
    writers.write_text("")
    with pytest.raises(AuthorityUnreachable, match="cannot be written"):
        house.forge.merge(candidate, None)
    assert house.main == candidate.base_sha
