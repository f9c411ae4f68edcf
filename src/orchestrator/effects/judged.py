"""Reads what an intent carries: values we stored ourselves, checked again on the way out."""

from collections.abc import Mapping

from orchestrator.domain.effect import Intent
from orchestrator.domain.errors import InvariantError
from orchestrator.domain.ids import Sha, TaskId
from orchestrator.domain.task import Candidate


def text(intent: Intent, key: str) -> str:
    """A text that the intent must carry.

    :raises InvariantError: it does not.
    """
    value = intent.judged.get(key)
    if not isinstance(value, str):
        raise InvariantError(f"the intent of {intent.name} carries no {key}")
    return value


def optional_text(intent: Intent, key: str) -> str | None:
    """A text that may be absent."""
    value = intent.judged.get(key)
    return value if isinstance(value, str) else None


def number(intent: Intent, key: str) -> int:
    """A whole number that the intent must carry.

    :raises InvariantError: it does not.
    """
    value = intent.judged.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvariantError(f"the intent of {intent.name} carries no number {key}")
    return value


def mapping(intent: Intent, key: str) -> Mapping[str, object]:
    """A record that the intent must carry.

    :raises InvariantError: it does not.
    """
    value = intent.judged.get(key)
    if not isinstance(value, dict):
        raise InvariantError(f"the intent of {intent.name} carries no record {key}")
    return value


def of_candidate(candidate: Candidate) -> dict[str, object]:
    """A candidate as an intent carries it."""
    return {
        "task_id": candidate.task_id,
        "round": candidate.round,
        "sha": candidate.sha,
        "tree": candidate.tree,
        "base_sha": candidate.base_sha,
        "head_sha": candidate.head_sha,
        "nonce": candidate.nonce,
        "sequence": candidate.sequence,
        "fence": candidate.fence,
    }


def candidate(intent: Intent) -> Candidate:
    """The candidate that an intent carries.

    :raises InvariantError: it carries none.
    """
    record = mapping(intent, "candidate")
    try:
        return Candidate(
            task_id=TaskId(int(str(record["task_id"]))),
            round=int(str(record["round"])),
            sha=Sha(str(record["sha"])),
            tree=Sha(str(record["tree"])),
            base_sha=Sha(str(record["base_sha"])),
            head_sha=Sha(str(record["head_sha"])),
            nonce=str(record["nonce"]),
            sequence=int(str(record["sequence"])),
            fence=str(record["fence"]),
        )
    except KeyError as missing:
        raise InvariantError(f"the candidate in the intent of {intent.name} lacks {missing}") from missing
