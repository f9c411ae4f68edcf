"""What an agent leaves is taken over as it is: git has the last word, not the agent's exit status."""

import os
import shutil
from pathlib import Path

import pytest

from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.runtime.files import UnreadableFile
from orchestrator.workspace import snapshot, worktree
from orchestrator.workspace.harvest import Harvest
from tests.fixtures_git import Hand, House, porcelain

ITEM = WorkItem("ORCH-1")
BRANCH = "orch/ORCH-1-change-it"


@pytest.fixture
def agent(house: House) -> Hand:
    return Hand(house.workspaces.prepare(ITEM, "Change it", BRANCH, house.main))


def harvest(house: House, expected: Sha | None = None, *, commit_leftovers: bool = True) -> Harvest:
    return house.workspaces.harvest(
        ITEM, house.main, expected or house.main, commit_leftovers=commit_leftovers
    )


def text(found: Harvest) -> str:
    return "\n".join(str(problem) for problem in found.problems)


def settled(house: House, agent: Hand, found: Harvest) -> None:
    """The workspace stands where the harvest says, on its branch, with nothing open; a second look changes nothing."""
    assert agent.head() == found.head
    assert agent.git("branch", "--show-current") == BRANCH
    assert porcelain(agent.folder) == []
    again = harvest(house)
    assert (again.head, again.leftover, again.stray) == (found.head, None, ())
    assert house.clone.kept(ITEM) == found.head


def test_commits_are_taken_over(house: House, agent: Hand) -> None:
    one = agent.commit("One", {"a.txt": "1\n"})
    two = agent.commit("Two\n\nOrch-Nonce: forged\n", {"a.txt": "2\n"})
    found = harvest(house)
    assert (found.head, found.dirty, found.stray, found.problems) == (two, False, (), ())
    assert [commit.sha for commit in found.commits] == [one, two]
    assert found.commits[1].trailers == {"Orch-Nonce": "forged"}
    assert house.clone.read(two, "a.txt", 10) == b"2\n"
    settled(house, agent, found)


def test_a_merge_of_main_into_the_branch_is_taken_over(house: House, agent: Hand) -> None:
    agent.commit("One", {"a.txt": "1\n"})
    main = house.outsider_pushes({"b.txt": "theirs\n"})
    house.clone.fetch()
    agent.git("merge", "-q", "--no-edit", main)
    found = harvest(house)
    assert found.problems == ()
    assert house.clone.is_ancestor(main, found.head)


def test_edits_without_a_commit_become_one_commit_of_ours(house: House, agent: Hand) -> None:
    """exit0_vs_git_state (a): work is committed by policy."""
    agent.write("src/app.py", "changed\n")
    agent.write("docs/new.md", "new\n")
    agent.write("run.sh", "#!/bin/sh\n").chmod(0o755)
    (agent.folder / "README.md").unlink()
    (agent.folder / "near").symlink_to("docs/new.md")
    agent.write("debug.log", "ignored")
    found = harvest(house)
    assert found.dirty
    assert found.leftover == found.head
    assert [commit.author for commit in found.commits] == ["orchestrator <orchestrator@localhost>"]
    assert {
        (change.status, change.path, change.mode) for change in house.clone.changes(house.main, found.head)
    } == {
        ("M", "src/app.py", "100644"),
        ("A", "docs/new.md", "100644"),
        ("A", "run.sh", "100755"),
        ("D", "README.md", "000000"),
        ("A", "near", "120000"),
    }
    assert (agent.folder / "debug.log").read_text() == "ignored"
    assert found.problems == ()
    settled(house, agent, found)


def test_no_change_at_all_is_no_change(house: House, agent: Hand) -> None:
    """exit0_vs_git_state (b) and (e): nothing, or ignored files alone."""
    agent.write("debug.log", "ignored")
    os.utime(agent.folder / "README.md", (1, 1))
    found = harvest(house)
    assert (found.head, found.commits, found.dirty, found.problems) == (house.main, (), False, ())


def test_work_on_another_branch_is_kept_and_told(house: House, agent: Hand) -> None:
    """exit0_vs_git_state (c)."""
    agent.git("checkout", "-q", "-b", "mine")
    aside = agent.commit("Aside", {"a.txt": "1\n"})
    agent.write("b.txt", "loose\n")
    found = harvest(house)
    assert (found.head, found.commits) == (house.main, ())
    assert aside in {stray.sha for stray in found.stray}
    assert "branch mine: not part of the change, kept as refs/orch/rescue/ORCH-1/" in text(found)
    files = {house.clone.read(stray.sha, "b.txt", 10) for stray in found.stray}
    assert b"loose\n" in files
    settled(house, agent, found)


