"""A local forge is made of a person's repository, which is only read."""

import os
from pathlib import Path

import pytest

from orchestrator.domain.errors import ConfigError, GitError
from orchestrator.domain.ids import RepoName
from orchestrator.forges.local import LocalForge
from orchestrator.forges.local_create import create_local_forge
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from tests.fixtures_git import Hand, person_at


def create(git: Git, path: Path, source: Path | None, branch: str | None = None) -> LocalForge:
    return create_local_forge(
        git, path, RepoName("sample"), source=source, default_branch=branch,
        clock=SystemClock(), entropy=SystemEntropy(),
    )  # fmt: skip


def state_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its content and time stamp."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_default_branch_and_tags_come_over_and_the_checkout_is_not_touched(
    git: Git, person: Hand, tmp_path: Path
) -> None:
    person.git("tag", "v1")
    person.git("tag", "-a", "v2", "-m", "two")
    person.git("branch", "secret-work")
    person.write("README.md", "dirty\n")
    person.write("untracked", "x")
    before = state_of(person.folder)
    forge = create(git, tmp_path / "forge.git", person.folder)
    assert state_of(person.folder) == before
    assert forge.default_branch == "main"
    assert forge.tip("main") == person.head()
    assert forge.tip("secret-work") is None
    assert git.text(["tag"], git_dir=forge.path).split() == ["v1", "v2"]
    assert git.text(["symbolic-ref", "HEAD"], git_dir=forge.path) == "refs/heads/main"
    git.run(["fsck", "--strict"], git_dir=forge.path)
    assert not (forge.path / "objects/info/alternates").exists()
    clone = tmp_path / "theirs"
    person.git("clone", "-q", str(forge.path), str(clone))
    assert Hand(clone).head() == person.head()


def test_making_it_again_opens_it(git: Git, person: Hand, tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "forge.git"
    first = create(git, path, person.folder)
    person.commit("Later", {"x": "1"})
    second = create(git, path, person.folder)
    assert second.tip("main") == first.tip("main") != person.head()
    assert second.default_branch == "main"
    assert [entry.name for entry in path.parent.iterdir()] == ["forge.git"]


def test_another_branch_may_be_named(git: Git, person: Hand, tmp_path: Path) -> None:
    main = person.head()
    person.git("checkout", "-q", "-b", "feature/x")
    person.commit("Later", {"x": "1"})
    assert create(git, tmp_path / "one.git", person.folder, "main").tip("main") == main
    assert create(git, tmp_path / "two.git", person.folder).default_branch == "feature/x"


def test_a_worktree_a_bare_repository_and_one_that_borrows_objects(
    git: Git, person: Hand, tmp_path: Path
) -> None:
    person.git("worktree", "add", "-q", "-b", "linked", str(tmp_path / "linked"))
    assert create(git, tmp_path / "1.git", tmp_path / "linked").default_branch == "linked"
    person.git("clone", "-q", "--bare", str(person.folder), str(tmp_path / "bare"))
    assert create(git, tmp_path / "2.git", tmp_path / "bare").tip("main") == person.head()
    person.git("clone", "-q", "--shared", str(person.folder), str(tmp_path / "sha:red"))
    assert create(git, tmp_path / "3.git", tmp_path / "sha:red").tip("main") == person.head()
    git.run(["fsck"], git_dir=tmp_path / "3.git")


def test_an_empty_forge(git: Git, tmp_path: Path) -> None:
    assert create(git, tmp_path / "forge.git", None).tip("main") is None


def test_what_is_no_repository_is_refused(git: Git, person: Hand, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for source in (tmp_path / "plain", tmp_path / "none", person.folder / "src", person.folder / "README.md"):
        with pytest.raises(ConfigError, match="is no"):
            create(git, tmp_path / "forge.git", source)
    assert not (tmp_path / "forge.git").exists()


def test_a_branch_without_a_commit_is_refused(git: Git, person: Hand, tmp_path: Path) -> None:
    (tmp_path / "unborn").mkdir()
    Hand(tmp_path / "unborn").git("init", "-q", "-b", "main")
    with pytest.raises(ConfigError, match="no commit yet"):
        create(git, tmp_path / "forge.git", tmp_path / "unborn")
    with pytest.raises(ConfigError, match="The branch mian of"):
        create(git, tmp_path / "forge.git", person.folder, "mian")
    person.git("checkout", "-q", "--detach")
    with pytest.raises(ConfigError, match="no branch checked out"):
        create(git, tmp_path / "forge.git", person.folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["person", "unborn"]


def test_half_a_history_is_refused(git: Git, person: Hand, tmp_path: Path) -> None:
    person.commit("Two", {"x": "1"})
    person.git("clone", "-q", "--depth=1", person.folder.as_uri(), str(tmp_path / "shallow"))
    with pytest.raises(ConfigError, match="part of its history"):
        create(git, tmp_path / "forge.git", tmp_path / "shallow")
    blob = person.git("rev-parse", "HEAD:x")
    (person.folder / ".git/objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(GitError):
        create(git, tmp_path / "forge.git", person.folder)
    assert not (tmp_path / "forge.git").exists()


def test_something_in_the_way_is_not_overwritten(git: Git, person: Hand, tmp_path: Path) -> None:
    (tmp_path / "forge.git").mkdir()
    (tmp_path / "forge.git/precious").write_text("x")
    with pytest.raises(ConfigError, match="in the way"):
        create(git, tmp_path / "forge.git", person.folder)
    assert (tmp_path / "forge.git/precious").exists()


def test_hooks_and_settings_of_the_person_do_not_run(git: Git, tmp_path: Path) -> None:
    person = person_at(tmp_path / "person", {"a": "1"})
    canary, script = tmp_path / "canary", tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch '{canary}'\n")
    script.chmod(0o755)
    for key in (
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "uploadpack.packObjectsHook",
        "core.alternateRefsCommand",
    ):
        person.git("config", key, str(script))
    person.git("config", "alias.rev-parse", f"!{script}")
    (person.folder / ".git/hooks").mkdir(exist_ok=True)
    os.symlink(script, person.folder / ".git/hooks/reference-transaction")
    canary.unlink(missing_ok=True)
    assert create(git, tmp_path / "forge.git", person.folder).tip("main") == person.git(
        "rev-parse", "--verify", "main"
    )
    assert not canary.exists()
