"""Whose tasks a mechanism looks after: its kill-switch and its repositories (S-21, S-22)."""

from dataclasses import dataclass

EVERY_REPOSITORY = "*"


@dataclass(frozen=True, slots=True)
class Scope:
    """Of leases (FR-7: outside of it law 1 is off, and laws 2 to 5 hold everywhere) and of each pass over tasks."""

    enabled: bool = True
    repos: frozenset[str] = frozenset({EVERY_REPOSITORY})
    self_repo: str = ""  # the repository of this very installation; all that is left where none is named

    @property
    def everything(self) -> bool:
        """Whether it leaves out no repository."""
        return self.enabled and EVERY_REPOSITORY in self.repos

    def covers(self, repo: str) -> bool:
        """Whether a repository's tasks are among them."""
        return self.everything or (self.enabled and repo in self.named())

    def named(self) -> frozenset[str]:
        """The repositories that the setting comes down to."""
        return self.repos or frozenset({self.self_repo} - {""})

    def shown(self) -> dict[str, object]:
        """What ``GET /queue`` says of it."""
        return {"enabled": self.enabled, "scope": sorted(self.named())}


EVERYTHING = Scope()
