"""What every change at a forge elsewhere carries along, and how it is tried: fences and the installation's mark.

Must hold: a fence only ever moves on; the mark is moved with every act, to a note that says the same, so that whoever
does not hold it is refused by the forge's own git (law 5). What is planned is planned on what was looked at just then.

On failure: ``InstallationChanged`` where the mark is another one, another ``OutsideError`` where the forge refused.
"""

from collections.abc import Callable

from orchestrator.domain.errors import InstallationChanged, OutsideError
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.domain.installation import InstallationMark
from orchestrator.domain.task import Candidate
from orchestrator.forges.forge import PushCall
from orchestrator.forges.local_fence import CANDIDATE, Fence, fence_of, fence_ref, parse_fence, push_fence_ref
from orchestrator.forges.local_mark import MARK, mark_blob, parse_mark
from orchestrator.forges.mirror import HEADS, Mirror, PushRefused
from orchestrator.runtime.git_refs import RefChange

RACE_TRIES = 5  # each is lost to another task of the same repository, or to a revoke


class Guards:
    """Those of one repository, as our copy shows them since the last look."""

    def __init__(self, mirror: Mirror, repo: RepoName, default_branch: str) -> None:
        self.mirror = mirror
        self.repo = repo
        self.default_branch = default_branch

    def race(
        self,
        plan: Callable[[], list[RefChange]],
        what: str,
        judge: Callable[[PushRefused], None] = lambda refused: None,
    ) -> None:
        """Look, plan, push; again where somebody was faster. A plan without a change has nothing to do; ``judge`` may
        raise where trying again is of no use.

        :raises OutsideError: it keeps being refused.
        """
        refused: PushRefused | None = None
        for _ in range(RACE_TRIES):
            self.mirror.look()
            changes = plan()
            if not changes:
                return
            try:
                self.mirror.change(*changes)
            except PushRefused as error:
                judge(error)
                refused = error  # planned anew on what stands there now
                continue
            return
        raise OutsideError(
            f"{self.repo}: {what} was not moved: {refused.message if refused else ''}",
            hint="It is tried again.",
        )

    def expect(self, branch: str, expected: Sha | None) -> None:
        """Go on only where a branch is at ``expected`` (None: absent).

        :raises OutsideError: it is not.
        """
        tip = self.mirror.read(HEADS + branch)
        if tip != expected:
            raise OutsideError(
                f"The branch {branch} is at {tip or 'nothing'}, not at {expected or 'nothing'}."
            )

    def fence(self, ref: str) -> tuple[Sha | None, Fence | None]:
        """Where a fence stands, as the note's name and as what it says."""
        at = self.mirror.read(ref)
        return (None, None) if at is None else (at, parse_fence(self.mirror.note_at(at)))

    def of_candidate(self, candidate: Candidate, held: InstallationMark | None) -> list[RefChange]:
        """The candidate's fence and the mark, each moved on to a note that says the same: what a push that brings M
        somewhere carries along.

        :raises InstallationChanged: the mark is another one.
        :raises OutsideError: M was given up, is not what the candidate says, or main has moved.
        """
        ref = fence_ref(candidate.task_id)
        at, fence = self.fence(ref)
        if fence is None or not fence.prepared(candidate):
            raise OutsideError(f"The candidate {candidate.sha} is not prepared; it cannot be merged.")
        self.verify(candidate)
        self.expect(self.default_branch, candidate.base_sha)
        again = RefChange(ref, at, self.mirror.note(fence_of(candidate).blob()))
        return [again, *self.marked(held)]

    def mark(self) -> tuple[Sha | None, InstallationMark | None]:
        """The mark, as the note's name and as what it says."""
        at = self.mirror.read(MARK)
        return (None, None) if at is None else (at, parse_mark(self.mirror.note_at(at)))

    def marked(self, held: InstallationMark | None) -> list[RefChange]:
        """The mark as it is, moved on to a note that says the same.

        :raises InstallationChanged: it is another one.
        """
        at, mark = self.mark()
        if mark != held:
            raise changed(self.repo)
        return [RefChange(MARK, at, self.mirror.note(mark_blob(held)))] if held is not None else []

    def sent(self, call: PushCall) -> RefChange:
        """The task's push fence, moved on to this call by the very push that it guards.

        :raises OutsideError: it stands at this call or at a later one.
        """
        ref = push_fence_ref(call.task_id)
        at, fence = self.fence(ref)
        if fence is not None and fence.bars(call.sequence):
            raise OutsideError(f"Push {call.sequence} of task {call.task_id} was given up.")
        return RefChange(ref, at, self.mirror.note(Fence(CANDIDATE, call.sequence, "sent").blob()))

    def verify(self, candidate: Candidate) -> None:
        """M's parents are what the candidate was judged on.

        :raises OutsideError: they are not.
        """
        with self.mirror.asking():
            listed = self.mirror.git.text(
                ["rev-list", "--parents", "--no-walk", candidate.sha], git_dir=self.mirror.path
            )
        if listed.split() != [candidate.sha, candidate.base_sha, candidate.head_sha]:
            raise OutsideError(
                f"{candidate.sha} is not the merge of {candidate.head_sha} into {candidate.base_sha}."
            )


def changed(repo: RepoName) -> InstallationChanged:
    """What is said where the mark is another one."""
    return InstallationChanged(
        f"{repo} has been claimed by another start or another database; nothing was done there.",
        hint="`orch restore status` tells more.",
    )
