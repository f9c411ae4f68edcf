"""Which paths an agent may touch: shapes, other people's documents, protected files, modes."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.ids import WorkItem
from orchestrator.repo_config.records import PathPolicy
from orchestrator.rules.path_policy import Change, mode_violations, violations

POLICY = PathPolicy()
MINE = WorkItem("ORCH-7")


def refused(path: str, policy: PathPolicy = POLICY, labels: tuple[str, ...] = ()) -> bool:
    return bool(violations([path], policy, labels, work_item=MINE))


@pytest.mark.parametrize(
    "path",
    [
        "src/app.py", "docs/guide.md", "docs/work-items/ORCH-7/01-brd.md", ".gitignore", ".gitattributes", "git/x",
        "src/.github.md", "a b/ü.txt", "docs/work-item/x", "setup.cfg.bak", "my-tox.ini", "...", "a/..b",
        unicodedata.normalize("NFD", "é.txt"),
    ],
)  # fmt: skip
def test_ordinary_paths_pass(path: str) -> None:
    assert not refused(path)


@pytest.mark.parametrize(
    "path",
    [
        "", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a/", "~/x", "C:/x", "a\\b", "a\nb", "a\x00b", "a\x1b[0m",
        "a\u202eb", "a\u200bb", "a\udcffb", ".git/c", "sub/.git/hooks/x", ".GIT/x", ".git", "a/.git. /x", "x/git~1",
        ".git::$INDEX_ALLOCATION/x", ".g\u200cit/config", "x" * 5000,
    ],
)  # fmt: skip
def test_shapes_that_no_label_allows(path: str) -> None:
    assert refused(path)
    assert refused(path, labels=("allow-protected",))


@pytest.mark.parametrize(
    "path",
    [
        ".orchestrator.toml", ".Orchestrator.TOML", ".github/workflows/ci.yml", ".github", ".GitHub/x",
        ".gitea/workflows/a.yml", ".coveragerc", "service/.coveragerc", "tox.ini", "sub/Tox.INI", ".ci/check",
        "\uff0ecoveragerc",
    ],
)  # fmt: skip
def test_protected_paths_need_the_label(path: str) -> None:
    assert refused(path)
    assert refused(path, labels=("Allow-Protected", "bug"))
    assert not refused(path, labels=("bug", "allow-protected"))


@pytest.mark.parametrize(
    "path",
    [
        "docs/work-items/ORCH-8/01-brd.md", "docs/work-items/ORCH-71/x", "docs/work-items/orch-7/x",
        "Docs/Work-Items/ORCH-7/x", "docs/work-items/ORCH-7", "docs/work-items/README.md", "docs/work-items", "docs",
    ],
)  # fmt: skip
def test_documents_of_other_work_items(path: str) -> None:
    assert refused(path, labels=("allow-protected",))


def test_without_a_work_item_no_documents_may_change() -> None:
    assert violations(["docs/work-items/ORCH-7/01-brd.md"], POLICY, ())


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("ci/", "ci/run", True),
        ("ci/", "sub/ci/run", True),
        ("/ci", "ci/run", True),
        ("/ci", "sub/ci", False),
        ("a/b", "a/b/c", True),
        ("a/b", "x/a/b", False),
        ("a/*.py", "a/x.py", True),
        ("a/*.py", "a/b/x.py", False),
        ("a/**/x.py", "a/x.py", True),
        ("a/**/x.py", "a/b/c/x.py", True),
        ("**/x", "x", True),
        ("**/x", "a/b/x/y", True),
        ("*.lock", "a/poetry.lock", True),
        ("a/**", "a", True),
        ("a/**", "ab", False),
        ("file.[ch]", "src/file.c", True),
        ("file.?", "file.py", False),
        ("**", "anything/at/all", True),
        ("", "a", False),
        ("/", "a", False),
    ],
)
def test_patterns_as_in_gitignore(pattern: str, path: str, matches: bool) -> None:
    assert refused(path, PathPolicy(protected=(pattern,))) is matches


def test_an_empty_label_lifts_nothing() -> None:
    assert refused("tox.ini", PathPolicy(allow_label=""), labels=("",))


def test_findings_name_the_path_without_its_tricks() -> None:
    (finding,) = violations(["a\x1b]0;gone\x07"], POLICY, ())
    assert finding.file is not None and finding.file.isprintable()
    assert "Rename" in finding.message


def test_one_finding_per_path_in_order() -> None:
    found = violations(["tox.ini", "ok.py", "../x", "tox.ini"], POLICY, ())
    assert [finding.file for finding in found] == ["tox.ini", "../x"]


@given(st.text(max_size=60), st.lists(st.text(max_size=20), max_size=4))
def test_any_text_is_judged_and_shown_safely(path: str, patterns: list[str]) -> None:
    for finding in violations([path], PathPolicy(protected=tuple(patterns)), (), work_item=MINE):
        assert str(finding).isprintable()


@given(st.sampled_from(["tox.ini", ".github/x", ".orchestrator.toml"]), st.data())
def test_case_never_gets_around_protection(path: str, data: st.DataObject) -> None:
    flips = data.draw(st.lists(st.booleans(), min_size=len(path), max_size=len(path)))
    assert refused("".join(c.upper() if flip else c for c, flip in zip(path, flips, strict=True)))


def test_many_stars_stay_cheap() -> None:
    assert not refused("a/" * 200 + "b", PathPolicy(protected=("**/a/" * 50 + "*a*a*a*a*a*z",)))


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        (Change("a", "100644"), True),
        (Change("a", "100755"), True),
        (Change("a", "000000"), True),
        (Change("a", "160000"), False),
        (Change("a", "040000"), False),
        (Change("a", "120000"), False),
        (Change("a", "120000", ""), False),
        (Change("a", "120000", "b"), True),
        (Change("d/a", "120000", "../b"), True),
        (Change("d/a", "120000", "../../b"), False),
        (Change("a", "120000", ".."), False),
        (Change("d/e/a", "120000", "x/../../b"), False),
        (Change("a", "120000", "/etc/passwd"), False),
        (Change("a", "120000", "~/x"), False),
        (Change("a", "120000", ".git/config"), False),
        (Change("a", "120000", "b\nc"), False),
    ],
)
def test_modes(change: Change, allowed: bool) -> None:
    assert (mode_violations([change]) == ()) is allowed
