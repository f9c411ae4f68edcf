"""Everything of a forge elsewhere that git alone can state or do: branches, candidates, fences, and what has landed.

Must hold: each act is one push that moves a reference of ours together with what it guards, so that the forge's own git
refuses it once a fence has moved on (law 5): a task's fence for what concerns its merge, its push fence for a push, and
the installation's mark with either. A fence only ever moves on. Facts are read from the forge each time.

On failure: ``AuthorityUnreachable`` where the forge cannot be asked, another ``OutsideError`` where it refused.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

from orchestrator.domain.errors import GitError, OutsideError
from orchestrator.domain.ids import RepoName, Sha, TaskId
from orchestrator.domain.installation import InstallationMark, SeenCandidate
from orchestrator.domain.task import Candidate, Landed
from orchestrator.forges import local_traces
from orchestrator.forges.forge import PushCall
from orchestrator.forges.local_fence import (
    REVOKED,
    Fence,
    fence_of,
    fence_ref,
    push_fence_ref,
)
from orchestrator.forges.local_mark import MARK, mark_blob
from orchestrator.forges.local_traces import CANDIDATES
from orchestrator.forges.mirror import HEADS, Mirror, PushRefused
from orchestrator.forges.remote_guards import Guards, changed
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.git_refs import RefChange

DECLINED = "declined"  # by a rule of the forge's, and not because a reference has moved
RULES = ("GH006", "GH013")  # so GitHub numbers its complaints of protected branches and of rulesets


class MainShut(OutsideError):
    """A rule of the forge's keeps a push off the default branch; nothing was changed."""


