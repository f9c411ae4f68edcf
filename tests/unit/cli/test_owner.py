"""The file that tells commands where the owner answers."""

import json
import stat
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from orchestrator.cli.owner import FILE, Owner, announced, holder_of, owner_of
from orchestrator.db.file_lock import own_file
from orchestrator.runtime.process import SystemProcesses

PROCESSES = SystemProcesses()


def an_owner() -> Owner:
    return Owner("http://127.0.0.1:1", "token", "serve", PROCESSES.own())


def test_is_private_and_gone_at_the_end(tmp_path: Path) -> None:
    with announced(tmp_path, an_owner(), PROCESSES):
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
        assert owner_of(tmp_path, PROCESSES) == an_owner()
    assert not (tmp_path / FILE).exists()


def test_is_gone_after_an_error_too(tmp_path: Path) -> None:
    with pytest.raises(KeyError), announced(tmp_path, an_owner(), PROCESSES):
        raise KeyError
    assert owner_of(tmp_path, PROCESSES) is None


def test_who_leaves_gives_the_place_back_to_one_that_lives(tmp_path: Path) -> None:
    first, second = an_owner(), replace(an_owner(), token="second")
    with announced(tmp_path, first, PROCESSES):
        with announced(tmp_path, second, PROCESSES):
            assert owner_of(tmp_path, PROCESSES) == second
        assert owner_of(tmp_path, PROCESSES) == first
    assert not (tmp_path / FILE).exists()


def test_one_that_was_taken_away_is_written_again_while_its_owner_lives(tmp_path: Path) -> None:
    mine = an_owner()
    me = PROCESSES.own()
    dead = replace(mine, token="dead", process=replace(me, start_ticks=me.start_ticks + 1))
    other = replace(mine, token="other")
    with announced(tmp_path, mine, PROCESSES) as keep:
        (tmp_path / FILE).unlink()
        keep()
        assert owner_of(tmp_path, PROCESSES) == mine
        (tmp_path / FILE).write_text(json.dumps(asdict(dead)), encoding="utf-8")
        keep()
        assert owner_of(tmp_path, PROCESSES) == mine
        (tmp_path / FILE).write_text(json.dumps(asdict(other)), encoding="utf-8")
        keep()
        assert owner_of(tmp_path, PROCESSES) == other
        (tmp_path / FILE).unlink()
    keep()
    assert not (tmp_path / FILE).exists()


def test_a_dead_writer_is_believed_by_nobody(tmp_path: Path) -> None:
    me = PROCESSES.own()
    dead = replace(an_owner(), process=replace(me, start_ticks=me.start_ticks + 1))
    (tmp_path / FILE).write_text(json.dumps(asdict(dead)), encoding="utf-8")
    assert owner_of(tmp_path, PROCESSES) is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"url": 1}',
        '{"url": "u", "token": "t", "role": "r", "process": {"pid": 1}}',
        "x" * 99_999,
    ],
    ids=range(7),
)
def test_nonsense_is_no_owner(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content, encoding="utf-8")
    assert owner_of(tmp_path, PROCESSES) is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text(json.dumps(asdict(an_owner())), encoding="utf-8")
    (tmp_path / FILE).symlink_to(real)
    assert owner_of(tmp_path, PROCESSES) is None


def test_the_holder_of_the_lock_is_named(tmp_path: Path) -> None:
    database = tmp_path / "orchestrator.db"
    assert holder_of(database) is None
    with own_file(database, role="demo"):
        assert holder_of(database) == f"orch demo (pid {PROCESSES.own().pid})"
    assert holder_of(database) is None
