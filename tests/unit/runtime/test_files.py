"""Durable files: exclusive, whole, and never through a link."""

import os
import stat
import threading
from pathlib import Path

import pytest

from orchestrator.runtime.files import (
    UnreadableFile,
    make_private_folder,
    publish_exclusive,
    read_bounded,
    read_tail,
    replace_durably,
    trim_log,
)


def test_publish_creates_the_file_once(tmp_path: Path) -> None:
    path = tmp_path / "STARTED"
    assert publish_exclusive(path, b"first")
    assert not publish_exclusive(path, b"second")
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["STARTED"]  # nothing is left aside


def test_publish_has_one_winner_among_many(tmp_path: Path) -> None:
    path = tmp_path / "STARTED"
    barrier = threading.Barrier(8)
    wins: list[int] = []

    def contend(number: int) -> None:
        barrier.wait()
        if publish_exclusive(path, str(number).encode()):
            wins.append(number)

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wins) == 1
    assert path.read_bytes() == str(wins[0]).encode()


@pytest.mark.parametrize("target", ["elsewhere", "missing"])
def test_publish_does_not_follow_a_link(tmp_path: Path, target: str) -> None:
    (tmp_path / "elsewhere").write_bytes(b"untouched")
    path = tmp_path / "STARTED"
    path.symlink_to(tmp_path / target)
    assert not publish_exclusive(path, b"mine")
    assert path.is_symlink()
    assert (tmp_path / "elsewhere").read_bytes() == b"untouched"
    assert not (tmp_path / "missing").exists()


def test_publish_into_a_missing_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        publish_exclusive(tmp_path / "gone" / "STARTED", b"x")


def test_replace_gives_new_content_in_one_step(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_durably(path, b"old")
    with path.open("rb") as reader:
        replace_durably(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state"]


def test_replace_refuses_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"untouched")
    (tmp_path / "state").symlink_to(target)
    with pytest.raises(UnreadableFile):
        replace_durably(tmp_path / "state", b"new")
    assert target.read_bytes() == b"untouched"
    assert (tmp_path / "state").is_symlink()


def test_read_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(UnreadableFile, match="larger than 4"):
        read_bounded(path, 4)


def test_read_tells_absent_from_unreadable(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bounded(tmp_path / "absent", 10)
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    with pytest.raises(UnreadableFile):
        read_bounded(tmp_path / "link", 10)
    with pytest.raises(UnreadableFile):
        read_bounded(tmp_path, 10)


def test_read_is_not_held_by_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFile, match="no plain file"):
        read_bounded(tmp_path / "pipe", 10)
    assert read_tail(tmp_path / "pipe", 10) == b""


def test_tail_is_what_came_last(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"first\nlast\n")
    assert read_tail(path, 5) == b"last\n"
    assert read_tail(path, 100) == b"first\nlast\n"
    assert read_tail(tmp_path / "absent", 5) == b""


def test_trim_keeps_the_end_and_those_who_append(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("ab", buffering=0) as writer:
        writer.write(b"a" * 100 + b"END")
        assert trim_log(path, 50, 10)
        writer.write(b"more")
    content = path.read_bytes()
    assert content.startswith(b"[93 bytes of output dropped here]\n")
    assert content.endswith(b"aaaaaaaENDmore")


def test_trim_leaves_a_short_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"short")
    assert not trim_log(path, 5, 2)
    assert path.read_bytes() == b"short"


def test_private_folders_are_private(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b")
    make_private_folder(tmp_path / "a" / "b")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OSError, match="exists|Not a directory"):
        make_private_folder(tmp_path / "a" / "b")
