"""The catalogue of work-item documents and the judgement of their form.

``docs/work-items/<ID>/`` holds what the agents of a task write down for each other and for people. The catalogue says
which document exists, who writes it, in which stage, and when it has to be there; ``validate`` says what is wrong with
a folder. Pure functions over "path → bytes": what the folder holds at a commit is read by the caller, from git.

What must hold: nothing that is missing, misspelled, unreadable or of the wrong type passes in silence. Nothing here
raises on hostile content; what is wrong is a finding.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from orchestrator.domain.gate import Finding
from orchestrator.domain.stage import Role, Stage, Track
from orchestrator.work_items.fields import FieldReader, markdown_fields, yaml_fields
from orchestrator.work_items.reading import DocumentError, objection, shown
from orchestrator.work_items.verdict_documents import (
    Escalation,
    parse_review_verdict,
    parse_staging_log,
    parse_test_plan,
    parse_test_report,
    parse_track,
)

ROOT = "docs/work-items"
MAX_DOCUMENTS = (
    100  # of one work item; a folder that holds more was not written by hand or by an agent at work
)
MAX_FOLDER_BYTES = 8 * 1024 * 1024  # all documents together; bounds the time of one judgement
MAX_FINDINGS = 20  # of one document: enough for an author to act on, short enough to be read

_NUMBERED = re.compile(r"[0-9]{2}-[^/\x00-\x1f\x7f]+\.(md|yaml)")
_ADR = re.compile(r"06-adr/[0-9]{3}-[^/\x00-\x1f\x7f]+\.md")
_STAGES = list(Stage)


class DocumentStatus(StrEnum):
    """Values of ``status``. ``draft`` is refused by the gate: its author has not finished."""

    DRAFT = "draft"
    PROPOSED = "proposed"
    READY_FOR_REVIEW = "ready-for-review"
    ACCEPTED = "accepted"
    SUPERSEDED = "superseded"
    FINAL = "final"


class SchemaChanges(StrEnum):
    """Values of ``schema_changes`` in 10-tech-risks.md: the architect's word on whether stored data changes shape."""

    YES = "yes"
    NO = "no"


class Needed(StrEnum):
    """When a document has to be there."""

    ALWAYS = "always"
    ON_FULL_TRACK = "on the full track"
    ON_SCHEMA_CHANGE = "on the full track, when 10-tech-risks.md says `schema_changes: yes`"


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """One line of the catalogue. ``pattern`` is given where a kind has many documents."""

    name: str
    role: Role
    stage: Stage
    needed: Needed = Needed.ALWAYS
    pattern: re.Pattern[str] | None = None
    committed: bool = True  # 14 is kept with the task: the tree it speaks of is already built
    informational: bool = False  # no gate reads its fields, so that it may leave out ``escalate``
    machine_keys: Callable[[bytes, str], object] | None = None  # refuses with DocumentError

    def matches(self, path: str) -> bool:
        """True for a path, relative to the work item's folder, of this kind."""
        return self.pattern.fullmatch(path) is not None if self.pattern else path == self.name


def _schema_changes(data: bytes, file: str) -> SchemaChanges | None:
    _, reader = markdown_fields(data, file)
    choice = reader.choice("schema_changes", SchemaChanges)
    reader.refuse_if_objected()
    return choice


