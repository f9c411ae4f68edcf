from pathlib import Path

import pytest

from orchestrator.agents.kept_log import KeptLog


def kept(path: Path, cap: int, writes: list[bytes], secrets: dict[str, str] | None = None) -> bytes:
    log = KeptLog(path, cap, secrets or {})
    for data in writes:
        log.write(data)
    log.close()
    assert log.failed is None
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    return path.read_bytes()


def test_short_output_is_kept_whole(tmp_path: Path) -> None:
    writes = [b"line %d\n" % number for number in range(10)]
    assert kept(tmp_path / "o.log", 10_000, writes) == b"".join(writes)


def test_output_up_to_the_bound_loses_nothing(tmp_path: Path) -> None:
    writes = [b"%09d\n" % number for number in range(75)]
    assert kept(tmp_path / "o.log", 1000, writes) == b"".join(writes)


def test_long_output_keeps_head_and_tail_and_says_so(tmp_path: Path) -> None:
    writes = [b"%09d\n" % number for number in range(10_000)]
    text = kept(tmp_path / "o.log", 4000, writes)
    assert len(text) < 4200
    assert text.startswith(writes[0])
    assert text.endswith(writes[-1])
    left_out = int(text.split(b"[... ")[1].split()[0])
    note = len(b"\n[...  bytes left out ...]\n") + len(str(left_out))
    assert left_out + len(text) - note == 100_000


def test_one_write_larger_than_everything(tmp_path: Path) -> None:
    text = kept(tmp_path / "o.log", 1000, [b"a" * 50_000 + b"end\n"])
    assert len(text) < 1100
    assert text.endswith(b"end\n")


def test_secrets_are_replaced_by_their_names(tmp_path: Path) -> None:
    text = kept(tmp_path / "o.log", 1000, [b"key=sk-canary-1 x\n"], {"API_KEY": "sk-canary-1", "SHORT": "x"})
    assert text == b"key=[API_KEY] x\n"


@pytest.mark.parametrize("name", ["o.log", "o.tail-a"])
def test_link_is_not_followed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")
    log = KeptLog(tmp_path / "o.log", 100, {})
    log.write(b"x" * 90 + b"\n")
    log.close()
    assert log.failed is not None
    assert not (tmp_path / "elsewhere").exists()


def test_full_disk_ends_the_log_not_the_run() -> None:
    log = KeptLog(Path("/dev/full"), 1000, {})
    log.write(b"x\n")
    log.write(b"y\n")
    log.close()
    assert log.failed is not None
    assert "No space left" in log.failed
    assert log.size == 4
