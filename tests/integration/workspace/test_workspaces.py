"""Workspaces are made, adopted, reset and removed, and nothing in them is lost."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.rules.names import branch_name
from orchestrator.runtime.files import UnreadableFile
from orchestrator.workspace.folders import remove_tree
from tests.fixtures_git import Hand, House, porcelain
from tests.waiting import wait_until

ITEM = WorkItem("ORCH-1")
BRANCH = "orch/ORCH-1-change-it"


def prepare(house: House, start: Sha | None = None) -> Hand:
    return Hand(house.workspaces.prepare(ITEM, "Change it", BRANCH, start or house.main))


def rescued_files(house: House) -> dict[str, bytes | None]:
    """Path → content over everything that was rescued."""
    return {
        entry.path: house.clone.read(sha, entry.path, 1000)
        for sha in house.clone.rescued(ITEM).values()
        for entry in house.clone.list_files(sha)
        if entry.mode.startswith("100")
    }


def test_an_agent_finds_an_ordinary_repository(house: House) -> None:
    agent = prepare(house)
    assert agent.folder.name == "ORCH-1-change-it"
    assert agent.head() == house.main
    assert agent.git("branch", "--show-current") == BRANCH
    assert agent.git("rev-parse", "origin/main") == house.main
    assert porcelain(agent.folder) == []
    agent.commit("Mine", {"new.txt": "1\n"})
    assert agent.git("log", "-1", "--format=%an <%ae>") == "orchestrator agent <agent@localhost>"
    assert agent.git("rev-list", "--count", "HEAD") == "2"
    agent.git("fsck", "--strict")


def test_the_agents_git_has_no_way_to_write_into_the_clone(house: House) -> None:
    agent = prepare(house)
    before = {path: path.read_bytes() for path in house.clone.path.rglob("*") if path.is_file()}
    agent.commit("Mine", {"new.txt": "1\n"})
    agent.git("config", "core.fsmonitor", "touch x")
    agent.git("gc", "-q", "--prune=now")
    agent.git("update-ref", "refs/heads/main", "HEAD")
    assert agent.git("remote") == ""
    assert before == {path: path.read_bytes() for path in house.clone.path.rglob("*") if path.is_file()}


def test_preparing_again_keeps_ignored_files_and_replaces_git(house: House) -> None:
    agent = prepare(house)
    agent.write("cache.log", "kept")
    agent.git("config", "alias.status", "!touch planted")
    agent.write(".git/hooks/pre-commit", "#!/bin/sh\ntouch planted\n").chmod(0o755)
    agent.write(".git/index.lock", "")
    again = prepare(house)
    assert again.folder == agent.folder
    assert (agent.folder / "cache.log").read_text() == "kept"
    assert not (agent.folder / ".git/hooks").exists()
    assert agent.git("config", "--get", "alias.status", check=False) == ""
    agent.commit("Works", {"x": "1"})
    assert house.clone.rescued(ITEM) == {}


def test_a_clean_workspace_moves_on_to_a_later_head_in_place(house: House) -> None:
    agent = prepare(house)
    agent.write("cache.log", "kept")
    later = house.clone.commit_files(house.main, {"src/app.py": b"two\n", "README.md": None}, "Later")
    prepare(house, later)
    assert agent.head() == later
    assert porcelain(agent.folder) == []
    assert (agent.folder / "src/app.py").read_text() == "two\n"
    assert not (agent.folder / "README.md").exists()
    assert (agent.folder / "cache.log").read_text() == "kept"


def test_an_ignored_file_in_the_way_of_a_new_one(house: House) -> None:
    agent = prepare(house)
    agent.write("a.log", "ignored")
    later = house.clone.commit_files(house.main, {"a.log": b"tracked\n"}, "Later")
    prepare(house, later)
    assert (agent.folder / "a.log").read_text() == "tracked\n"
    assert porcelain(agent.folder) == []


def test_a_title_that_was_edited_changes_no_place(house: House) -> None:
    first = house.workspaces.prepare(ITEM, "Change it", BRANCH, house.main)
    assert house.workspaces.prepare(ITEM, "Another title", BRANCH, house.main) == first
    assert house.workspaces.path(ITEM) == first


@pytest.mark.parametrize("title", ["../../x", "", "-rf", "/etc", "🐛", "a\0b", "x" * 5000], ids=range(7))
def test_no_title_leads_out(house: House, title: str) -> None:
    folder = house.workspaces.prepare(ITEM, title, branch_name(ITEM, title), house.main)
    assert folder.parent == house.clone.path.parent / "worktrees"
    assert Hand(folder).git("branch", "--show-current") == branch_name(ITEM, title)


def test_work_in_the_way_is_rescued_before_preparing_anew(house: House) -> None:
    agent = prepare(house)
    lost = agent.commit("Never harvested", {"a.txt": "committed\n"})
    agent.write("b.txt", "untracked\n")
    prepare(house)
    assert agent.head() == house.main
    assert porcelain(agent.folder) == []
    assert not (agent.folder / "b.txt").exists()
    assert lost in house.clone.rescued(ITEM).values()
    assert rescued_files(house)["b.txt"] == b"untracked\n"


def test_reset_goes_back_and_tells_what_it_kept(house: House) -> None:
    agent = prepare(house)
    ahead = agent.commit("Ahead", {"a.txt": "1\n"})
    agent.write("src/app.py", "changed\n")
    agent.write("cache.log", "ignored")
    stray = house.workspaces.reset_to(ITEM, house.main)
    assert agent.head() == house.main
    assert porcelain(agent.folder) == []
    assert not (agent.folder / "cache.log").exists()
    assert ahead in {one.sha for one in stray}
    assert all(one.ref.startswith("refs/orch/rescue/ORCH-1/") for one in stray)
    assert rescued_files(house)["src/app.py"] == b"changed\n"


def test_nothing_is_lost_by_removing(house: House) -> None:
    """Commits on every branch, the stash, what is staged, changed and untracked: all reachable afterwards."""
    agent = prepare(house)
    on_branch = agent.commit("On the branch", {"one.txt": "1\n"})
    agent.write("README.md", "stashed\n")
    agent.git("stash")
    agent.git("checkout", "-q", "-b", "side")
    on_side = agent.commit("On the side", {"two.txt": "2\n"})
    agent.git("checkout", "-q", "--detach")
    detached = agent.commit("Detached", {"three.txt": "3\n"})
    agent.write("src/util.py", "staged\n")
    agent.git("add", "-A")
    agent.write("src/util.py", "and changed after that\n")
    agent.write("untracked dir/new\nline.txt", "untracked\n")
    (agent.folder / "link").symlink_to("/etc/passwd")
    (agent.folder / "src").chmod(0o500)
    removed = house.workspaces.remove(ITEM)
    assert removed.kept is None
    assert not agent.folder.exists()
    assert house.workspaces.path(ITEM) is None
    assert {on_branch, on_side, detached} <= reachable(house)
    blobs = all_blobs(house)
    assert {b"stashed\n", b"staged\n", b"and changed after that\n", b"untracked\n", b"/etc/passwd"} <= blobs
    assert house.workspaces.remove(ITEM).stray == ()


def test_what_is_only_staged_is_not_lost(house: House) -> None:
    agent = prepare(house)
    agent.write("src/app.py", "only staged\n")
    agent.git("add", "-A")
    agent.write("src/app.py", "print('one')\n")
    prepare(house)
    assert b"only staged\n" in all_blobs(house)
    agent.write("src/app.py", "staged again\n")
    agent.git("add", "-A")
    agent.write("src/app.py", "print('one')\n")
    house.workspaces.remove(ITEM)
    assert b"staged again\n" in all_blobs(house)


def test_a_nested_repository_is_saved_with_its_history(house: House) -> None:
    agent = prepare(house)
    inner = Hand(agent.folder / "vendored")
    inner.folder.mkdir()
    inner.git("init", "-q")
    inner.git("config", "user.name", "x")
    inner.git("config", "user.email", "x@example.org")
    commit = inner.commit("Inner", {"inner.txt": "inner\n"})
    inner.write("loose.txt", "loose\n")
    removed = house.workspaces.remove(ITEM)
    assert removed.kept is None
    assert commit in reachable(house)
    assert {b"inner\n", b"loose\n"} <= all_blobs(house)


def test_what_cannot_be_rescued_is_moved_aside_not_destroyed(house: House) -> None:
    agent = prepare(house)
    head = agent.commit("Mine", {"a.txt": "precious\n"})
    (agent.folder / ".git/objects" / head[:2] / head[2:]).unlink()
    agent.write("b.txt", "files\n")
    removed = house.workspaces.remove(ITEM)
    assert removed.kept is not None
    assert (removed.kept / "a.txt").read_text() == "precious\n"
    assert (removed.kept / ".git").is_dir()
    assert not agent.folder.exists()
    assert b"files\n" in all_blobs(house)


def test_removing_what_is_clean_keeps_no_rubbish(house: House) -> None:
    prepare(house)
    assert house.workspaces.remove(ITEM).stray == ()
    assert house.clone.rescued(ITEM) == {}
    assert list((house.clone.path.parent / "worktrees").iterdir()) == []


def test_files_are_read_inside_only(house: House) -> None:
    agent = prepare(house)
    agent.write("docs/12-review.md", "approved\n")
    (agent.folder / "out").symlink_to("/etc")
    (agent.folder / "passwd").symlink_to("/etc/passwd")
    os.mkfifo(agent.folder / "pipe")
    read = house.workspaces.read_file
    assert read(ITEM, "docs/12-review.md", 100) == b"approved\n"
    assert read(ITEM, "docs/none.md", 100) is None
    assert read(ITEM, "none/none.md", 100) is None
    for path in (
        "../../clone.git/config",
        "/etc/passwd",
        "out/passwd",
        "passwd",
        "pipe",
        "docs",
        "docs/../x",
        "a\0b",
    ):
        with pytest.raises(UnreadableFile):
            read(ITEM, path, 10_000)
    with pytest.raises(UnreadableFile):
        read(ITEM, "docs/12-review.md", 3)


def test_without_a_workspace_there_is_nothing_to_ask(house: House) -> None:
    with pytest.raises(OutsideError, match="ORCH-1 has no workspace"):
        house.workspaces.harvest(ITEM, house.main, house.main)


def test_a_folder_of_workspaces_that_became_a_link_is_refused(house: House, tmp_path: Path) -> None:
    prepare(house)
    folders = house.clone.path.parent / "worktrees"
    folders.rename(tmp_path / "elsewhere")
    folders.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutsideError, match="replaced by a link"):
        prepare(house)


LEFTOVERS = ["empty", "file", "half", "broken-git", "no-git"]


@pytest.mark.parametrize("leftover", LEFTOVERS)
def test_leftovers_of_a_crash_are_adopted_or_cleared(house: House, leftover: str) -> None:
    folders = house.clone.path.parent / "worktrees"
    agent = prepare(house)
    if leftover == "empty":
        remove_tree(agent.folder)
        agent.folder.mkdir()
    elif leftover == "file":
        remove_tree(agent.folder)
        agent.folder.write_text("in the way")
    elif leftover == "half":
        agent.folder.rename(folders / ".new.ORCH-1")
    elif leftover == "broken-git":
        (agent.folder / ".git/HEAD").write_text("")
    else:
        remove_tree(agent.folder / ".git")
    again = prepare(house)
    assert again.folder == agent.folder
    assert again.head() == house.main
    assert porcelain(again.folder) == []
    kept = [".kept-1.ORCH-1"] if leftover == "broken-git" else []
    assert sorted(path.name for path in folders.iterdir()) == [*kept, "ORCH-1-change-it"]


def test_thirty_at_once(house: House) -> None:
    """worktree_parallel_30: each gets its own workspace on the right base."""
    items = [WorkItem(f"ORCH-{number}") for number in range(30)]

    def one(item: WorkItem) -> Path:
        return house.workspaces.prepare(item, "Change it", branch_name(item, "Change it"), house.main)

    with ThreadPoolExecutor(30) as pool:
        folders = list(pool.map(one, items))
    assert len(set(folders)) == 30
    for item, folder in zip(items, folders, strict=True):
        agent = Hand(folder)
        assert agent.head() == house.main
        assert agent.git("branch", "--show-current") == branch_name(item, "Change it")
        assert porcelain(folder) == []
    assert sorted(folders) == sorted((house.clone.path.parent / "worktrees").iterdir())


PREPARER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import SystemProcesses
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.worktree import Workspaces

repos, url, main = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
clone = Clone(Git(SystemProcesses()), repos / "clone.git", url, "main", clock=SystemClock(), entropy=SystemEntropy())
workspaces = Workspaces(clone, repos, SystemClock())
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda n: workspaces.prepare(f"ORCH-{n}", "Change it", f"orch/ORCH-{n}", main), range(30)))
"""


