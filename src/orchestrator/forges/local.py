"""The local forge: a bare git repository on this machine, with pull requests as files beside its references.

Must hold: main moves only in :meth:`LocalForge.merge`, in one transaction that git itself refuses unless the
candidate's fence stands and main still is the candidate's first parent (law 5); the fence only ever moves on. Whatever
moves main or a fence verifies the installation's mark in the same transaction. Facts are read from git each time;
nothing about a merge is remembered.

On failure: ``AuthorityUnreachable`` where the repository cannot be asked, another ``OutsideError`` where it refused.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.domain.errors import AuthorityUnreachable, GitError, InstallationChanged, OutsideError
from orchestrator.domain.ids import RepoName, Sha, TaskId
from orchestrator.domain.installation import InstallationMark, SeenCandidate
from orchestrator.domain.task import Candidate, Landed
from orchestrator.forges import local_traces
from orchestrator.forges.forge import PullRequest, PushCall
from orchestrator.forges.local_fence import (
    REVOKED,
    Fence,
    fence_of,
    fence_ref,
    parse_fence,
    push_fence_ref,
)
from orchestrator.forges.local_mark import MARK, mark_blob, parse_mark
from orchestrator.forges.local_pulls import LocalPulls, PullRecord
from orchestrator.forges.local_traces import CANDIDATES
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.git import Git, git_error
from orchestrator.runtime.git_refs import LOCK_WAIT_S, RefChange, References, RefsRefused
from orchestrator.runtime.git_transfer import transfer

HEADS = "refs/heads/"
RACE_TRIES = 5  # a fence moves once or twice in its life


class LocalForge:
    """One bare repository; see :class:`~orchestrator.forges.forge.Forge`. Safe for many threads and processes."""

    def __init__(
        self,
        git: Git,
        path: Path,
        repo: RepoName,
        default_branch: str,
        *,
        clock: Clock,
        entropy: Entropy,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> None:
        """``lock_wait_s`` is how long another program's lock in the repository is waited for, in seconds."""
        self.repo = repo
        self.default_branch = default_branch
        self.path = path
        self._git = git
        self._refs = References(git, path, clock, entropy, wait_s=lock_wait_s)
        self._pulls = LocalPulls(path / "orch" / "pulls", clock)

    def fetch_url(self) -> str:
        """The repository's path."""
        return str(self.path)

    def tip(self, branch: str) -> Sha | None:
        """The branch's tip, None where there is no such branch."""
        with self._asking():
            return self._refs.read(HEADS + branch)

    def contains(self, descendant: Sha, ancestor: Sha) -> bool:
        """True iff ``ancestor`` is ``descendant`` or one of its ancestors; an unknown ancestor is none."""
        with self._asking():
            return self._has(ancestor) and self._is_ancestor(ancestor, descendant)

    # -- the installation's mark -------------------------------------------------------------------------------

    def installation(self) -> InstallationMark | None:
        """Which start of which database claimed the repository last; None where none ever has."""
        with self._asking():
            at = self._refs.read(MARK)
            return parse_mark(self._blob(at)) if at is not None else None

    def claim_installation(self, held: InstallationMark | None, mark: InstallationMark) -> None:
        """Set the mark iff it still is ``held`` (None: absent).

        :raises InstallationChanged: it is another one.
        """
        self._reachable()
        old = self._stored(mark_blob(held)) if held is not None else None
        try:
            self._refs.change(RefChange(MARK, old, self._stored(mark_blob(mark))))
        except RefsRefused as error:
            raise _changed(self.repo) from error

    def merged_since(self, known: Sequence[Sha]) -> Sequence[SeenCandidate]:
        """Candidates of anybody's on main that no commit in ``known`` contains, oldest first."""
        with self._asking():
            main = self._refs.read(HEADS + self.default_branch)
            return [] if main is None else local_traces.merged(self._git, self.path, main, known)

    def candidates(self) -> Sequence[SeenCandidate]:
        """Every candidate that was ever prepared here."""
        with self._asking():
            return local_traces.kept(self._git, self.path)

    def highest_fence(self, tasks: Sequence[TaskId] | None = None) -> int:
        """The highest ledger number in a fence of these tasks, or of any; 0 where there is none."""
        with self._asking():
            return local_traces.highest_fence(self._git, self.path, tasks)

    # -- branches ----------------------------------------------------------------------------------------------

    def push(
        self, source: Path, sha: Sha, branch: str, expected: Sha | None, *, call: PushCall | None = None
    ) -> None:
        """Set a branch, never the default one, to ``sha`` iff it still is at ``expected``; repeating is harmless.

        :raises OutsideError: the branch has moved, the push was given up, or the objects are not complete or
            well-formed.
        """
        if branch == self.default_branch:
            raise OutsideError(f"{branch} is moved by merging alone.")
        self._reachable()
        if self.tip(branch) != sha:
            transfer(self._git, source / "objects", self.path, [sha])
            standing = [self._not_given_up(call)] if call is not None else []
            self._refs.change(RefChange(HEADS + branch, expected, sha), *standing)
        self._pulls.saw_head(branch, sha)

    def revoke_push(self, call: PushCall, token: str, *, held: InstallationMark | None = None) -> None:
        """Move the task's push fence on to this call. Safe to repeat.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: could not be done; nothing may be concluded.
        """
        self._reachable()
        ref = push_fence_ref(call.task_id)
        revoked = self._stored(Fence(REVOKED, call.sequence, token).blob())
        for _ in range(RACE_TRIES):
            old, fence = self._fence_at(ref)
            if fence is not None and fence.sequence >= call.sequence:
                return
            try:
                self._change(held, RefChange(ref, old, revoked))
            except RefsRefused:
                continue  # another revoke came first: look again
            return
        raise OutsideError(f"The push fence of task {call.task_id} keeps moving.", hint="It is tried again.")

    def delete_branch(self, branch: str, expected: Sha) -> None:
        """Remove a branch, never the default one, iff it still is at ``expected``; an absent one is left alone.

        :raises OutsideError: the branch has moved.
        """
        if branch == self.default_branch:
            raise OutsideError(f"{branch} is never removed.")
        if self.tip(branch) is not None:
            self._pulls.saw_head(branch, expected)
            self._refs.change(RefChange(HEADS + branch, expected, None))

    # -- pull requests -----------------------------------------------------------------------------------------

    def pull_request(self, number: int) -> PullRequest | None:
        """One pull request, None where there is none of this number."""
        self._reachable()
        record = self._pulls.find(number)
        return self._shown(record) if record is not None else None

    def pull_requests(self, branch: str) -> Sequence[PullRequest]:
        """All pull requests whose head is ``branch``, oldest first."""
        self._reachable()
        return [self._shown(record) for record in self._pulls.of_branch(branch)]

    def open_pr(self, branch: str, title: str, body: str) -> PullRequest:
        """Open a pull request against the default branch; a branch has at most one that is open.

        :raises OutsideError: there is no such branch.
        """
        head, main = self.tip(branch), self.tip(self.default_branch)
        if head is None or main is None:
            raise OutsideError(
                f"There is no branch {branch} to open a pull request for.", hint="Push it first."
            )
        return self._shown(self._pulls.open(branch, title, body, base=main, head=head))

    def close_pr(self, number: int) -> None:
        """Close one without merging; closing a closed one does nothing."""
        self._reachable()
        self._pulls.close(number)

    # -- the merge ---------------------------------------------------------------------------------------------

    def prepare_merge(
        self, candidate: Candidate, source: Path, branch: str, *, held: InstallationMark | None = None
    ) -> None:
        """Take M's objects in, keep them alive, and set up the fence. Safe to repeat; never un-revokes.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: M is not what the candidate says, or was given up already.
        """
        self._reachable()
        transfer(self._git, source / "objects", self.path, [candidate.sha])
        self._verify(candidate)
        kept = f"{CANDIDATES}{int(candidate.task_id)}/{int(candidate.round)}"
        known = self._refs.read(kept)
        if known not in (None, candidate.sha):
            raise OutsideError(
                f"Round {candidate.round} of task {candidate.task_id} already has a candidate {known}."
            )
        name, (old, fence) = fence_ref(candidate.task_id), self._fence(candidate)
        wanted = self._stored(fence_of(candidate).blob())
        if fence is None or not fence.prepared(candidate):
            self._change(held, RefChange(kept, known, candidate.sha), RefChange(name, old, wanted))
        elif known is None:
            self._change(held, RefChange(kept, None, candidate.sha), RefChange(name, wanted, wanted))

    def prepared(self, candidate: Candidate) -> bool:
        """Whether M is kept here and the task's fence stands at it: what was revoked is not prepared any more."""
        with self._asking():
            kept = self._refs.read(f"{CANDIDATES}{int(candidate.task_id)}/{int(candidate.round)}")
            _, fence = self._fence(candidate)
        return kept == candidate.sha and fence == fence_of(candidate)

    def merge(
        self, candidate: Candidate, pr_number: int | None, *, held: InstallationMark | None = None
    ) -> None:
        """Move main to M: only from M's first parent, only while the candidate's fence and the mark stand (law 5).

        :raises InstallationChanged: the mark is not ``held``; nothing was merged by this call.
        :raises OutsideError: refused or failed; says nothing about the outcome.
        """
        self._reachable()
        self._verify(candidate)
        fence = self._stored(fence_of(candidate).blob())
        # The first parent comes from the candidate, never from a look at main: update-ref knows no fast-forward.
        self._change(
            held,
            RefChange(fence_ref(candidate.task_id), fence, fence),
            RefChange(HEADS + self.default_branch, candidate.base_sha, candidate.sha),
        )

    def landed(self, candidates: Sequence[Candidate]) -> Landed | None:
        """The last of these that is on main: by its nonce in a first-parent commit of main, or as an ancestor."""
        with self._asking():
            main = self._refs.read(HEADS + self.default_branch)
            if main is None and candidates:
                raise GitError(f"There is no branch {self.default_branch}.", hint="Was it removed by hand?")
            for candidate in reversed(candidates):
                if main and (landed := local_traces.landing(self._git, self.path, main, candidate)):
                    return landed
        return None

    def revoke_merge(self, candidate: Candidate, token: str, *, held: InstallationMark | None = None) -> None:
        """Move the fence on, so that no merge of this candidate can pass it any more. Safe to repeat.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: could not be done; nothing may be concluded.
        """
        self._reachable()
        revoked = self._stored(Fence(REVOKED, candidate.sequence, token).blob())
        for _ in range(RACE_TRIES):
            old, fence = self._fence(candidate)
            if fence is not None and fence.excludes(candidate):
                return
            try:
                self._change(held, RefChange(fence_ref(candidate.task_id), old, revoked))
            except RefsRefused:
                continue  # a prepare or another revoke came first: look again
            return
        raise OutsideError(f"The fence of task {candidate.task_id} keeps moving.", hint="It is tried again.")

    # -- private steps -----------------------------------------------------------------------------------------

    def _fence(self, candidate: Candidate) -> tuple[Sha | None, Fence | None]:
        return self._fence_at(fence_ref(candidate.task_id))

    def _fence_at(self, ref: str) -> tuple[Sha | None, Fence | None]:
        """Where a fence stands, as the blob's name and as what it says."""
        at = self._refs.read(ref)
        if at is None:
            return None, None
        return at, parse_fence(self._blob(at))

    def _not_given_up(self, call: PushCall) -> RefChange:
        """What the push's own transaction has to verify: the task's push fence still is where it was read.

        :raises OutsideError: it stands at this push or at a later one.
        """
        ref = push_fence_ref(call.task_id)
        at, fence = self._fence_at(ref)
        if fence is not None and fence.sequence >= call.sequence:
            raise OutsideError(f"Push {call.sequence} of task {call.task_id} was given up.")
        return RefChange(ref, at, at)

    def _change(self, held: InstallationMark | None, *changes: RefChange) -> None:
        """One transaction that the mark is verified in: it is ``held``, or absent."""
        mark = self._stored(mark_blob(held)) if held is not None else None
        try:
            self._refs.change(RefChange(MARK, mark, mark), *changes)
        except RefsRefused as error:
            if self._refs.read(MARK) != mark:
                raise _changed(self.repo) from error
            raise

    def _blob(self, at: Sha) -> bytes:
        return self._git.run(["cat-file", "blob", at], git_dir=self.path).stdout

    def _stored(self, blob: bytes) -> Sha:
        """A blob in the repository: a reference has to point at an object."""
        return Sha(self._git.text(["hash-object", "-w", "--stdin"], git_dir=self.path, input=blob))

    def _verify(self, candidate: Candidate) -> None:
        """M's parents are what the candidate was judged on."""
        listed = self._git.text(["rev-list", "--parents", "--no-walk", candidate.sha], git_dir=self.path)
        if listed.split() != [candidate.sha, candidate.base_sha, candidate.head_sha]:
            raise OutsideError(
                f"{candidate.sha} is not the merge of {candidate.head_sha} into {candidate.base_sha}."
            )

    def _has(self, sha: Sha) -> bool:
        found = self._git.run(["cat-file", "-e", f"{sha}^{{commit}}"], git_dir=self.path, check=False)
        return found.returncode == 0

    def _is_ancestor(self, ancestor: Sha, descendant: Sha) -> bool:
        """Of two commits that are there."""
        done = self._git.run(
            ["merge-base", "--is-ancestor", ancestor, descendant], git_dir=self.path, check=False
        )
        if done.returncode not in (0, 1):
            raise git_error("git merge-base", done)
        return done.returncode == 0

    def _shown(self, record: PullRecord) -> PullRequest:
        with self._asking():
            branch, default = HEADS + record.branch, HEADS + self.default_branch
            tips = self._refs.read_together(branch, default)
            head, main, base = tips[branch] or Sha(record.head_sha), tips[default], Sha(record.base_sha)
            merged = (
                main is not None
                and (tips[branch] is not None or self._has(head))
                and self._is_ancestor(head, main)
                and not (self._has(base) and self._is_ancestor(head, base))
            )
        state = "merged" if merged else "closed" if record.closed else "open"
        return PullRequest(
            record.number, record.branch, head, state, record.title, self._pulls.url(record.number)
        )

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """What cannot be read is unknown, which is not the same as absent (law 4)."""
        self._reachable()
        try:
            yield
        except GitError as error:
            raise AuthorityUnreachable(f"{self.path} cannot be read: {error}") from error

    def _reachable(self) -> None:
        if not (self.path / "HEAD").is_file():
            raise AuthorityUnreachable(
                f"The local forge {self.path} is not there.",
                hint="Was its folder moved, or its disk not mounted?",
            )


def _changed(repo: RepoName) -> InstallationChanged:
    return InstallationChanged(
        f"{repo} has been claimed by another start or another database; nothing was done there.",
        hint="`orch restore status` tells more.",
    )
