"""What a look at an installation says, one thing at a time."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    NOTE = "note"  # worth knowing
    WARNING = "warning"  # some tasks will suffer
    FAILED = "failed"  # nothing will work until it is mended


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check says."""

    level: Level
    about: str
    text: str
    hint: str = ""
