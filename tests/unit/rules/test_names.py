"""Names of branches and folders, for any title."""

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.errors import InvariantError
from orchestrator.domain.ids import WorkItem
from orchestrator.rules.names import LIMIT_BYTES, branch_name, slug, work_item_ref, worktree_dir

TITLES = [
    "Исправить вход", "テスト", "🐛", "---", "", "x" * 5000, "слово " * 900, "Fix Login", "fix login!!", "CON",
    "a/../b", "../../etc/passwd", ".lock", "x.lock", "-rf", "--upload-pack=touch /tmp/pwn", "@{u}", "@", "HEAD",
    "caf\u00e9", "cafe\u0301", "\u202eabc\u202c", "line\nbreak", "nul\0nul", "$(touch /tmp/pwn)", "`id`", "a;b",
    "\x1b]0;title\x07", "~^:?*[\\", "Ёлка, щука и їжак", "straße", "\ud800",
]  # fmt: skip
ITEMS = st.one_of(
    st.from_regex(r"[A-Z][A-Z0-9]{0,6}-[0-9]{1,6}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.[A-Za-z0-9_-]){0,12}", fullmatch=True),
).map(WorkItem)


def valid_for_git(branch: str) -> bool:
    done = subprocess.run(["git", "check-ref-format", "--branch", branch], capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("title", TITLES, ids=range(len(TITLES)))
def test_any_title_gives_a_name_that_git_takes(title: str) -> None:
    branch = branch_name(WorkItem("ORCH-114"), title)
    assert valid_for_git(branch)
    assert branch.startswith("orch/ORCH-114-")
    assert len(branch.encode("ascii")) <= LIMIT_BYTES


def test_readable() -> None:
    assert branch_name(WorkItem("ORCH-7"), "Исправить вход") == "orch/ORCH-7-ispravit-vkhod"
    assert branch_name(WorkItem("ORCH-8"), "Fix the Login — café!") == "orch/ORCH-8-fix-the-login-cafe"
    assert worktree_dir(WorkItem("ORCH-9"), "🐛") == "ORCH-9-task"


def test_long_titles_are_cut_between_words() -> None:
    assert (
        slug("one two three four five six seven eight nine ten") == "one-two-three-four-five-six-seven-eight"
    )


def test_composed_and_decomposed_letters_are_spelled_alike() -> None:
    assert slug("caf\u00e9 \u0439") == slug("cafe\u0301 \u0438\u0306")


@given(ITEMS, st.text())
def test_a_name_is_one_harmless_path_component(item: WorkItem, title: str) -> None:
    name = worktree_dir(item, title)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*[A-Za-z0-9]", name)
    assert ".." not in name
    assert not name.endswith(".lock")
    assert item in name
    assert len(branch_name(item, title)) <= LIMIT_BYTES
    assert name == worktree_dir(item, title)


@given(ITEMS, ITEMS, st.text(), st.text())
def test_different_work_items_differ_in_more_than_case(
    one: WorkItem, other: WorkItem, a: str, b: str
) -> None:
    same = worktree_dir(one, a).casefold() == worktree_dir(other, b).casefold()
    assert not same or one == other
    assert (work_item_ref(one).casefold() == work_item_ref(other).casefold()) == (one == other)


@pytest.mark.parametrize(
    ("one", "a", "other", "b"),
    [
        ("ORCH-1", "1 x", "ORCH-11", "x"),
        ("ORCH-1", "1", "ORCH-1-1", ""),
        ("orch-1", "", "ORCH-1", ""),
        ("a.b", "c", "a", "b.c"),
    ],
    ids=["digit", "dash", "case", "dot"],
)
def test_an_id_cannot_run_into_the_title(one: str, a: str, other: str, b: str) -> None:
    assert worktree_dir(WorkItem(one), a).casefold() != worktree_dir(WorkItem(other), b).casefold()


@pytest.mark.parametrize("item", ["", "..", "a/b", "-x", "a..b", "a b", "x" * 41, "é", "a\n", "a."], ids=repr)
def test_other_work_items_are_refused(item: str) -> None:
    with pytest.raises(InvariantError, match="work item"):
        branch_name(WorkItem(item), "title")
