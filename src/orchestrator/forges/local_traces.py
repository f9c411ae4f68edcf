"""What a local forge shows of candidates: on main, kept under ``refs/orch/candidates``, and in the fences.

Reads only. What is no merge commit with our trailers is passed over; the rest is for others to judge.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import Sha, TaskId, WorkItem
from orchestrator.domain.installation import SeenCandidate
from orchestrator.domain.task import Candidate, Landed
from orchestrator.forges.local_fence import FENCES, PUSH_FENCES, fence_ref, parse_fence, push_fence_ref
from orchestrator.rules.trailers import INSTALLATION, NONCE, SEQUENCE, TASK, could_be_ours, trailers
from orchestrator.runtime.git import Git

CANDIDATES = "refs/orch/candidates/"
_PLAIN_LOG = (
    "log",
    "-z",
    "--no-show-signature",
    "--no-decorate",
    "--no-notes",
    "--no-mailmap",
    "--first-parent",
)


def landing(git: Git, git_dir: Path, main: Sha, candidate: Candidate) -> Landed | None:
    """The oldest commit of main's first-parent line that is the candidate, says its nonce, or contains it."""
    line = [
        (Sha(sha), Sha(tree), message)
        for head, message in reversed(_log(git, git_dir, "%H %T%n%B", main, [candidate.base_sha]))
        for sha, tree in [head.split()]
    ]
    for sha, tree, message in line:
        if sha == candidate.sha or trailers(message).get(NONCE) == candidate.nonce:
            return Landed(candidate, sha, tree)
    behind = _descendants(git, git_dir, candidate.sha, main) if line else frozenset()
    return next((Landed(candidate, sha, tree) for sha, tree, _ in line if sha in behind), None)


def merged(git: Git, git_dir: Path, main: Sha, known: Iterable[Sha]) -> list[SeenCandidate]:
    """Candidates on main's first-parent line that no commit in ``known`` contains, oldest first."""
    found = [
        _candidate(head.split(), message)
        for head, message in _log(git, git_dir, "%H %T %P%n%B", main, known, merges=True)
    ]
    return [one for one in reversed(found) if one is not None]


def kept(git: Git, git_dir: Path) -> list[SeenCandidate]:
    """Every candidate that was ever prepared here, with its task's id and round."""
    listed = git.run(
        [
            "for-each-ref",
            "--format=%(refname) %(objectname) %(tree) %(parent)%0a%(contents)%00",
            CANDIDATES.rstrip("/"),
        ],
        git_dir=git_dir,
    ).stdout
    found = []
    for entry in listed.decode("utf-8", "replace").split("\0"):
        head, _, message = entry.strip("\n").partition("\n")
        ref, *commit = head.split() or [""]
        task, _, round_ = ref.removeprefix(CANDIDATES).partition("/")
        if task.isdecimal() and round_.isdecimal():
            found.append(_candidate(commit, message, TaskId(int(task)), int(round_)))
    return [one for one in found if one is not None]


def highest_fence(git: Git, git_dir: Path, tasks: Sequence[TaskId] | None, *, form: str = "%(raw)") -> int:
    """The highest ledger number in a fence of these tasks, or of any; 0 where there is none.

    ``form`` is git's word for where a fence's text stands."""
    if tasks is None:
        refs = [FENCES.rstrip("/"), PUSH_FENCES.rstrip("/")]
    else:
        refs = [ref(task) for task in tasks for ref in (fence_ref, push_fence_ref)]
    if not refs:
        return 0
    listed = git.run(["for-each-ref", f"--format={form}%00", "--", *refs], git_dir=git_dir).stdout
    highest = 0
    for raw in listed.split(b"\0"):
        try:
            highest = max(highest, parse_fence(raw).sequence)
        except OutsideError:  # the line's end, or what a stranger wrote: whoever needs that fence says so
            continue
    return highest


def _descendants(git: Git, git_dir: Path, sha: Sha, of: Sha) -> frozenset[str]:
    """The commits between one and a later one that contain it; none where it is not here."""
    there = git.run(["cat-file", "-e", f"{sha}^{{commit}}"], git_dir=git_dir, check=False)
    if there.returncode != 0:
        return frozenset()
    return frozenset(git.text(["rev-list", "--ancestry-path", f"{sha}..{of}", "--"], git_dir=git_dir).split())


def _log(
    git: Git, git_dir: Path, form: str, main: Sha, known: Iterable[Sha], *, merges: bool = False
) -> list[tuple[str, str]]:
    """First lines and rests; a known commit that is not here is no bound."""
    bounds = [f"^{sha}" for sha in known]
    args = [*_PLAIN_LOG, "--ignore-missing", *(["--merges"] if merges else []), f"--format={form}"]
    told = git.run([*args, main, *bounds, "--"], git_dir=git_dir).stdout.decode("utf-8", "replace")
    split = (entry.partition("\n") for entry in told.split("\0") if entry)
    return [(head, message) for head, _, message in split]


def _candidate(
    commit: Sequence[str], message: str, task_id: TaskId | None = None, round_: int | None = None
) -> SeenCandidate | None:
    """The commit (SHA, tree, two parents) as a candidate; None where it does not carry all our trailers."""
    told = trailers(message)
    if len(commit) != 4 or not could_be_ours(told):
        return None
    subject = message.partition("\n")[0]
    return SeenCandidate(
        sha=Sha(commit[0]),
        tree=Sha(commit[1]),
        base_sha=Sha(commit[2]),
        head_sha=Sha(commit[3]),
        title=subject.partition(": ")[2] or subject,
        work_item=WorkItem(told[TASK]),
        nonce=told[NONCE],
        installation=told[INSTALLATION],
        sequence=int(told[SEQUENCE]),
        task_id=task_id,
        round=round_,
    )
