"""The lines by which a candidate is known again wherever it lands, and which nobody else may write.

Must hold: no title can put such a line into our message, and a message that carries one anywhere is told from those
that do not (law 10). Only the last paragraph counts as trailers when we look for our own.
"""

import re
from collections.abc import Mapping

from orchestrator.domain.errors import InvariantError
from orchestrator.domain.ids import WorkItem
from orchestrator.rules.quoting import without_references

TASK = "Orch-Task"
NONCE = "Orch-Nonce"
INSTALLATION = "Orch-Installation"
SEQUENCE = "Orch-Sequence"
SUBJECT_LIMIT = 120  # characters
DIGITS_LIMIT = 18  # of a number: every database holds it, and no counter of ours comes near

_TRAILER = re.compile(r"([A-Za-z0-9-]+):[ \t]*(.*)")
_VALUE = re.compile(r"[A-Za-z0-9._-]{1,200}")
# Anywhere in the message, not only where git looks for trailers: a forge may put a message together anew.
_OURS = re.compile(r"^[^\w\n]*orch-[a-z]+[ \t]*[:=]", re.IGNORECASE | re.MULTILINE)


def candidate_message(work_item: WorkItem, title: str, nonce: str, installation: str, sequence: int) -> str:
    """M's message: one line for people, then the trailers by which we know it again.

    :raises InvariantError: a value could not stand in a trailer.
    """
    values = {TASK: work_item, NONCE: nonce, INSTALLATION: installation, SEQUENCE: str(sequence)}
    for key, value in values.items():
        if not _VALUE.fullmatch(value):
            raise InvariantError(f"{value!r} cannot be the value of {key}.")
    subject = f"Merge {work_item}: {without_references(one_line(title))}".rstrip(": ")[
        :SUBJECT_LIMIT
    ].rstrip()
    return "\n".join([subject, "", *(f"{key}: {value}" for key, value in values.items()), ""])


def has_our_trailers(message: str) -> bool:
    """True where a message carries a line that looks like one of our trailers (law 10: refused in agents' commits)."""
    # Every line break that Python or a terminal knows counts as one.
    return _OURS.search("\n".join(message.splitlines())) is not None


def trailers(message: str) -> dict[str, str]:
    """The ``Key: value`` lines of a message's last paragraph, if it is not also the first and holds nothing else."""
    paragraphs = [part for part in re.split(r"\n[ \t]*\n", message.strip("\n")) if part.strip()]
    if len(paragraphs) < 2:
        return {}
    found = [_TRAILER.fullmatch(line) for line in paragraphs[-1].strip().split("\n")]
    if not all(found):
        return {}
    return {match.group(1): match.group(2).strip() for match in found if match is not None}


def could_be_ours(values: Mapping[str, str]) -> bool:
    """Whether all our trailers are there, with values that we could have written: anybody may write others."""
    if not all(_VALUE.fullmatch(values.get(key, "")) for key in (TASK, NONCE, INSTALLATION)):
        return False
    return whole_number(values.get(SEQUENCE, "")) is not None


def whole_number(text: str) -> int | None:
    """Digits that a stranger may have written, as the number; None where it is none, or none of ours."""
    plain = text.isascii() and text.isdecimal() and len(text) <= DIGITS_LIMIT
    return int(text) if plain else None


def one_line(text: str) -> str:
    """Free text on one line: every run of white space and unprintable characters becomes one space."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
