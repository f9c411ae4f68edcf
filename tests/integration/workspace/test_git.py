"""Git as we run it: told nothing by the surroundings, telling no secrets."""

import os
from pathlib import Path

import pytest

from orchestrator.domain.errors import GitError
from orchestrator.runtime.git import MINIMUM_VERSION, Git, git_error, redact
from orchestrator.runtime.process import Completed, SystemProcesses
from tests.fixtures_git import Hand


def test_the_surroundings_are_not_heard(
    git: Git, person: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Home\n[core]\n\tbare = nonsense\n")
    for key, value in {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
        "GIT_DIR": "/nowhere",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "alias.x",
        "GIT_CONFIG_VALUE_0": "!touch x",
        "GIT_EXTERNAL_DIFF": "touch",
        "GIT_TRACE": "1",
        "LD_LIBRARY_PATH": "/somewhere",
        "ORCH_SECRET": "hunter2",
    }.items():
        monkeypatch.setenv(key, value)
    listed = git.text(["config", "--list", "--show-scope"], git_dir=person.folder / ".git")
    assert {line.split("\t")[0] for line in listed.splitlines()} == {"command", "local"}
    tree = git.text(["write-tree"], git_dir=person.folder / ".git")
    commit = git.text(["commit-tree", tree, "-m", "x"], git_dir=person.folder / ".git")
    shown = git.text(["cat-file", "commit", commit], git_dir=person.folder / ".git")
    assert "author orchestrator <orchestrator@localhost>" in shown
    assert shown.splitlines()[1].endswith("+0000")


def test_only_what_is_named_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_SECRET", "hunter2")
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nenv\n")
    program.chmod(0o755)
    said = (
        Git(SystemProcesses(), program=str(program))
        .run(["x"], cwd=tmp_path, env={"GIT_ASKPASS": "/a"})
        .stdout
    )
    names = {line.split(b"=")[0].decode() for line in said.splitlines()}
    assert "ORCH_SECRET" not in names
    assert "GIT_ASKPASS" in names
    assert {name for name in names if not name.startswith("GIT_")} <= {
        "PATH", "HOME", "XDG_CONFIG_HOME", "LC_ALL", "TZ", "PWD", "OLDPWD", "SHLVL", "_",
    }  # fmt: skip


def test_no_transport_unless_named(git: Git, person: Hand, tmp_path: Path) -> None:
    args = ["ls-remote", "--", str(person.folder)]
    with pytest.raises(GitError, match="transport 'file' not allowed"):
        git.run(args, cwd=tmp_path)
    assert b"refs/heads/main" in git.run(args, cwd=tmp_path, protocols=["file"]).stdout
    with pytest.raises(GitError, match="transport 'ext' not allowed"):
        git.run(["ls-remote", "--", f"ext::touch {tmp_path}/canary"], cwd=tmp_path, protocols=["file"])
    assert not (tmp_path / "canary").exists()


def test_a_failure_says_what_git_said_without_secrets(git: Git, tmp_path: Path) -> None:
    url = f"file://user:hunter2@{tmp_path}/nothing.git"
    with pytest.raises(GitError) as failed:
        git.run(["ls-remote", "--", url], cwd=tmp_path, protocols=["file"])
    assert "git ls-remote failed" in str(failed.value)
    assert failed.value.returncode == 128
    assert "hunter2" not in str(failed.value) + failed.value.stderr
    assert "fatal:" not in failed.value.message


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("https://user:pa55@host/x.git", "https://***@host/x.git"),
        ("fatal: 'https://pa55@host:3000/x' not found", "fatal: 'https://***@host:3000/x' not found"),
        ("Authorization: Basic cGE1NQ==", "Authorization: Basic ***"),
        ("> authorization: token pa55", "> authorization: token ***"),
        ("git@host:x.git and https://host/x@y", "git@host:x.git and https://host/x@y"),
    ],
    ids=range(5),
)
def test_redaction(text: str, clean: str) -> None:
    assert redact(text) == clean


def test_a_missing_git_or_folder_is_told(git: Git, tmp_path: Path) -> None:
    with pytest.raises(GitError, match="could not be started"):
        Git(SystemProcesses(), program=str(tmp_path / "no-git")).run(["--version"])
    with pytest.raises(GitError, match="could not be started"):
        git.run(["status"], cwd=tmp_path / "nothing")


def test_a_git_that_hangs_is_ended(tmp_path: Path) -> None:
    program = tmp_path / "git"
    program.write_text("#!/bin/sh\nread line < fifo\n")
    program.chmod(0o755)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(GitError, match=r"git x was ended after 0\.2 s"):
        Git(SystemProcesses(), program=str(program)).run(["x"], cwd=tmp_path, timeout=0.2)


def test_the_version_is_known(git: Git) -> None:
    assert git.version() >= MINIMUM_VERSION


def test_git_gives_no_advice_of_its_own_accord(git: Git, person: Hand) -> None:
    done = git.run(["rev-list", "HEAD"], git_dir=person.folder / ".git")
    assert done.stderr == b""


def test_grafts_of_the_repository_are_not_heard(git: Git, person: Hand) -> None:
    first, second = person.head(), person.commit("Second", {"a": "a\n"})
    info = person.folder / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "grafts").write_text(f"{second}\n")
    assert git.text(["rev-list", second], git_dir=person.folder / ".git").split() == [second, first]


def test_the_reason_of_a_failure_is_no_hint_and_no_warning(git: Git) -> None:
    said = (
        b"hint: Support for x is deprecated\nwarning: slow disk\n\nerror: cannot lock ref 'a'\nfatal: later\n"
    )
    error = git_error("git fetch", Completed((), 1, b"", said))
    assert error.message == "git fetch failed: cannot lock ref 'a'"
    assert error.stderr == said.decode().strip()
    assert git_error("git x", Completed((), 1, b"", b"warning: all there is\n")).message == (
        "git x failed: warning: all there is"
    )