class RemoteGit:
    """One repository's git at a forge elsewhere. Safe for many threads and processes."""

    def __init__(
        self, mirror: Mirror, repo: RepoName, default_branch: str, *, clock: Clock, settle_s: float
    ) -> None:
        """``settle_s``: for how long, in seconds, a merge that the forge has begun may still land after its pull
        request's head has moved away."""
        self.repo = repo
        self.default_branch = default_branch
        self.mirror = mirror
        self._guards = Guards(mirror, repo, default_branch)
        self._clock = clock
        self._settle_s = settle_s

    def tip(self, branch: str) -> Sha | None:
        """The branch's tip, None where there is no such branch."""
        return self.mirror.tip(HEADS + branch)

    def contains(self, descendant: Sha, ancestor: Sha) -> bool:
        """True iff ``ancestor`` is ``descendant`` or one of its ancestors; an unknown ancestor is none."""
        if not (self.mirror.has(ancestor) and self.mirror.has(descendant)):
            self.mirror.look()
        return self.mirror.has(ancestor) and self.mirror.is_ancestor(ancestor, descendant)

    # -- the installation's mark -------------------------------------------------------------------------------

    def installation(self) -> InstallationMark | None:
        """Which start of which database claimed the repository last; None where none ever has."""
        self.mirror.look()
        return self._guards.mark()[1]

    def claim_installation(self, held: InstallationMark | None, mark: InstallationMark) -> None:
        """Set the mark iff it still is ``held`` (None: absent).

        :raises InstallationChanged: it is another one.
        """

        def plan() -> list[RefChange]:
            at, known = self._guards.mark()
            if known != held:
                raise changed(self.repo)
            return [RefChange(MARK, at, self.mirror.note(mark_blob(mark)))]

        self._guards.race(plan, "its installation's mark")

    def merged_since(self, known: Sequence[Sha]) -> Sequence[SeenCandidate]:
        """Candidates of anybody's on main that no commit in ``known`` contains, oldest first."""
        self.mirror.look()
        main = self.mirror.read(HEADS + self.default_branch)
        with self.mirror.asking():
            return (
                []
                if main is None
                else local_traces.merged(self.mirror.git, self.mirror.path, main, known)
            )  # fmt: skip

    def candidates(self) -> Sequence[SeenCandidate]:
        """Every candidate that was ever prepared here."""
        self.mirror.look()
        with self.mirror.asking():
            return local_traces.kept(self.mirror.git, self.mirror.path)

    def highest_fence(self, tasks: Sequence[TaskId] | None = None) -> int:
        """The highest ledger number in a fence of these tasks, or of any; 0 where there is none."""
        self.mirror.look()
        with self.mirror.asking():
            git, path = self.mirror.git, self.mirror.path
            return local_traces.highest_fence(git, path, tasks, form="%(contents:subject)")

    # -- branches ----------------------------------------------------------------------------------------------

    def push(
        self, source: Path, sha: Sha, branch: str, expected: Sha | None, *, call: PushCall | None = None
    ) -> None:
        """Set a branch, never the default one, to ``sha`` iff it still is at ``expected``; repeating is harmless.

        :raises OutsideError: the branch has moved, the push was given up, or the objects are not complete.
        """
        if branch == self.default_branch:
            raise OutsideError(f"{branch} is moved by merging alone.")
        if self.tip(branch) == sha:
            return
        self.mirror.take_in(source, sha)

        def plan() -> list[RefChange]:
            self._guards.expect(branch, expected)
            change = RefChange(HEADS + branch, expected, sha)
            return [change, self._guards.sent(call)] if call is not None else [change]

        self._guards.race(plan, f"its branch {branch}")

    def revoke_push(self, call: PushCall, token: str, *, held: InstallationMark | None = None) -> None:
        """Move the task's push fence on to this call. Safe to repeat.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: could not be done; nothing may be concluded.
        """
        ref = push_fence_ref(call.task_id)

        def plan() -> list[RefChange]:
            at, fence = self._guards.fence(ref)
            if fence is not None and fence.bars(call.sequence):
                return []
            revoked = Fence(REVOKED, call.sequence, token)
            return [RefChange(ref, at, self.mirror.note(revoked.blob())), *self._guards.marked(held)]

        self._guards.race(plan, "a task's push fence")

    def delete_branch(self, branch: str, expected: Sha) -> None:
        """Remove a branch, never the default one, iff it still is at ``expected``; an absent one is left alone.

        :raises OutsideError: the branch has moved.
        """
        if branch == self.default_branch:
            raise OutsideError(f"{branch} is never removed.")
        if self.tip(branch) is not None:
            self.mirror.change(RefChange(HEADS + branch, expected, None))

    # -- the candidate -----------------------------------------------------------------------------------------

    def prepare(self, candidate: Candidate, source: Path, *, held: InstallationMark | None = None) -> None:
        """Have M kept at the forge, and the task's fence stand at it. Safe to repeat; never un-revokes.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: M is not what the candidate says, or was given up already.
        """
        self.mirror.take_in(source, candidate.sha)
        self._guards.verify(candidate)
        kept, ref = _kept(candidate), fence_ref(candidate.task_id)

        def plan() -> list[RefChange]:
            known, (at, fence) = self.mirror.read(kept), self._guards.fence(ref)
            if known not in (None, candidate.sha):
                raise OutsideError(
                    f"Round {candidate.round} of task {candidate.task_id} already has a candidate {known}."
                )
            if fence is not None and fence.prepared(candidate) and known is not None:
                return []
            stands = RefChange(ref, at, self.mirror.note(fence_of(candidate).blob()))
            keeps = [RefChange(kept, None, candidate.sha)] if known is None else []
            return [stands, *keeps, *self._guards.marked(held)]

        self._guards.race(plan, f"the candidate of task {candidate.task_id}")

    def prepared(self, candidate: Candidate) -> bool:
        """Whether M is kept and the task's fence stands at it: what was revoked is not prepared any more."""
        self.mirror.look()
        _, fence = self._guards.fence(fence_ref(candidate.task_id))
        return self.mirror.read(_kept(candidate)) == candidate.sha and fence == fence_of(candidate)

    def show(self, candidate: Candidate, branch: str, *, held: InstallationMark | None = None) -> None:
        """Make M the branch's tip in place of the head that it was made of, while its fence stands and main is its
        first parent. Safe to repeat.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: M was given up, or main or the branch has moved.
        """

        def plan() -> list[RefChange]:
            guards = self._guards.of_candidate(candidate, held)  # also where there is nothing to push
            if self.mirror.read(HEADS + branch) == candidate.sha:
                return []
            self._guards.expect(branch, candidate.head_sha)
            return [RefChange(HEADS + branch, candidate.head_sha, candidate.sha), *guards]

        self._guards.race(plan, f"its branch {branch}")

    def land(self, candidate: Candidate, branch: str, *, held: InstallationMark | None = None) -> None:
        """Move main to M itself, from its first parent and while its fence stands: one push of all three. A ``branch``
        that shows something else than what M was made of is noticed before.

        :raises InstallationChanged: the mark is not ``held``.
        :raises MainShut: the forge lets nobody, or not us, or not this commit, be pushed there; nothing was changed.
        :raises OutsideError: M was given up, or main or the branch has moved; or the push failed, which says nothing
            about its outcome.
        """
        main = HEADS + self.default_branch

        def plan() -> list[RefChange]:
            guards = self._guards.of_candidate(candidate, held)
            if self.mirror.read(HEADS + branch) != candidate.sha:
                self._guards.expect(branch, candidate.head_sha)
            return [RefChange(main, candidate.base_sha, candidate.sha), *guards]

        def judge(refused: PushRefused) -> None:
            if declined(refused, main):
                raise MainShut(
                    f"{self.repo}: {self.default_branch} takes no push: {refused.message}"
                ) from refused

        self._guards.race(plan, self.default_branch, judge)

    def message(self, sha: Sha) -> str:
        """A commit's message; it is one that :meth:`show` has shown."""
        with self.mirror.asking():
            told = self.mirror.git.run(
                ["log", "-1", "--no-show-signature", "--format=%B", sha], git_dir=self.mirror.path
            )
        return told.stdout.decode("utf-8", "replace")

    def landed(self, candidates: Sequence[Candidate]) -> Landed | None:
        """The last of these that is on main: by its nonce in a first-parent commit of main, or as an ancestor."""
        self.mirror.look()
        main = self.mirror.read(HEADS + self.default_branch)
        with self.mirror.asking():
            if main is None and candidates:
                raise GitError(f"There is no branch {self.default_branch}.", hint="Was it removed by hand?")
            for candidate in reversed(candidates):
                git, path = self.mirror.git, self.mirror.path
                if main and (landed := local_traces.landing(git, path, main, candidate)):
                    return landed
        return None

    def revoke(self, candidate: Candidate, token: str, *, held: InstallationMark | None = None) -> None:
        """Move the fence on and give each branch that shows M its own head back, in one push; then wait until what the
        forge may have begun before has ended. Safe to repeat.

        :raises InstallationChanged: the mark is not ``held``.
        :raises OutsideError: could not be done; nothing may be concluded.
        """
        ref = fence_ref(candidate.task_id)

        def plan() -> list[RefChange]:
            at, fence = self._guards.fence(ref)
            barred = fence if fence is not None and fence.excludes(candidate) else None
            shown = self._shown(candidate)
            if barred is not None and not shown:
                return []
            stands = barred or Fence(REVOKED, candidate.sequence, token)
            back = [RefChange(at_head, candidate.sha, candidate.head_sha) for at_head in shown]
            return [RefChange(ref, at, self.mirror.note(stands.blob())), *back, *self._guards.marked(held)]

        self._guards.race(plan, f"the fence of task {candidate.task_id}")
        if self.mirror.read(_kept(candidate)) is not None:  # else no merge of it was ever sent
            self._clock.wait(threading.Event(), self._settle_s)

    # -- private steps -----------------------------------------------------------------------------------------

    def _shown(self, candidate: Candidate) -> list[str]:
        """The branches whose tip is M, but for main."""
        heads = self.mirror.under(HEADS)
        main = HEADS + self.default_branch
        return [ref for ref, sha in heads.items() if sha == candidate.sha and ref != main]


def _kept(candidate: Candidate) -> str:
    return f"{CANDIDATES}{int(candidate.task_id)}/{int(candidate.round)}"


def declined(refused: PushRefused, ref: str) -> bool:
    """Whether a rule of the forge's has refused a push of a reference, so that another try is of no use."""
    said = next((line for line in refused.refs if line.startswith(f"{ref} ")), "")
    return DECLINED in said or any(number in refused.stderr for number in RULES)
