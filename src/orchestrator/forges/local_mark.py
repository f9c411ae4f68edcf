"""The mark of a local forge: one reference that says which start of which database may act on it.

``refs/orch/installation`` points at a small blob, ``installation <id> <generation> <start id>``. It moves by
compare-and-swap only, and every transaction that a merge hangs on verifies it.
"""

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.installation import InstallationMark

MARK = "refs/orch/installation"
_WORD = "installation"


def mark_blob(mark: InstallationMark) -> bytes:
    """The blob's content, the same for the same mark."""
    return f"{_WORD} {mark.installation} {mark.generation} {mark.start_id}\n".encode()


def parse_mark(raw: bytes) -> InstallationMark:
    """A blob's content as a mark.

    :raises OutsideError: somebody else wrote it.
    """
    words = raw.decode("utf-8", "replace").split()
    if len(words) != 4 or words[0] != _WORD or not (words[2].isascii() and words[2].isdecimal()):
        raise OutsideError(
            f"{MARK} holds what was not written by us.", hint="Has somebody changed it by hand?"
        )
    return InstallationMark(words[1], int(words[2]), words[3])