CATALOGUE: tuple[DocumentKind, ...] = (
    DocumentKind("01-brd.md", Role.ANALYST, Stage.ANALYSIS),
    DocumentKind("02-trz.md", Role.ANALYST, Stage.ANALYSIS, machine_keys=parse_track),
    DocumentKind("03-acceptance.md", Role.ANALYST, Stage.ANALYSIS),
    DocumentKind("04-test-plan.yaml", Role.ANALYST, Stage.ANALYSIS, machine_keys=parse_test_plan),
    DocumentKind("06-adr/NNN-*.md", Role.ARCHITECT, Stage.ARCHITECTURE, Needed.ON_FULL_TRACK, _ADR),
    DocumentKind(
        "08-data-requirements.md",
        Role.ARCHITECT,
        Stage.ARCHITECTURE,
        Needed.ON_SCHEMA_CHANGE,
        informational=True,
    ),
    DocumentKind(
        "10-tech-risks.md",
        Role.ARCHITECT,
        Stage.ARCHITECTURE,
        Needed.ON_FULL_TRACK,
        machine_keys=_schema_changes,
    ),
    DocumentKind("12-review.md", Role.REVIEWER, Stage.REVIEW, machine_keys=parse_review_verdict),
    DocumentKind("13-test-report.md", Role.TESTER, Stage.TESTING, machine_keys=parse_test_report),
    DocumentKind(
        "14-staging-log.md",
        Role.DEPLOYER,
        Stage.DEPLOY_STAGING,
        committed=False,
        machine_keys=parse_staging_log,
    ),
)


def folder(work_item: str) -> str:
    """The work item's folder in the repository, without a slash at its end."""
    return f"{ROOT}/{work_item}"


def in_folder(files: Mapping[str, bytes], work_item: str) -> dict[str, bytes]:
    """Of files named by their path in the repository, the work item's own, named relative to its folder."""
    prefix = folder(work_item) + "/"
    return {path.removeprefix(prefix): data for path, data in files.items() if path.startswith(prefix)}


def kind_of(path: str) -> DocumentKind | None:
    """The catalogue's line for a path relative to the work item's folder."""
    return next((kind for kind in CATALOGUE if kind.matches(path)), None)


def written_by(role: Role) -> tuple[DocumentKind, ...]:
    """What a role writes; empty for the developer, whose work is the change itself."""
    return tuple(kind for kind in CATALOGUE if kind.role is role)


def schema_changes(documents: Mapping[str, bytes]) -> SchemaChanges | None:
    """The architect's word in 10-tech-risks.md; ``None`` while there is none that can be read."""
    data = documents.get("10-tech-risks.md")
    if data is None:
        return None
    try:
        return _schema_changes(data, "10-tech-risks.md")
    except DocumentError:
        return None


def required(stage: Stage, track: Track, *, schema: SchemaChanges | None) -> tuple[DocumentKind, ...]:
    """What the folder must hold when a task leaves ``stage``: the documents of this stage and of those before it."""
    return tuple(
        kind
        for kind in CATALOGUE
        if _reached(kind, stage)
        and (kind.committed or kind.stage is stage)
        and (kind.needed is Needed.ALWAYS or track is Track.FULL)
        and (kind.needed is not Needed.ON_SCHEMA_CHANGE or schema is SchemaChanges.YES)
    )


def validate(
    documents: Mapping[str, bytes], *, work_item: str, stage: Stage, track: Track
) -> tuple[Finding, ...]:
    """Everything that is wrong with a work item's folder when its task is to leave ``stage``; empty when all is well.

    ``documents``: path relative to the folder → content. Documents of later stages (left by an earlier round) are
    not judged; a document of this stage or an earlier one is, also where it would not have to be there.
    """
    findings: list[Finding] = []
    if len(documents) > MAX_DOCUMENTS:
        message = f"{len(documents)} files; expected at most {MAX_DOCUMENTS}"
        return (Finding(message, folder(work_item)),)
    size = sum(map(len, documents.values()))
    if size > MAX_FOLDER_BYTES:
        return (Finding(f"{size} bytes; expected at most {MAX_FOLDER_BYTES}", folder(work_item)),)
    for kind in required(stage, track, schema=schema_changes(documents)):
        if not any(kind.matches(path) for path in documents):
            findings.append(_missing(kind, documents, work_item))
    for path in sorted(documents):
        found = kind_of(path)
        if found is None:
            findings.extend(_name_findings(path, work_item))
        elif _reached(found, stage):
            findings.extend(_shortened(_document_findings(found, path, documents[path], work_item)))
    return tuple(findings)


