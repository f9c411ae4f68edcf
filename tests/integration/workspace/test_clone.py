"""The clone's questions and its plumbing, on real repositories."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import WorkItem
from orchestrator.workspace.clone import CONFIG, Clone
from orchestrator.workspace.history import UnreadableBlob
from tests.clock import FakeClock
from tests.fixtures_git import Hand, House, porcelain


def test_fetch_shows_what_the_forge_has(house: House) -> None:
    assert house.clone.tip("main") == house.person.head()
    assert house.clone.tip("nothing") is None
    moved = house.outsider_pushes({"new.txt": "new\n"})
    house.clone.fetch()
    assert house.clone.tip("main") == moved


def test_a_branch_gone_from_the_forge_goes(house: House) -> None:
    house.push("side", house.clone.commit_files(house.main, {"a": b"1"}, "Side"))
    house.clone.fetch()
    assert house.clone.tip("side") is not None
    house.forge.delete_branch("side", house.clone.tip("side") or house.main)
    house.clone.fetch()
    assert house.clone.tip("side") is None


def test_commit_files_changes_these_files_alone(house: House) -> None:
    base = house.main
    head = house.clone.commit_files(
        base,
        {"docs/x.md": "привет\n".encode(), "README.md": None, "src/app.py": b"two\n"},
        "Title\n\nKey: value\n",
    )
    changes = {(change.status, change.path, change.mode) for change in house.clone.changes(base, head)}
    assert changes == {
        ("A", "docs/x.md", "100644"),
        ("D", "README.md", "000000"),
        ("M", "src/app.py", "100644"),
    }
    info = house.clone.commit(head)
    assert info.parents == (base,)
    assert info.message == "Title\n\nKey: value\n"
    assert info.trailers == {"Key": "value"}
    assert info.author == "orchestrator <orchestrator@localhost>"
    assert [commit.sha for commit in house.clone.commits(base, head)] == [head]
    assert house.clone.read(head, "docs/x.md", 100) == "привет\n".encode()
    assert house.clone.is_ancestor(base, head)
    assert not house.clone.is_ancestor(head, base)
    assert house.clone.parents(head) == (base,)
    assert house.clone.tree(head) == info.tree


@pytest.mark.parametrize(
    "path", ["../x", "/x", "a//b", ".git/config", "a/.GIT/x", "", "a/.", "a\0b"], ids=repr
)
def test_a_path_that_leaves_the_tree_is_refused(house: House, path: str) -> None:
    with pytest.raises(GitError):
        house.clone.commit_files(house.main, {path: b"x"}, "x")


def test_renames_are_told_when_asked_for(house: House) -> None:
    text = "".join(f"line {number}\n" for number in range(20))
    base = house.clone.commit_files(house.main, {"old name": text.encode()}, "a")
    head = house.clone.commit_files(base, {"old name": None, "new\tname\n": text.encode()}, "b")
    (moved,) = house.clone.changes(base, head, renames=True)
    assert (moved.status, moved.old_path, moved.path) == ("R", "old name", "new\tname\n")
    assert {change.status for change in house.clone.changes(base, head)} == {"A", "D"}


def test_added_lines_cannot_be_hidden(house: House) -> None:
    """Neither an attribute nor content that looks like a patch hides a line or forges a name."""
    base = house.main
    hostile = b"+++ b/other\n@@ -1 +1 @@\n-- x\n++ y\ndiff --git a/z b/z\n"
    head = house.clone.commit_files(
        base,
        {
            ".gitattributes": b"* -diff -text binary\n",
            "a\nb.txt": hostile,
            "bin": b"\0secret\n",
            "src/app.py": b"print('one')\nkey = 1",
            "zz": b"last\n",
        },
        "x",
    )
    lines = list(house.clone.diff_added_lines(base, head, 100_000))
    assert [(number, text) for path, number, text in lines if path == "a\nb.txt"] == list(
        enumerate(hostile.decode().splitlines(), start=1)
    )
    assert ("bin", 1, "\0secret") in lines
    assert ("src/app.py", 2, "key = 1") in lines
    assert ("zz", 1, "last") in lines
    assert {path for path, _, _ in lines} == {".gitattributes", "a\nb.txt", "bin", "src/app.py", "zz"}


def test_a_change_of_type_keeps_names_and_lines_together(house: House) -> None:
    link = Hand(house.root / "person")
    (link.folder / "README.md").unlink()
    (link.folder / "README.md").symlink_to("src/app.py")
    sha = link.commit("Link", {"zz.txt": "zz\n"})
    link.git("push", "-q", str(house.forge.path), "HEAD:refs/heads/link")
    house.clone.fetch()
    lines = list(house.clone.diff_added_lines(house.main, sha, 10_000))
    assert ("zz.txt", 1, "zz") in lines
    assert ("README.md", 1, "src/app.py") in lines


def test_a_difference_beyond_the_limit_is_an_error_not_a_pass(house: House) -> None:
    head = house.clone.commit_files(house.main, {"big": b"x\n" * 2000}, "x")
    with pytest.raises(GitError, match="too large"):
        list(house.clone.diff_added_lines(house.main, head, 1000))
    grown = house.clone.commit_files(head, {"big": b"y\n" * 2000}, "x")
    with pytest.raises(GitError, match="too large"):
        list(house.clone.diff_added_lines(head, grown, 1000))
    assert len(list(house.clone.diff_added_lines(head, grown, 20_000))) == 2000


def test_only_regular_files_are_read(house: House) -> None:
    hand = house.person
    (hand.folder / "link").symlink_to("/etc/passwd")
    sha = hand.commit("Link")
    hand.git("push", "-q", str(house.forge.path), "HEAD:refs/heads/link")
    house.clone.fetch()
    assert house.clone.read(sha, "no such file", 10) is None
    assert house.clone.read(sha, "src/app.py/x", 10) is None
    for path in ("link", "src"):
        with pytest.raises(UnreadableBlob, match="no regular file"):
            house.clone.read(sha, path, 10_000)
    with pytest.raises(UnreadableBlob, match="at most 3"):
        house.clone.read(sha, "README.md", 3)
    listed = {entry.path: (entry.mode, entry.size) for entry in house.clone.list_files(sha, "src")}
    assert listed == {"src/app.py": ("100644", 13), "src/util.py": ("100644", 6)}
    assert ("link", "120000") in {(entry.path, entry.mode) for entry in house.clone.list_files(sha)}


def test_equal_outside_a_folder(house: House) -> None:
    base, folder = house.main, "docs/work-items/ORCH-1"
    inside = house.clone.commit_files(base, {f"{folder}/12-review.md": b"x"}, "x")
    beside = house.clone.commit_files(base, {f"{folder}0/12-review.md": b"x"}, "x")
    as_file = house.clone.commit_files(base, {folder: b"x"}, "x")
    assert house.clone.trees_equal_outside(base, inside, folder)
    assert house.clone.trees_equal_outside(base, inside, folder + "/")
    assert not house.clone.trees_equal_outside(base, beside, folder)
    assert not house.clone.trees_equal_outside(base, as_file, folder)


def test_an_unknown_commit_is_an_error(house: House) -> None:
    with pytest.raises(GitError):
        house.clone.commit(house.clone.tree(house.main))
    with pytest.raises(GitError):
        house.clone.is_ancestor(house.main, type(house.main)("1" * 40))
    assert not house.clone.has(type(house.main)("1" * 40))
    assert house.clone.has(house.main)


def test_rescue_is_repeatable_and_numbers_go_on(house: House) -> None:
    one = house.clone.commit_files(house.main, {"a": b"1"}, "one")
    two = house.clone.commit_files(house.main, {"a": b"2"}, "two")
    item = WorkItem("ORCH-1")
    assert house.clone.rescue(item, one) == "refs/orch/rescue/ORCH-1/1"
    assert house.clone.rescue(item, two) == "refs/orch/rescue/ORCH-1/2"
    assert house.clone.rescue(item, one) == "refs/orch/rescue/ORCH-1/1"
    assert house.clone.rescued(item) == {"refs/orch/rescue/ORCH-1/1": one, "refs/orch/rescue/ORCH-1/2": two}
    house.clone.fetch()
    assert len(house.clone.rescued(item)) == 2


def test_a_head_that_is_kept_is_not_lost_when_the_line_changes(house: House) -> None:
    item = WorkItem("ORCH-1")
    one = house.clone.commit_files(house.main, {"a": b"1"}, "one")
    two = house.clone.commit_files(house.main, {"a": b"2"}, "two")
    house.clone.keep(item, one)
    assert house.clone.rescued(item) == {}
    house.clone.keep(item, two)
    assert house.clone.kept(item) == two
    assert list(house.clone.rescued(item).values()) == [one]


def test_export_is_exactly_the_commit_and_no_way_back(house: House) -> None:
    head = house.clone.commit_files(house.main, {"src/app.py": b"print('two')\n"}, "Two\n")
    target = house.root / "checkouts" / "one"
    with house.clone.export(head, target) as path:
        hand = Hand(path)
        assert hand.head() == head
        assert porcelain(path) == []
        assert hand.git("log", "--format=%s") == "Two"
        assert (path / "src/app.py").read_text() == "print('two')\n"
        assert sorted(entry.name for entry in path.iterdir()) == [".git", ".gitignore", "README.md", "src"]
        for file in (path / ".git").rglob("*"):
            if file.is_file():
                assert str(house.clone.path).encode() not in file.read_bytes()
        (path / "src").chmod(0o500)
        (path / "locked").mkdir(mode=0o000)
    assert not target.exists()


def test_export_removes_its_folder_after_a_failure(house: House) -> None:
    target = house.root / "checkout"
    with pytest.raises(RuntimeError), house.clone.export(house.main, target):
        raise RuntimeError
    assert not target.exists()
    with pytest.raises(GitError), house.clone.export(type(house.main)("1" * 40), target):
        pass
    assert not target.exists()
    target.mkdir()
    with pytest.raises(GitError, match="in the way"), house.clone.export(house.main, target):
        pass


def test_the_configuration_is_put_right_before_each_use(house: House, tmp_path: Path) -> None:
    config = house.clone.path / "config"
    config.write_text("[core]\n\tworktree = /\n[extensions]\n\tpartialClone = evil\n")
    house.clone.commit(house.main)
    assert config.read_bytes() == CONFIG
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("untouched")
    config.unlink()
    config.symlink_to(elsewhere)
    house.clone.commit(house.main)
    assert (config.is_symlink(), config.read_bytes()) == (False, CONFIG)
    assert elsewhere.read_text() == "untouched"


def test_opening_again_changes_nothing_and_half_a_clone_is_made_anew(house: House) -> None:
    before = house.clone.tip("main")
    assert house.clone.open_or_create().tip("main") == before
    assert [path.name for path in house.clone.path.parent.glob("clone-*")] == []


def test_an_unreachable_forge_is_told(house: House) -> None:
    house.forge.path.rename(house.root / "gone")
    with pytest.raises(GitError, match="git fetch failed"):
        house.clone.fetch()


def test_what_killed_processes_left_aside_is_swept_when_old(house: House) -> None:
    old, new = house.clone.path / "incoming-old", house.clone.path / "index-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (1, 1))
    house.clone.open_or_create()
    assert (old.exists(), new.exists()) == (False, True)


def test_what_another_process_is_at_is_not_swept_when_the_clock_has_jumped(house: House) -> None:
    """It goes by the file system's own time."""
    at_work = house.clone.path / "index-new"
    at_work.mkdir()
    known = house.clone
    clock = FakeClock(known.clock.utc() + timedelta(days=300))
    Clone(known.git, known.path, known.url, "main", clock=clock, entropy=known.entropy).open_or_create()
    assert at_work.exists()
