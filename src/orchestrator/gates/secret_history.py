"""Secrets that a commit brought and a later one took out again: they stand in no file, but leave with the history."""

from collections.abc import Callable, Iterator

from orchestrator.domain.errors import GitError
from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import Sha
from orchestrator.gates.secret_scan import scan
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.commits import CommitInfo

MAX_DIFF_BYTES = 32 * 1024 * 1024

Line = tuple[str, int, str]


def secrets_in_files(clone: Clone, base: Sha, head: Sha, known: tuple[str, ...]) -> tuple[Finding, ...]:
    """Secrets in what ``head`` adds to ``base``; a change too large to be looked through is a finding."""
    return _scanned(lambda: clone.diff_added_lines(base, head, MAX_DIFF_BYTES), known)


def secrets_in_history(clone: Clone, base: Sha, head: Sha, known: tuple[str, ...]) -> tuple[Finding, ...]:
    """Secrets in what each commit from ``base`` to ``head`` adds by itself; a merge adds what no parent of it has."""
    return tuple(
        Finding(f"{finding.message} (in commit {commit.sha[:12]})", finding.file, finding.line)
        for commit in clone.commits(base, head)
        for finding in _of_commit(clone, commit, known)
    )


def _of_commit(clone: Clone, commit: CommitInfo, known: tuple[str, ...]) -> tuple[Finding, ...]:
    if not commit.parents:
        return (Finding("has no parent: its history does not begin in this repository"),)
    return _scanned(lambda: _added(clone, commit), known)


def _added(clone: Clone, commit: CommitInfo) -> Iterator[Line]:
    first, *others = (
        list(clone.diff_added_lines(parent, commit.sha, MAX_DIFF_BYTES)) for parent in commit.parents
    )
    everywhere = [{(path, text) for path, _, text in lines} for lines in others]
    return (line for line in first if all((line[0], line[2]) in lines for lines in everywhere))


def _scanned(lines: Callable[[], Iterator[Line]], known: tuple[str, ...]) -> tuple[Finding, ...]:
    try:
        return scan(lines(), known)
    except GitError as error:
        if error.returncode is not None:
            raise  # git itself failed: that says nothing of the change
        return (Finding(str(error)),)