def test_work_on_a_detached_head_is_kept_and_told(house: House, agent: Hand) -> None:
    """exit0_vs_git_state (c)."""
    agent.git("checkout", "-q", "--detach")
    aside = agent.commit("Aside", {"a.txt": "1\n"})
    found = harvest(house)
    assert found.head == house.main
    assert {stray.sha for stray in found.stray} == {aside}
    assert "detached HEAD" in text(found)
    settled(house, agent, found)


def test_commits_and_leftovers_both_count(house: House, agent: Hand) -> None:
    """exit0_vs_git_state (d)."""
    one = agent.commit("One", {"a.txt": "1\n"})
    agent.write("b.txt", "2\n")
    found = harvest(house)
    assert [commit.sha for commit in found.commits] == [one, found.leftover]
    settled(house, agent, found)


def test_another_branch_beside_good_work(house: House, agent: Hand) -> None:
    agent.git("checkout", "-q", "-b", "try")
    aside = agent.commit("Try", {"t.txt": "1\n"})
    agent.git("checkout", "-q", BRANCH)
    good = agent.commit("Good", {"a.txt": "1\n"})
    agent.write("README.md", "stashed\n")
    agent.git("stash")
    found = harvest(house)
    assert found.head == good
    assert aside in {stray.sha for stray in found.stray}
    assert {stray.what for stray in found.stray} == {"branch try", "stash"}
    assert porcelain(agent.folder) == []


def test_a_detached_head_at_the_tip_is_as_good_as_the_branch(house: House, agent: Hand) -> None:
    tip = agent.commit("One", {"a.txt": "1\n"})
    agent.git("checkout", "-q", "--detach")
    agent.write("b.txt", "2\n")
    found = harvest(house)
    assert found.commits[0].sha == tip
    assert (found.dirty, found.stray, found.problems) == (True, (), ())
    settled(house, agent, found)


def test_leftovers_of_a_reader_are_put_aside(house: House, agent: Hand) -> None:
    """A reviewer writes no code: what it leaves is rescued and cleared away."""
    agent.write("src/app.py", "meddled\n")
    found = harvest(house, commit_leftovers=False)
    assert (found.head, found.leftover) == (house.main, None)
    (stray,) = found.stray
    assert house.clone.read(stray.sha, "src/app.py", 100) == b"meddled\n"
    settled(house, agent, found)


def test_rewritten_history_is_refused_and_kept(house: House, agent: Hand) -> None:
    first = agent.commit("First", {"a.txt": "1\n"})
    assert harvest(house).head == first
    agent.git("commit", "-q", "--amend", "-m", "Amended")
    amended = agent.head()
    found = harvest(house, first)
    assert found.head == first
    assert amended in {stray.sha for stray in found.stray}
    assert "was rewritten" in text(found)
    assert agent.head() == first


def test_what_we_have_put_in_place_of_the_history_is_taken_over_again(house: House, agent: Hand) -> None:
    """A secret had been committed in an earlier round, too; we died before the new head was on record."""
    first = agent.commit("First", {"a.txt": "secret\n"})
    assert harvest(house).head == first
    second = agent.commit("Second", {"a.txt": "clean\n"})
    assert harvest(house, first).head == second
    ours = house.clone.commit_tree(house.clone.tree(second), [house.main], "In place of them\n")
    house.clone.keep(ITEM, ours)
    house.workspaces.reset_to(ITEM, ours)
    found = harvest(house, first)
    assert (found.head, found.stray, text(found)) == (ours, (), "")
    assert agent.head() == ours


def test_going_back_to_what_was_taken_over_before_is_refused(house: House, agent: Hand) -> None:
    """What the orchestrator has committed since, a verdict, is not dropped by it."""
    first = agent.commit("First", {"a.txt": "1\n"})
    assert harvest(house).head == first
    verdict = house.clone.commit_files(first, {"verdict.md": b"no\n"}, "Verdict\n")
    house.workspaces.prepare(ITEM, "Change it", BRANCH, verdict)
    agent.git("reset", "-q", "--hard", first)
    found = harvest(house, verdict)
    assert found.head == verdict
    assert "was rewritten" in text(found)


def test_a_merge_that_was_not_finished(house: House, agent: Hand) -> None:
    tip = agent.commit("Mine", {"README.md": "mine\n"})
    theirs = house.clone.commit_files(house.main, {"README.md": b"theirs\n"}, "Theirs")
    agent.git("merge", "-q", theirs, check=False)
    assert "<<<<<<<" in (agent.folder / "README.md").read_text()
    found = harvest(house)
    assert found.head == tip
    assert "A merge was begun and not finished." in text(found)
    assert any(b"<<<<<<<" in (house.clone.read(stray.sha, "README.md", 1000) or b"") for stray in found.stray)
    settled(house, agent, found)


