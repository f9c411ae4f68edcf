"""What an agent is told: one record, kept as ``brief.json``, for programs.

Ticket text is hostile data (law 10): it is a value in JSON here and a fenced quotation in the prompt, never a
path, a template or a command.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from orchestrator.domain.errors import OutsideError
from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import RepoName, Sha, WorkItem
from orchestrator.domain.stage import Role, Stage
from orchestrator.runtime.files import read_bounded, replace_durably

BRIEF_FILE = "brief.json"
MAX_BRIEF = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Brief:
    """One piece of work for one role."""

    work_item: WorkItem
    role: Role
    stage: Stage
    round: int
    attempt: int
    title: str
    body: str
    language: str  # "en" | "ru"
    repo: RepoName
    date: str = ""  # today, YYYY-MM-DD, for ``created_at``
    model: str = ""  # for ``model_used``
    base_sha: Sha | None = None
    head_sha: Sha | None = None
    gated_sha: Sha | None = None
    candidate_sha: Sha | None = None
    staging_url: str | None = None
    findings: tuple[Finding, ...] = ()
    notes: str = ""  # why an earlier attempt or round was not accepted, in words
    documents_expected: tuple[str, ...] = ()  # names in documents_dir; empty: what the role always writes
    documents_dir: str = ""  # relative to the worktree; empty: ``docs/work-items/<ID>``

    @property
    def folder(self) -> str:
        """Where the documents go, relative to the worktree."""
        return self.documents_dir or f"docs/work-items/{self.work_item}"


def write_brief_file(brief: Brief, run_dir: Path) -> Path:
    """``brief.json`` (0600) in the run folder, which exists.

    :raises OSError: it cannot be written.
    """
    place = run_dir / BRIEF_FILE
    data = {**asdict(brief), "documents_dir": brief.folder}
    replace_durably(place, json.dumps(data, ensure_ascii=False, indent=1).encode(errors="replace"))
    return place


def read_brief(path: Path) -> Brief | None:
    """A brief that was written with :func:`write_brief_file`; None where it cannot be read."""
    try:
        data = json.loads(read_bounded(path, MAX_BRIEF))
    except (OSError, OutsideError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    try:
        return Brief(
            work_item=WorkItem(str(data["work_item"])),
            role=Role(str(data["role"])),
            stage=Stage(str(data["stage"])),
            round=int(str(data["round"])),
            attempt=int(str(data["attempt"])),
            title=str(data["title"]),
            body=str(data["body"]),
            language=str(data["language"]),
            repo=RepoName(str(data["repo"])),
            date=str(data.get("date") or ""),
            model=str(data.get("model") or ""),
            base_sha=_sha(data, "base_sha"),
            head_sha=_sha(data, "head_sha"),
            gated_sha=_sha(data, "gated_sha"),
            candidate_sha=_sha(data, "candidate_sha"),
            staging_url=str(data["staging_url"]) if data.get("staging_url") else None,
            findings=_findings(data.get("findings")),
            notes=str(data.get("notes") or ""),
            documents_expected=_names(data.get("documents_expected")),
            documents_dir=str(data.get("documents_dir") or ""),
        )
    except (KeyError, ValueError):
        return None


def _sha(data: Mapping[str, object], key: str) -> Sha | None:
    value = data.get(key)
    return Sha(value) if isinstance(value, str) and value else None


def _names(value: object) -> tuple[str, ...]:
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def _findings(value: object) -> tuple[Finding, ...]:
    entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
    return tuple(
        Finding(
            str(entry.get("message", "")),
            entry["file"] if isinstance(entry.get("file"), str) else None,
            entry["line"] if isinstance(entry.get("line"), int) else None,
        )
        for entry in entries
    )
