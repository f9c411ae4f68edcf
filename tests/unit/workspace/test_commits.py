"""Commits and differences, read from git's bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.errors import GitError
from orchestrator.domain.ids import Sha
from orchestrator.workspace.clone import check_path
from orchestrator.workspace.commits import decode_path, encode_path, parse_changes, parse_commit

A, B, ZERO = "a" * 40, "b" * 40, "0" * 40


def test_a_commit() -> None:
    raw = (
        f"tree {A}\nparent {B}\nparent {A}\nauthor Ä > x <a@x> 1 +0000\ncommitter C <c@x> 1 +0000\n"
        "gpgsig -----BEGIN\n tree fake\n\nSubject\n\nparent fake\n"
    ).encode()
    commit = parse_commit(Sha(B), raw)
    assert (commit.tree, commit.parents, commit.author) == (A, (B, A), "Ä > x <a@x>")
    assert commit.message == "Subject\n\nparent fake\n"


def test_what_is_no_commit() -> None:
    with pytest.raises(GitError, match="is no commit"):
        parse_commit(Sha(B), b"100644 name\0....")


def test_changes() -> None:
    raw = (
        f":100644 100755 {A} {B} M\0a b\0:000000 120000 {ZERO} {B} A\0new\nline\0"
        f":100644 100644 {A} {B} R090\0old\0n\xe9w\0"
    ).encode("latin-1")
    one, two, three = parse_changes(raw)
    assert (one.status, one.path, one.old_path, one.mode, one.old_mode) == (
        "M",
        "a b",
        None,
        "100755",
        "100644",
    )
    assert (two.status, two.path, two.mode) == ("A", "new\nline", "120000")
    assert (three.status, three.old_path, encode_path(three.path)) == ("R", "old", b"n\xe9w")
    assert parse_changes(b"") == []


@given(st.binary(min_size=1))
def test_any_path_survives(raw: bytes) -> None:
    assert encode_path(decode_path(raw)) == raw


@pytest.mark.parametrize("path", ["a", "a/b.md", "docs/work-items/ORCH-1/12-review.md", "...", ".gitignore"])
def test_paths_that_may_be_written(path: str) -> None:
    assert check_path(path) == path
