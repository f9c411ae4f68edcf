"""Folders in which anything may lie."""

import os
from pathlib import Path

import pytest

from orchestrator.domain.errors import OutsideError
from orchestrator.workspace.folders import leaves, make_readable, only_plain, remove_tree


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "to-folder").symlink_to(kept)
    (folder / "deep").mkdir()
    (folder / "deep/to-file").symlink_to(kept / "file")
    (folder / "deep/dangling").symlink_to("nowhere")
    os.mkfifo(folder / "deep/pipe")
    remove_tree(folder)
    assert not folder.exists()
    link = tmp_path / "link"
    link.symlink_to(kept)
    remove_tree(link)
    assert not link.is_symlink()
    assert (kept / "file").read_text() == "x"
    remove_tree(tmp_path / "nothing")
    remove_tree(kept / "file")
    assert list(kept.iterdir()) == []


def test_folders_without_permission_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    inner = folder / "a/b/c"
    inner.mkdir(parents=True)
    (inner / "file").write_text("x")
    for path in (inner, inner.parent, inner.parent.parent, folder):
        path.chmod(0o000)
    remove_tree(folder)
    assert not folder.exists()


def test_names_that_removal_itself_uses(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    for name in (".up-0/.up-0", ".up-1/x/y", "a/.up-0/.up-1", "a/b/c/d"):
        (folder / name).mkdir(parents=True)
    remove_tree(folder)
    assert not folder.exists()


def test_what_cannot_be_removed_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutsideError, match="cannot be removed"):
        remove_tree(Path("/proc/self/fdinfo"))


def test_permission_is_given_back_to_folders_and_files_alone(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o000)
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    (folder / "a/file").write_text("x")
    (folder / "link").symlink_to(outside)
    (folder / "a/file").chmod(0o001)
    (folder / "a").chmod(0o000)
    make_readable(folder)
    assert oct((folder / "a").stat().st_mode & 0o777) == "0o700"
    assert oct((folder / "a/file").stat().st_mode & 0o777) == "0o401"
    assert oct(outside.stat().st_mode & 0o777) == "0o0"


def test_plain_means_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/file").write_text("x")
    assert only_plain(tmp_path)
    os.mkfifo(tmp_path / "a/b/pipe")
    assert not only_plain(tmp_path)
    (tmp_path / "a/b/pipe").unlink()
    (tmp_path / "a/link").symlink_to("b")
    assert not only_plain(tmp_path)
    assert not only_plain(tmp_path / "a/link")
    assert not only_plain(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("target", "out"),
    [
        ("x", False),
        ("../x", False),
        ("../../x", True),
        ("/etc", True),
        ("a/../../../x", True),
        ("..", False),
        ("../..", True),
    ],
    ids=range(7),
)
def test_links_that_lead_out(tmp_path: Path, target: str, out: bool) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/link").symlink_to(target)
    assert leaves(tmp_path, tmp_path / "a/link") is out
