"""What a run has left in its workspace, as values."""

from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import Sha
from orchestrator.workspace.commits import CommitInfo


@dataclass(frozen=True, slots=True)
class Stray:
    """Work that is not on the task's branch and is kept under a rescue reference."""

    ref: str
    sha: Sha
    what: str  # a few words for people: where it was found


@dataclass(frozen=True, slots=True)
class Harvest:
    """The branch as it now stands, and everything that has to be said about it."""

    head: Sha
    commits: tuple[CommitInfo, ...]  # from the base to the head, parents first
    leftover: Sha | None  # our commit of what was left uncommitted; the last of ``commits``
    stray: tuple[Stray, ...]
    problems: tuple[Finding, ...]

    @property
    def dirty(self) -> bool:
        """True where the agent had left work uncommitted on its branch."""
        return self.leftover is not None


@dataclass(frozen=True, slots=True)
class Saved:
    """What a workspace held that nothing else reached, now kept; ``unsaved`` says what could not be kept."""

    stray: tuple[Stray, ...] = ()
    unsaved: tuple[str, ...] = ()
    kept: Path | None = None  # where the folder was moved to, if something could not be kept

    def __add__(self, other: "Saved") -> "Saved":
        return Saved(self.stray + other.stray, self.unsaved + other.unsaved, other.kept or self.kept)

    def moved_to(self, kept: Path | None) -> "Saved":
        """The same, with the place of the folder."""
        return replace(self, kept=kept)

    def findings(self) -> tuple[Finding, ...]:
        """Said so that an agent or a person can act on it."""
        place = f" The folder is kept as {self.kept}." if self.kept else ""
        return (
            *(Finding(f"{one.what}: not part of the change, kept as {one.ref}.") for one in self.stray),
            *(Finding(f"Could not be rescued: {text}{place}") for text in self.unsaved),
        )


@dataclass(frozen=True, slots=True)
class Removed:
    """The workspace is gone. ``kept`` is where its folder was moved to if something in it could not be rescued."""

    stray: tuple[Stray, ...]
    kept: Path | None = None
