"""A message is written once, survives torn lines, and no link leads it elsewhere."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from orchestrator.domain.errors import OutsideError
from orchestrator.observability import message_log
from orchestrator.observability.message_log import MAX_MESSAGES, MAX_TEXT, MessageLog


def test_each_id_once_in_order(tmp_path: Path) -> None:
    log = MessageLog(tmp_path / "new" / "m.jsonl")
    assert log.read() == []
    assert log.append("1", {"text": "first\nline"})
    assert log.append("2", {"text": "second"})
    assert not log.append("1", {"text": "again"})
    assert log.read() == [{"message_id": "1", "text": "first\nline"}, {"message_id": "2", "text": "second"}]


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "m.jsonl"
    MessageLog(path).append("1", {})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_torn_line_is_closed_and_its_message_written_again(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    log = MessageLog(path)
    log.append("1", {})
    with path.open("ab") as file:
        file.write(b'{"message_id": "2", "te')
    assert log.append("2", {"text": "whole"})
    assert log.append("3", {})
    assert [entry["message_id"] for entry in log.read()] == ["1", "2", "3"]


def test_odd_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(b'\n[1]\nnull\n\xff\xfe\n{"message_id": "1"}\n')
    assert MessageLog(path).read() == [{"message_id": "1"}]
    assert not MessageLog(path).append("1", {})


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / "m.jsonl").symlink_to(target)
    log = MessageLog(tmp_path / "m.jsonl")
    with pytest.raises(OutsideError):
        log.append("1", {})
    with pytest.raises(OutsideError):
        log.read()
    assert target.read_text() == "untouched"


def test_a_folder_that_cannot_be_made_is_an_error_of_the_outside(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutsideError, match="tried again"):
        MessageLog(tmp_path / "file" / "m.jsonl").append("1", {})


def test_text_and_number_of_messages_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    log = MessageLog(path)
    path.write_text("".join(json.dumps({"message_id": str(n)}) + "\n" for n in range(MAX_MESSAGES)))
    assert log.append("new", {"text": "x" * (MAX_TEXT + 5)})
    kept = log.read()
    assert len(kept) == MAX_MESSAGES // 2 + 1
    assert kept[-1]["message_id"] == "new" and len(kept[-1]["text"]) == MAX_TEXT
    assert kept[0]["message_id"] == str(MAX_MESSAGES // 2)


def test_two_writers_write_each_message_once(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    written: list[bool] = []

    def write() -> None:
        written.extend(MessageLog(path).append(str(n), {}) for n in range(50))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (written.count(True), written.count(False)) == (50, 150)
    assert sorted(int(entry["message_id"]) for entry in MessageLog(path).read()) == list(range(50))


def test_the_disk_has_it_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(
        message_log.os, "fsync", lambda fd: (synced.append(os.fstat(fd).st_size), real(fd))[1]
    )
    MessageLog(tmp_path / "m.jsonl").append("1", {})
    assert synced == [(tmp_path / "m.jsonl").stat().st_size]