def test_killed_in_the_middle_of_thirty_and_started_again(house: House) -> None:
    repos = house.clone.path.parent
    argv = [sys.executable, "-c", PREPARER, str(repos), house.forge.fetch_url(), house.main]
    child = subprocess.Popen(argv, start_new_session=True)
    ready = repos / "worktrees"
    wait_until(lambda: ready.is_dir() and len(list(ready.glob("ORCH-*"))) >= 3)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert len(list(ready.glob("ORCH-*"))) < 30
    subprocess.run(argv, check=True)
    names = sorted(path.name for path in ready.iterdir())
    assert names == sorted(f"ORCH-{number}-change-it" for number in range(30))
    for name in names:
        assert Hand(ready / name).head() == house.main
        assert porcelain(ready / name) == []


def test_a_workspace_in_use_by_another_process_is_waited_for(house: House) -> None:
    prepare(house)
    lock = house.clone.path.parent / "workspaces" / "ORCH-1.lock"
    holder = subprocess.Popen(["flock", str(lock), "cat"], stdin=subprocess.PIPE)
    wait_until(lambda: subprocess.run(["flock", "-n", str(lock), "true"], check=False).returncode != 0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(prepare, house)
        assert not waiting.done()
        holder.communicate(b"")
        assert waiting.result(20).head() == house.main
    assert lock.exists()


def reachable(house: House) -> set[str]:
    return set(house.git.text(["rev-list", "--all"], git_dir=house.clone.path).split())


def all_blobs(house: House) -> set[bytes]:
    """The contents of every blob that some reference of the clone reaches."""
    listed = house.git.text(["rev-list", "--objects", "--no-object-names", "--all"], git_dir=house.clone.path)
    return {
        house.git.run(["cat-file", "blob", name], git_dir=house.clone.path).stdout
        for name in listed.split()
        if house.git.text(["cat-file", "-t", name], git_dir=house.clone.path) == "blob"
    }
