"""Records of a start: what is absent, what is there, and what is in doubt."""

from pathlib import Path

import pytest

from orchestrator.deploy.records import (
    EXIT_FILE,
    START_FILE,
    STARTED_FILE,
    Claimant,
    DeployKind,
    DeployStart,
    Ending,
    Exit,
    Started,
    exit_record,
    read_start,
    start_folder,
    started,
    to_bytes,
)
from orchestrator.domain.errors import AuthorityUnreachable, ConfigError
from orchestrator.domain.ids import Digest, Sha, WorkItem
from orchestrator.runtime.process import ProcessIdentity

SHA = Sha("a1" * 20)
START = DeployStart(
    environment="staging",
    sha=SHA,
    generation=2,
    digest=Digest("sha256:" + "0" * 64),
    artifact=Path("/store/x"),
    token="17",
    argv=("deploy", "--to", "ß \n"),
    timeout_s=1.5,
    work_item=WorkItem("ORCH-7"),
    sequence=41,
    installation="inst",
    kind=DeployKind.UNDO,
    env={"A": "б"},
)
WHO = ProcessIdentity("boot", "pid:[1]", 12, 34)
CLAIM = Started(Claimant.CHILD, "inst", 41, "17", "2026-01-05T10:00:00.000000Z", "host", WHO, WHO)


@pytest.mark.parametrize(
    "start", [START, DeployStart("p", SHA, 1, None, None, "t", ("a",), 1.0, WorkItem("W"), 1, "i")]
)
def test_a_start_reads_as_written(tmp_path: Path, start: DeployStart) -> None:
    (tmp_path / START_FILE).write_bytes(to_bytes(start))
    assert read_start(tmp_path) == start


@pytest.mark.parametrize("claim", [CLAIM, Started(Claimant.REVOKER, "inst", 41, "17", "at", "host")])
def test_a_claim_reads_as_written(tmp_path: Path, claim: Started) -> None:
    (tmp_path / STARTED_FILE).write_bytes(to_bytes(claim))
    assert started(tmp_path) == claim


@pytest.mark.parametrize(
    ("record", "succeeded"),
    [
        (Exit(Ending.EXITED, 0, "at"), True),
        (Exit(Ending.EXITED, 1, "at", "why"), False),
        (Exit(Ending.EXITED, None, "at"), False),
        (Exit(Ending.TIMED_OUT, None, "at"), False),
        (Exit(Ending.KILLED, 0, "at"), False),
    ],
)
def test_only_exit_code_0_of_its_own_accord_is_success(tmp_path: Path, record: Exit, succeeded: bool) -> None:
    (tmp_path / EXIT_FILE).write_bytes(to_bytes(record))
    assert exit_record(tmp_path) == record
    assert record.succeeded is succeeded


def test_absent_is_an_answer(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        assert read_start(folder) is None
        assert started(folder) is None
        assert exit_record(folder) is None


BROKEN = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"{}",
    b"\xff\xfe",
    to_bytes(CLAIM)[:-20],
    to_bytes(CLAIM).replace(b'"child"', b'"somebody"'),
    to_bytes(CLAIM).replace(b'"sequence": 41', b'"sequence": "41"'),
    to_bytes(CLAIM).replace(b'"pid": 12', b'"pid": true'),
    to_bytes(Started(Claimant.CHILD, "inst", 41, "17", "at", "host")),  # a child without processes
    b" " * (300 * 1024),
]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_there_but_unreadable_is_in_doubt(tmp_path: Path, content: bytes) -> None:
    for name in (START_FILE, STARTED_FILE, EXIT_FILE):
        (tmp_path / name).write_bytes(content)
    for read in (read_start, started, exit_record):
        with pytest.raises(AuthorityUnreachable, match="cannot be read"):
            read(tmp_path)


def test_a_link_in_place_of_a_claim_is_in_doubt(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(to_bytes(CLAIM))
    (tmp_path / STARTED_FILE).symlink_to(tmp_path / "real")
    with pytest.raises(AuthorityUnreachable):
        started(tmp_path)


def test_the_folder_names_the_key(tmp_path: Path) -> None:
    assert start_folder(tmp_path, "prod-eu.1", SHA, 3) == tmp_path / "prod-eu.1" / f"3-{SHA}"


@pytest.mark.parametrize(
    ("environment", "sha", "generation"),
    [
        ("../x", SHA, 1),
        ("", SHA, 1),
        (".", SHA, 1),
        ("a/b", SHA, 1),
        ("a" * 65, SHA, 1),
        ("a\n", SHA, 1),
        ("p", SHA[:12], 1),
        ("p", SHA.upper(), 1),
        ("p", "../" + SHA, 1),
        ("p", SHA, 0),
    ],
)
def test_what_is_no_file_name_is_refused(tmp_path: Path, environment: str, sha: str, generation: int) -> None:
    with pytest.raises(ConfigError):
        start_folder(tmp_path, environment, sha, generation)
