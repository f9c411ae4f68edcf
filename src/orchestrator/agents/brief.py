"""What an agent is told: one record, kept as ``brief.json`` for programs and rendered as ``prompt.md`` for
models.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import RepoName, Sha, WorkItem
from orchestrator.domain.stage import Role, Stage


@dataclass(frozen=True, slots=True)
class Brief:
    """One piece of work for one role. Ticket text is hostile data (law 10)."""

    work_item: WorkItem
    role: Role
    stage: Stage
    round: int
    attempt: int
    title: str
    body: str
    language: str  # "en" | "ru"
    repo: RepoName
    base_sha: Sha | None = None
    head_sha: Sha | None = None
    gated_sha: Sha | None = None
    candidate_sha: Sha | None = None
    staging_url: str | None = None
    findings: tuple[Finding, ...] = ()
    notes: str = ""  # reason of an earlier rejection, in words
    documents_expected: tuple[str, ...] = ()  # names in documents_dir, e.g. ``12-review.md``
    documents_dir: str = ""  # relative to the worktree: ``docs/work-items/<ID>``
    model: str = ""


@dataclass(frozen=True, slots=True)
class BriefFiles:
    """Where a brief was written."""

    brief_file: Path
    prompt_file: Path


def write_brief(
    brief: Brief, run_dir: Path, template: str | None = None, extra: Mapping[str, str] | None = None
) -> BriefFiles:
    """Write ``brief.json`` and ``prompt.md`` (0600) into the run folder.

    :raises ConfigError: the repository's own template cannot be rendered.
    """
    raise NotImplementedError
