"""A workspace is set back in place: what differs is mended, what does not is left alone, nothing is lost."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.workspace import workspace_folder
from tests.fixtures_git import Hand, House, porcelain

ITEM = WorkItem("ORCH-1")
BRANCH = "orch/ORCH-1-change-it"


@pytest.fixture
def head(house: House) -> Sha:
    """A head with the kinds of entry there are."""
    house.person.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    house.person.write("src/deep/down/file.txt", "deep\n")
    (house.person.folder / "link").symlink_to("src/app.py")
    (house.person.folder / "up").symlink_to("src")
    sha = house.outsider_pushes({})
    house.clone.fetch()
    return sha


@pytest.fixture
def agent(house: House, head: Sha) -> Hand:
    return Hand(house.workspaces.prepare(ITEM, "Change it", BRANCH, head))


def inventory(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every entry but ``.git``: its rights, and its content or target."""
    found = dict[str, tuple[int, bytes]]()
    for top, folders, files in os.walk(folder):
        if ".git" in folders and Path(top) == folder:
            folders.remove(".git")
        for name in (*folders, *files):
            path = Path(top, name)
            mode = path.lstat().st_mode
            if stat.S_ISDIR(mode):
                mode &= ~0o055  # who else may look into a folder is no matter
            content = (
                os.fsencode(os.readlink(path))
                if stat.S_ISLNK(mode)
                else path.read_bytes()
                if stat.S_ISREG(mode)
                else b""
            )
            found[str(path.relative_to(folder))] = (mode, content)
    return found


def replaced_by_folder(agent: Hand) -> None:
    (agent.folder / "README.md").unlink()
    agent.write("README.md/inside/x", "x")


def replaced_by_file(agent: Hand) -> None:
    (agent.folder / "src/deep/down/file.txt").unlink()
    (agent.folder / "src/deep/down").rmdir()
    agent.write("src/deep/down", "a file")


def folder_replaced_by_link(agent: Hand) -> None:
    outside = agent.folder.parent.parent / "outside"
    (agent.folder / "src").rename(outside)
    (agent.folder / "src").symlink_to(outside)


def link_replaced_by_folder(agent: Hand) -> None:
    (agent.folder / "up").unlink()
    agent.write("up/app.py", "print('one')\n")


def link_turned(agent: Hand) -> None:
    (agent.folder / "link").unlink()
    (agent.folder / "link").symlink_to("/etc/passwd")


def permissions(agent: Hand) -> None:
    (agent.folder / "run.sh").chmod(0o644)
    (agent.folder / "README.md").chmod(0o755)
    (agent.folder / "src/app.py").chmod(0o6777)
    (agent.folder / "src/util.py").chmod(0o000)
    (agent.folder / "src/deep").chmod(0o000)


def shared_with_the_outside(agent: Hand) -> None:
    os.link(agent.folder / "src/util.py", agent.folder.parent.parent / "second-name")


def edited_with_old_time(agent: Hand) -> None:
    path = agent.folder / "src/util.py"
    before = path.stat()
    path.write_text("x = 2\n")  # as long as before
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def ignored_and_odd(agent: Hand) -> None:
    agent.write("debug.log", "ignored")
    agent.write("src/__pycache__/app.pyc", "ignored")
    (agent.folder / "empty/empty").mkdir(parents=True)
    os.mkfifo(agent.folder / "src/pipe")
    agent.write("name\nwith \xff", "odd")


def nested_repository(agent: Hand) -> None:
    inner = Hand(agent.folder / "src/inner")
    inner.folder.mkdir()
    inner.git("init", "-q")
    inner.git("config", "user.name", "x")
    inner.git("config", "user.email", "x@example.org")
    inner.commit("Inner", {"x": "x"})


def lying_index(agent: Hand) -> None:
    agent.write("src/util.py", "x = 3\n")
    agent.git("update-index", "--assume-unchanged", "src/util.py")
    agent.git("rm", "-q", "--cached", "README.md")


def committed(agent: Hand) -> None:
    agent.commit("Mine", {"src/app.py": "mine\n", "new.txt": "new\n"})


DEEDS: list[Callable[[Hand], None]] = [
    replaced_by_folder, replaced_by_file, folder_replaced_by_link, link_replaced_by_folder, link_turned, permissions,
    shared_with_the_outside, edited_with_old_time, ignored_and_odd, nested_repository, lying_index, committed,
]  # fmt: skip