def _reached(kind: DocumentKind, stage: Stage) -> bool:
    return _STAGES.index(kind.stage) <= _STAGES.index(stage)


def _missing(kind: DocumentKind, documents: Iterable[str], work_item: str) -> Finding:
    others = [path for path in documents if kind_of(path) is None]
    near = get_close_matches(kind.name.lower(), [path.lower() for path in others], n=1, cutoff=0.7)
    hint = f" (is {shown(next(path for path in others if path.lower() == near[0]))} meant?)" if near else ""
    what = f"the {kind.role.value} to write it; it is needed {kind.needed.value}"
    return Finding(f"the document is missing{hint}; expected {what}", f"{folder(work_item)}/{kind.name}")


def _name_findings(path: str, work_item: str) -> Iterable[Finding]:
    # Other numbered documents are the team's own; anything else here would end up in every reader's way.
    if not _NUMBERED.fullmatch(path):
        expected = (
            "documents named NN-name.md or NN-name.yaml, decisions in 06-adr/NNN-name.md, nothing else here"
        )
        yield objection(
            f"{folder(work_item)}/{_one_line(path)}", None, "not a document of a work item", expected
        )


def _document_findings(kind: DocumentKind, path: str, data: bytes, work_item: str) -> tuple[Finding, ...]:
    file = f"{folder(work_item)}/{_one_line(path)}"
    findings: list[Finding] = []
    try:
        reader = _opened(data, file)
    except DocumentError as error:
        return error.findings
    _check_common(kind, reader, work_item)
    findings.extend(reader.findings)
    if kind.machine_keys is not None:
        try:
            kind.machine_keys(data, file)
        except DocumentError as error:
            findings.extend(error.findings)
    return tuple(sorted(findings, key=lambda finding: finding.line or 0))


def _opened(data: bytes, file: str) -> FieldReader:
    if file.endswith(".yaml"):
        return yaml_fields(data, file)
    front, reader = markdown_fields(data, file)
    if not _says_something(front.body):
        found = "nothing but headings and comments below the front matter"
        reader.findings.append(objection(file, front.body_line, found, "text"))
    return reader


def _check_common(kind: DocumentKind, reader: FieldReader, work_item: str) -> None:
    reader.exactly("work_item", work_item)
    reader.exactly("stage", kind.stage.value)
    reader.exactly("author_agent", kind.role.value)
    status = reader.choice("status", DocumentStatus)
    if status is DocumentStatus.DRAFT:
        others = " | ".join(member.value for member in DocumentStatus if member is not DocumentStatus.DRAFT)
        reader.object_to("status", "`status` is draft: its author has not finished", others)
    reader.moment("created_at")
    reader.text("model_used", "the name of the model that wrote the document")
    reader.choice("escalate", Escalation, required=not kind.informational, empty=True)


def _shortened(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    if len(findings) <= MAX_FINDINGS:
        return findings
    rest = len(findings) - MAX_FINDINGS
    return (*findings[:MAX_FINDINGS], Finding(f"and {rest} more of this kind", findings[0].file))


def _says_something(body: str) -> bool:
    """True when anything is left once headings, comments and empty table lines are taken away."""
    for line in _without_comments(body).split("\n"):
        text = line.strip()
        if text and not text.startswith("#") and text.strip("|-: "):
            return True
    return False


def _without_comments(text: str) -> str:
    # By hand: a regular expression would run to the end of the file once for each comment never closed.
    parts = []
    position = 0
    while (start := text.find("<!--", position)) >= 0:
        parts.append(text[position:start])
        end = text.find("-->", start)
        if end < 0:
            return "".join(parts)
        position = end + len("-->")
    return "".join([*parts, text[position:]])


def _one_line(path: str) -> str:
    return path if path.isprintable() else repr(path)