@pytest.mark.parametrize("how", ["deleted", "file", "link", "empty", "elsewhere"])
def test_git_deleted_or_replaced(house: House, agent: Hand, how: str, tmp_path: Path) -> None:
    """The workspace is made anew, its files rescued, and the agent is told."""
    agent.write("work.txt", "work\n")
    git_dir = agent.folder / ".git"
    if how == "link":
        git_dir.rename(tmp_path / "moved")
        git_dir.symlink_to(tmp_path / "moved")
    elif how == "elsewhere":
        (git_dir / "objects/info/alternates").write_text(f"{house.person.folder}/.git/objects\n")
    else:
        shutil.rmtree(git_dir)
        if how == "file":
            git_dir.write_text(f"gitdir: {house.person.folder}/.git\n")
        elif how == "empty":
            git_dir.mkdir()
    found = harvest(house)
    assert found.head == house.main
    assert "It was made anew." in text(found)
    assert any(house.clone.read(stray.sha, "work.txt", 100) == b"work\n" for stray in found.stray)
    assert agent.head() == house.main
    assert porcelain(agent.folder) == []
    assert git_dir.is_dir()
    assert not git_dir.is_symlink()


def test_the_folder_replaced_by_a_link(house: House, agent: Hand, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    agent.folder.rename(elsewhere)
    (elsewhere / "stays.txt").write_text("not ours to touch")
    agent.folder.symlink_to(elsewhere)
    with pytest.raises(UnreadableFile):
        house.workspaces.read_file(ITEM, "stays.txt", 100)
    found = harvest(house)
    assert found.head == house.main
    assert "replaced by a link" in text(found)
    assert not agent.folder.is_symlink()
    assert agent.head() == house.main
    assert (elsewhere / "stays.txt").exists()


def test_the_folder_deleted(house: House, agent: Hand) -> None:
    tip = agent.commit("Mine", {"a.txt": "1\n"})
    assert harvest(house).head == tip
    shutil.rmtree(agent.folder)
    found = harvest(house)
    assert found.head == tip
    assert "folder was deleted" in text(found)
    assert agent.head() == tip


def test_the_branch_removed(house: House, agent: Hand) -> None:
    agent.git("checkout", "-q", "-b", "other")
    agent.git("branch", "-q", "-D", BRANCH)
    aside = agent.commit("Mine", {"a.txt": "1\n"})
    found = harvest(house)
    assert found.head == house.main
    assert "was removed" in text(found)
    assert aside in {stray.sha for stray in found.stray}


def test_damaged_commits_are_told_and_the_folder_kept(house: House, agent: Hand) -> None:
    tip = agent.commit("Mine", {"a.txt": "1\n"})
    (agent.folder / ".git/objects" / tip[:2] / tip[2:]).unlink()
    found = harvest(house)
    assert found.head == house.main
    assert "cannot be taken over" in text(found)
    assert "The folder is kept as" in text(found)
    assert agent.head() == house.main


def test_a_pack_that_lies_is_found_out(house: House, agent: Hand) -> None:
    """An object under another's name does not come in."""
    tip = agent.commit("Mine", {"a.txt": "harmless\n"})
    other = agent.commit("Other", {"a.txt": "harmful\n"})
    good = Sha(agent.git("rev-parse", f"{tip}:a.txt"))
    bad = Sha(agent.git("rev-parse", f"{other}:a.txt"))
    agent.git("reset", "-q", "--hard", tip)
    objects = agent.folder / ".git/objects"
    target = objects / good[:2] / good[2:]
    target.chmod(0o600)
    shutil.copyfile(objects / bad[:2] / bad[2:], target)
    found = harvest(house)
    assert found.head == house.main
    assert not house.clone.has(tip)


def test_links_out_nested_repositories_and_huge_files_are_not_delivered(
    house: House, agent: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "HUGE_BYTES", 1000)
    (agent.folder / "abs").symlink_to("/etc/passwd")
    (agent.folder / "docs").mkdir()
    (agent.folder / "docs/up").symlink_to("../../outside")
    agent.write("huge.bin", "x" * 1001)
    agent.write("fine.txt", "fine\n")
    os.mkfifo(agent.folder / "pipe")
    inner = Hand(agent.folder / "inner")
    inner.folder.mkdir()
    inner.git("init", "-q")
    inner.write("x", "x")
    found = harvest(house)
    assert [change.path for change in house.clone.changes(house.main, found.head)] == ["fine.txt"]
    assert {problem.file for problem in found.problems} == {"abs", "docs/up", "huge.bin", "inner"}


def test_what_is_committed_is_looked_at_too(
    house: House, agent: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktree, "HUGE_BYTES", 1000)
    (agent.folder / "abs").symlink_to("/etc/passwd")
    (agent.folder / "near").symlink_to("src/../README.md")
    inner = Hand(agent.folder / "inner")
    inner.folder.mkdir()
    inner.git("init", "-q")
    inner.git("config", "user.name", "x")
    inner.git("config", "user.email", "x@example.org")
    inner.commit("Inner", {"x": "x"})
    agent.commit("All of it", {"huge.bin": "x" * 1001})
    found = harvest(house)
    assert {problem.file for problem in found.problems} == {"abs", "inner", "huge.bin"}


def test_a_folder_of_tracked_files_replaced_by_a_link_out(house: House, agent: Hand, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("secret\n")
    shutil.rmtree(agent.folder / "src")
    (agent.folder / "src").symlink_to(outside)
    found = harvest(house)
    assert {(change.status, change.path) for change in house.clone.changes(house.main, found.head)} == {
        ("D", "src/app.py"),
        ("D", "src/util.py"),
    }
    assert {problem.file for problem in found.problems} == {"src"}


def test_a_folder_replaced_by_a_file_and_a_file_by_a_folder(house: House, agent: Hand) -> None:
    shutil.rmtree(agent.folder / "src")
    agent.write("src", "now a file\n")
    (agent.folder / "README.md").unlink()
    agent.write("README.md/inside.txt", "now a folder\n")
    found = harvest(house)
    assert found.problems == ()
    assert {entry.path for entry in house.clone.list_files(found.head)} == {
        ".gitignore",
        "README.md/inside.txt",
        "src",
    }
    settled(house, agent, found)


def test_read_only_folders_are_no_obstacle(house: House, agent: Hand) -> None:
    agent.write("locked/deep/file.txt", "1\n")
    (agent.folder / "locked/deep/file.txt").chmod(0o000)
    (agent.folder / "locked/deep").chmod(0o000)
    (agent.folder / "locked").chmod(0o500)
    agent.folder.chmod(0o500)
    found = harvest(house)
    assert house.clone.read(found.head, "locked/deep/file.txt", 10) == b"1\n"
    house.workspaces.remove(ITEM)
    assert not agent.folder.exists()


def test_very_deep_folders_are_removed(house: House, agent: Hand) -> None:
    here = os.open(agent.folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    assert harvest(house).head == house.main
    house.workspaces.remove(ITEM)
    assert not agent.folder.exists()


def test_line_ends_that_an_attribute_wants_otherwise_are_no_change(house: House) -> None:
    head = house.clone.commit_files(
        house.main,
        {".gitattributes": b"* text=auto eol=crlf\n", "dos.txt": b"a\r\nb\r\n", "unix.txt": b"a\n"},
        "x",
    )
    house.push(BRANCH, head)
    agent = Hand(house.workspaces.prepare(ITEM, "Change it", BRANCH, head))
    found = house.workspaces.harvest(ITEM, house.main, head)
    assert (found.head, found.dirty) == (head, False)
    agent.write("new.txt", "1\n")
    found = house.workspaces.harvest(ITEM, house.main, head)
    assert [change.path for change in house.clone.changes(head, found.head)] == ["new.txt"]


def test_an_encoding_that_a_file_does_not_have_stops_nothing(house: House, agent: Hand) -> None:
    agent.write(".gitattributes", "*.md working-tree-encoding=UTF-16\n")
    agent.write("README.md", "changed\n")
    agent.write("-odd\nname.md", "odd\n")
    (agent.folder / "link.md").symlink_to("README.md")
    found = harvest(house)
    assert found.problems == ()
    assert house.clone.read(found.head, "README.md", 100) == b"changed\n"
    assert house.clone.read(found.head, "-odd\nname.md", 100) == b"odd\n"
    entry = house.clone.entry(found.head, "link.md")
    assert entry is not None
    assert entry.mode == "120000"
    house.workspaces.remove(ITEM)
    assert not agent.folder.exists()


def test_settings_that_run_programs_are_refused_in_what_is_delivered(house: House, agent: Hand) -> None:
    agent.commit(
        "Submodule", {".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ./x\n\tupdate = !touch /tmp/x\n'}
    )
    found = harvest(house)
    assert found.head == house.main
    assert "cannot be taken over" in text(found)