@pytest.mark.parametrize("deed", DEEDS, ids=[deed.__name__ for deed in DEEDS])
def test_afterwards_it_is_as_if_made_anew(
    house: House, agent: Hand, head: Sha, deed: Callable[[Hand], None]
) -> None:
    fresh = inventory(agent.folder)
    deed(agent)
    house.workspaces.reset_to(ITEM, head)
    assert inventory(agent.folder) == fresh
    assert porcelain(agent.folder) == []
    assert agent.head() == head
    assert agent.git("branch", "--show-current") == BRANCH
    assert (agent.folder / "src/util.py").stat().st_nlink == 1


def test_what_is_as_it_should_be_is_not_written_again(house: House, agent: Hand, head: Sha) -> None:
    kept = {path: (agent.folder / path).lstat().st_ino for path in inventory(agent.folder)}
    agent.write("docs/verdict.md", "fine\n")
    agent.write("README.md", "changed\n")
    stray = house.workspaces.reset_to(ITEM, head)
    assert [house.clone.read(one.sha, "docs/verdict.md", 10) for one in stray] == [b"fine\n"]
    assert not (agent.folder / "docs").exists()
    assert (agent.folder / "README.md").read_text() == "Sample\n"
    now = {path: (agent.folder / path).lstat().st_ino for path in inventory(agent.folder)}
    assert {path for path in kept if now[path] != kept[path]} <= {"README.md"}


def test_to_another_commit(house: House, agent: Hand, head: Sha) -> None:
    other = house.clone.commit_files(
        head, {"src/app.py": b"other\n", "a/b": b"1\n", "README.md": None}, "other\n"
    )
    house.workspaces.reset_to(ITEM, other)
    assert (agent.folder / "a/b").read_text() == "1\n"
    assert not (agent.folder / "README.md").exists()
    assert agent.head() == other
    assert porcelain(agent.folder) == []


def test_what_is_outside_is_left_alone(house: House, agent: Hand, head: Sha) -> None:
    shared_with_the_outside(agent)
    folder_replaced_by_link(agent)
    outside = house.root / "state/repos/sample/outside"
    (outside / "precious").write_text("x")
    house.workspaces.reset_to(ITEM, head)
    assert (outside / "precious").read_text() == "x"
    assert (outside / "app.py").read_text() == "print('one')\n"
    assert (outside.parent / "second-name").read_text() == "x = 1\n"


def test_hooks_and_configuration_are_gone(house: House, agent: Hand, head: Sha) -> None:
    agent.write(".git/hooks/post-checkout", "#!/bin/sh\n").chmod(0o755)
    agent.git("config", "alias.x", "!false")
    house.workspaces.reset_to(ITEM, head)
    assert not (agent.folder / ".git/hooks").exists()
    assert agent.git("config", "alias.x", check=False) == ""


def test_cut_off_in_the_middle_it_is_done_again(
    house: House, agent: Hand, head: Sha, monkeypatch: pytest.MonkeyPatch
) -> None:
    class CutOff(BaseException):
        pass

    def cut(*_: object) -> None:
        raise CutOff

    fresh = inventory(agent.folder)
    agent.commit("Mine", {"src/app.py": "mine\n", "new.txt": "new\n"})
    mine = agent.head()
    agent.write("loose.txt", "loose\n")
    with monkeypatch.context() as patch:
        patch.setattr(workspace_folder.WorkspaceFolder, "install_git", cut)
        with pytest.raises(CutOff):
            house.workspaces.reset_to(ITEM, head)
    house.workspaces.reset_to(ITEM, head)
    assert inventory(agent.folder) == fresh
    kept = set(house.clone.rescued(ITEM).values())
    assert mine in kept
    assert b"loose\n" in {house.clone.read(sha, "loose.txt", 10) for sha in kept}


def test_a_repository_with_a_submodule(house: House, agent: Hand, head: Sha) -> None:
    inner = Hand(agent.folder / "inner")
    inner.folder.mkdir()
    inner.git("init", "-q")
    inner.git("config", "user.name", "x")
    inner.git("config", "user.email", "x@example.org")
    inner.commit("Inner", {"x": "x"})
    agent.git("add", "inner")
    agent.git("commit", "-q", "-m", "Submodule")
    with_submodule = agent.head()
    house.workspaces.reset_to(ITEM, with_submodule)
    assert list((agent.folder / "inner").iterdir()) == []
    assert agent.head() == with_submodule
    agent.write("inner/x", "x")
    house.workspaces.reset_to(ITEM, with_submodule)
    assert list((agent.folder / "inner").iterdir()) == []
