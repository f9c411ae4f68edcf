"""The fence of a task on the local forge: one reference that says which candidate may still be merged.

It points at a small blob, ``candidate <sequence> <token>`` or ``revoked <sequence> <token>``. Must hold: it only ever
moves on, to a later sequence or from candidate to revoked, so that a merge which verifies its own blob can never become
possible again once it has become impossible.
"""

from dataclasses import dataclass

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import TaskId
from orchestrator.domain.task import Candidate

CANDIDATE = "candidate"
REVOKED = "revoked"
FENCES = "refs/orch/fence/"
PUSH_FENCES = "refs/orch/push-fence/"


@dataclass(frozen=True, slots=True)
class Fence:
    """What the blob says."""

    state: str
    sequence: int
    token: str

    def blob(self) -> bytes:
        """The blob's content, the same for the same fence."""
        return f"{self.state} {self.sequence} {self.token}\n".encode()

    def prepared(self, candidate: Candidate) -> bool:
        """Whether this is the candidate's own fence.

        :raises OutsideError: it stands at this or a later candidate that is not this one: it may not be moved back.
        """
        if self == fence_of(candidate):
            return True
        if self.sequence >= candidate.sequence:
            raise OutsideError(
                f"The fence of task {candidate.task_id} has moved on: {self.state} {self.sequence}, "
                f"not candidate {candidate.sequence}.",
                hint="This candidate was given up and cannot be merged any more.",
            )
        return False

    def bars(self, sequence: int) -> bool:
        """Whether no act of this number can ever pass this fence or one that follows it."""
        return self.sequence > sequence or (self.sequence == sequence and self.state == REVOKED)

    def excludes(self, candidate: Candidate) -> bool:
        """Whether no merge of this candidate can ever pass this fence or one that follows it."""
        return self.bars(candidate.sequence)


def fence_ref(task: TaskId) -> str:
    """The reference's name."""
    return f"{FENCES}{int(task)}"


def push_fence_ref(task: TaskId) -> str:
    """The reference that says up to which number of the ledger a task's pushes have been given up; absent: none."""
    return f"{PUSH_FENCES}{int(task)}"


def fence_of(candidate: Candidate) -> Fence:
    """The fence under which the candidate may be merged."""
    return Fence(CANDIDATE, candidate.sequence, candidate.fence)


def parse_fence(raw: bytes) -> Fence:
    """A blob's content as a fence.

    :raises OutsideError: somebody else wrote it.
    """
    words = raw.decode("utf-8", "replace").split()
    if len(words) != 3 or words[0] not in (CANDIDATE, REVOKED) or not words[1].isdecimal():
        raise OutsideError(
            "The fence holds what was not written by us.",
            hint="Has somebody changed refs/orch/fence by hand?",
        )
    return Fence(words[0], int(words[1]), words[2])
