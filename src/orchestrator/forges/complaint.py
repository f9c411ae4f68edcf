"""What about a repository's settings at a server will not work, or is weaker than it could be."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing, and what to do about it."""

    text: str
    hint: str
    prevents: bool  # nothing can be delivered like this
