"""The digest of an artefact: the same for the same content, another for any difference, none for what is unfaithful."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.domain.ids import Digest
from orchestrator.images import content
from orchestrator.images.content import ArtifactRefused, copy_in, digest_of, sole_entry

PINNED = "sha256:34bdf0f34a1e7d71d7b8df588b67d1b10684544277ff323c2d90ee85144e396c"


def tree(root: Path) -> Path:
    (root / "bin").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "bin" / "run").write_text("#!/bin/sh\n")
    (root / "bin" / "run").chmod(0o755)
    (root / "a.txt").write_text("text")
    (root / "ünï").write_text("code")
    (root / "link").symlink_to("bin/run")
    return root


def stored(source: Path, target: Path) -> Digest:
    target.mkdir(parents=True)
    copy_in(source, target)
    return digest_of(target)


def test_the_same_content_has_the_same_digest_wherever_and_whenever(tmp_path: Path) -> None:
    first, second = tree(tmp_path / "one"), tmp_path / "deeper" / "two"
    shutil.copytree(first, second, symlinks=True)
    os.utime(second / "a.txt", (1, 1))
    (second / "a.txt").chmod(0o640)  # only whether it may be executed is content
    (second / "empty").chmod(0o700)
    assert stored(first, tmp_path / "x") == stored(second, tmp_path / "y")


def test_the_digest_is_pinned(tmp_path: Path) -> None:
    """Stored digests must not change meaning: another value here needs another format line."""
    assert content.FORMAT == b"orchestrator artefact 1\n"
    assert stored(tree(tmp_path / "dist"), tmp_path / "x") == PINNED


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes": lambda root: (root / "a.txt").write_text("texT"),
    "executable": lambda root: (root / "a.txt").chmod(0o755),
    "renamed": lambda root: (root / "a.txt").rename(root / "b.txt"),
    "moved": lambda root: (root / "a.txt").rename(root / "bin" / "a.txt"),
    "removed": lambda root: (root / "ünï").unlink(),
    "added": lambda root: (root / "c").write_text(""),
    "empty folder": lambda root: (root / "more").mkdir(),
    "folder gone": lambda root: (root / "empty").rmdir(),
    "link target": lambda root: ((root / "link").unlink(), (root / "link").symlink_to("a.txt")),
    "link to file": lambda root: ((root / "link").unlink(), (root / "link").write_text("bin/run")),
    "file to folder": lambda root: ((root / "a.txt").unlink(), (root / "a.txt").mkdir()),
    "boundary": lambda root: ((root / "a.txt").write_text("textc"), (root / "ünï").write_text("ode")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_any_difference_is_another_digest(tmp_path: Path, name: str) -> None:
    first, second = tree(tmp_path / "one"), tree(tmp_path / "two")
    assert stored(first, tmp_path / "x") == stored(second, tmp_path / "y")
    CHANGES[name](second)
    assert stored(first, tmp_path / "x2") != stored(second, tmp_path / "y2")


def test_a_file_keeps_its_name_and_a_folder_its_shape(tmp_path: Path) -> None:
    wheel = tmp_path / "app-1.0.whl"
    wheel.write_bytes(b"wheel")
    stored(wheel, tmp_path / "x")
    assert sole_entry(tmp_path / "x").name == "app-1.0.whl"
    assert sole_entry(tmp_path / "x").read_bytes() == b"wheel"
    stored(tree(tmp_path / "dist"), tmp_path / "y")
    assert sorted(entry.name for entry in sole_entry(tmp_path / "y").iterdir()) == [
        "a.txt", "bin", "empty", "link", "ünï",
    ]  # fmt: skip


def test_a_file_and_a_folder_holding_it_differ(tmp_path: Path) -> None:
    folder = tmp_path / "file"
    folder.mkdir()
    (folder / "app").write_text("x")
    assert stored(folder / "app", tmp_path / "x") != stored(folder, tmp_path / "y")


def test_stored_files_are_read_only_and_can_be_removed(tmp_path: Path) -> None:
    stored(tree(tmp_path / "dist"), tmp_path / "x")
    for path in (tmp_path / "x" / "tree").rglob("*"):
        assert path.is_symlink() or path.is_dir() or not path.stat().st_mode & 0o222
    shutil.rmtree(tmp_path / "x")


def test_names_that_are_no_text_are_content_too(tmp_path: Path) -> None:
    source = tmp_path / "dist"
    source.mkdir()
    Path(os.fsdecode(os.fsencode(source) + b"/\xff\n")).write_text("x")
    stored(source, tmp_path / "x")
    assert os.listdir(os.fsencode(tmp_path / "x" / "tree")) == [b"\xff\n"]


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "..", "../outside", "bin/../../outside", "through/../../outside", "through/x"]
)
def test_links_that_lead_out_are_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").write_text("secret")
    source = tree(tmp_path / "dist")
    (tmp_path / "away").mkdir()
    if target.startswith("through"):
        (source / "through").symlink_to(tmp_path / "away" if target.endswith("x") else "bin")
    (source / "bad").symlink_to(target)
    (tmp_path / "x").mkdir()
    with pytest.raises(ArtifactRefused, match="leads out"):
        copy_in(source, tmp_path / "x")


@pytest.mark.parametrize("target", ["a.txt", "./bin/../a.txt", ".", "missing"])
def test_links_that_stay_inside_are_kept(tmp_path: Path, target: str) -> None:
    source = tree(tmp_path / "dist")
    os.symlink(f"../{target}", source / "bin" / "good")
    stored(source, tmp_path / "x")
    assert os.readlink(tmp_path / "x" / "tree" / "bin" / "good") == f"../{target}"


def test_special_files_links_and_nothing_are_refused(tmp_path: Path) -> None:
    source = tree(tmp_path / "dist")
    os.mkfifo(source / "pipe")
    (tmp_path / "pipe").mkdir()
    with pytest.raises(ArtifactRefused, match="'pipe'"):
        copy_in(source, tmp_path / "pipe")
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(ArtifactRefused, match="neither"):
        copy_in(tmp_path / "link", tmp_path / "x")
    with pytest.raises(ArtifactRefused, match="no artefact at"):
        copy_in(tmp_path / "missing", tmp_path / "x")


def test_an_artefact_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tree(tmp_path / "dist")
    (tmp_path / "x").mkdir()
    (tmp_path / "y").mkdir()
    monkeypatch.setattr(content, "ENTRY_LIMIT", 3)
    with pytest.raises(ArtifactRefused, match="more than 3 entries"):
        copy_in(source, tmp_path / "x")
    monkeypatch.setattr(content, "ENTRY_LIMIT", 100)
    monkeypatch.setattr(content, "SIZE_LIMIT", 5)
    with pytest.raises(ArtifactRefused, match="5 bytes"):
        copy_in(source, tmp_path / "y")
