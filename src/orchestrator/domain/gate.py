"""A gate's judgement: evidence in, one of three answers out."""

from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """Answer of a gate."""

    PASS = "pass"
    FAIL = "fail"
    WAIT = "wait"  # the evidence is not there yet; nothing is wrong


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing a gate objects to, written so that a model or a person can act on it."""

    message: str  # what is wrong and what was expected
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = (
            f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        )
        return place + self.message


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate says, why, and on what evidence (kept with the transition's event)."""

    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    evidence: dict[str, object] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """True iff the edge may be taken."""
        return self.verdict is Verdict.PASS

    def brief(self) -> str:
        """The reason and findings as text for the next agent."""
        return "\n".join([self.reason, *(f"- {finding}" for finding in self.findings)])


def passed(reason: str = "", **evidence: object) -> GateResult:
    """A pass with its evidence."""
    return GateResult(Verdict.PASS, reason, evidence=evidence)


def failed(reason: str, *findings: Finding, **evidence: object) -> GateResult:
    """A failure with its findings."""
    return GateResult(Verdict.FAIL, reason, findings, evidence)


def waiting(reason: str, **evidence: object) -> GateResult:
    """Not yet: what is waited for."""
    return GateResult(Verdict.WAIT, reason, evidence=evidence)
