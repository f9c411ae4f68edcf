"""The folder of a work item: what has to be there, and what is said about what is wrong."""

import re

import pytest

from orchestrator.domain.stage import Role, Stage, Track
from orchestrator.work_items.documents import (
    CATALOGUE,
    MAX_DOCUMENTS,
    MAX_FOLDER_BYTES,
    SchemaChanges,
    folder,
    in_folder,
    kind_of,
    required,
    schema_changes,
    validate,
    written_by,
)

SHA = "0123456789abcdef0123456789abcdef01234567"


def document(stage: str, agent: str, extra: str = "", body: str = "Text.\n") -> bytes:
    front = (
        f"work_item: ORCH-7\nstage: {stage}\nauthor_agent: {agent}\nstatus: ready-for-review\n"
        f"created_at: 2026-06-15\nmodel_used: some-model\nescalate:\n{extra}"
    )
    return f"---\n{front}---\n\n# Heading\n\n{body}".encode()


PLAN = b"""work_item: ORCH-7
stage: analysis
author_agent: analyst
status: ready-for-review
created_at: 2026-06-15
model_used: some-model
escalate: full-cycle
title: "Plan"
scope: >
  All of it.
tests:
  - id: TC-01
    type: unit
    description: "First: it works"
    module: tests/test_it.py
    expected: PASS
"""

ANALYSIS = {
    "01-brd.md": document("analysis", "analyst"),
    "02-trz.md": document("analysis", "analyst", "track: fast\n"),
    "03-acceptance.md": document("analysis", "analyst"),
    "04-test-plan.yaml": PLAN,
}
ARCHITECTURE = {
    "06-adr/001-storage.md": document("architecture", "architect"),
    "08-data-requirements.md": document("architecture", "architect"),
    "10-tech-risks.md": document("architecture", "architect", "schema_changes: yes\n"),
}
LATER = {
    "12-review.md": document("review", "reviewer", f"verdict: approved\ngated_sha: {SHA}\n"),
    "13-test-report.md": document(
        "testing", "tester", f"verdict: pass\ngated_sha: {SHA}\ncases:\n  TC-01: pass\n"
    ),
}
STAGING = {
    "14-staging-log.md": document("deploy-staging", "deployer", f"verdict: healthy\ncandidate_sha: {SHA}\n"),
}
ALL = {**ANALYSIS, **ARCHITECTURE, **LATER}


def findings(
    documents: dict[str, bytes], stage: Stage = Stage.ANALYSIS, track: Track = Track.FULL
) -> list[str]:
    return [str(finding) for finding in validate(documents, work_item="ORCH-7", stage=stage, track=track)]


@pytest.mark.parametrize(
    ("documents", "stage", "track"),
    [
        ({}, Stage.CREATED, Track.FULL),
        (ANALYSIS, Stage.ANALYSIS, Track.FULL),
        ({**ANALYSIS, **ARCHITECTURE}, Stage.ARCHITECTURE, Track.FULL),
        ({**ANALYSIS, **ARCHITECTURE}, Stage.DEVELOPMENT, Track.FULL),
        (ANALYSIS, Stage.DEVELOPMENT, Track.FAST),
        ({**ANALYSIS, **LATER}, Stage.TESTING, Track.FAST),
        (ALL, Stage.TESTING, Track.FULL),
        ({**ALL, **STAGING}, Stage.DEPLOY_STAGING, Track.FULL),
        (ALL, Stage.DEPLOY, Track.FULL),
        ({**ANALYSIS, "05-notes.md": b"the team's own", "11-x.yaml": b"\xff"}, Stage.ANALYSIS, Track.FULL),
    ],
    ids=["created", "analysis", "architecture", "dev-full", "dev-fast", "testing-fast", "testing", "staging"]
    + ["deploy", "other-numbers"],
)
def test_a_whole_folder_has_no_findings(documents: dict[str, bytes], stage: Stage, track: Track) -> None:
    assert findings(documents, stage, track) == []


@pytest.mark.parametrize("missing", sorted(ALL))
def test_a_missing_document_is_named_with_its_author(missing: str) -> None:
    [text] = findings({path: data for path, data in ALL.items() if path != missing}, Stage.TESTING)
    kind = kind_of(missing)
    assert kind is not None
    assert text.startswith(
        f"docs/work-items/ORCH-7/{kind.name}: the document is missing; expected the {kind.role}"
    )


def test_staging_log_is_asked_for_in_its_stage_only() -> None:
    [text] = findings(ALL, Stage.DEPLOY_STAGING)
    assert "14-staging-log.md: the document is missing" in text


def test_data_requirements_follow_the_architects_word() -> None:
    without = {path: data for path, data in {**ANALYSIS, **ARCHITECTURE}.items() if not path.startswith("08")}
    assert len(findings(without, Stage.ARCHITECTURE)) == 1
    without["10-tech-risks.md"] = document("architecture", "architect", "schema_changes: no\n")
    assert findings(without, Stage.ARCHITECTURE) == []
    assert schema_changes(without) is SchemaChanges.NO
    without["10-tech-risks.md"] = document("architecture", "architect")
    [text] = findings(without, Stage.ARCHITECTURE)
    assert "`schema_changes` is missing; expected yes | no" in text
    assert schema_changes(without) is None and schema_changes({}) is None


def test_a_misspelled_name_is_recognised() -> None:
    documents = {("01-BRD.md" if path == "01-brd.md" else path): data for path, data in ANALYSIS.items()}
    [text] = findings(documents)
    assert "the document is missing (is '01-BRD.md' meant?)" in text


@pytest.mark.parametrize(
    "path", ["notes.txt", "img/a.png", "06-adr/storage.md", "06-adr/001-x.yaml", "1-x.md", "01-a\nb.md"]
)
def test_other_files_are_refused(path: str) -> None:
    [text] = findings({**ANALYSIS, path: b"x"})
    assert "not a document of a work item" in text and "\n" not in text


def test_documents_of_later_stages_are_not_judged_yet() -> None:
    leftover = {"12-review.md": b"\xff", "13-test-report.md": b""}
    assert findings({**ANALYSIS, **leftover}, Stage.DEVELOPMENT, Track.FAST) == []
    assert len(findings({**ANALYSIS, **leftover}, Stage.TESTING, Track.FAST)) == 2


CHANGED = {
    "work_item": ("work_item: ORCH-7", "work_item: ORCH-8", 2, "`work_item` is 'ORCH-8'; expected ORCH-7"),
    "stage": ("stage: analysis", "stage: review", 3, "`stage` is 'review'; expected analysis"),
    "author": ("author_agent: analyst", "author_agent: me", 4, "expected analyst"),
    "no-author": ("author_agent: analyst\n", "", 1, "`author_agent` is missing"),
    "typo": ("author_agent: ", "autor_agent: ", 4, "`autor_agent` instead of `author_agent`"),
    "status": (
        "ready-for-review",
        "done",
        5,
        "`status` is 'done'; expected draft | proposed | ready-for-review",
    ),
    "draft": ("ready-for-review", "draft", 5, "its author has not finished"),
    "status-list": ("status: ready-for-review", "status: [final]", 5, "`status` is a list"),
    "status-map": ("status: ready-for-review", "status: {a: b}", 5, "`status` is a mapping"),
    "no-date": ("2026-06-15", "", 6, "`created_at` is empty; expected a date"),
    "date-word": ("2026-06-15", "today", 6, "expected a date such as 2026-01-05"),
    "date-impossible": ("2026-06-15", "2026-02-30", 6, "expected a date"),
    "date-short": ("2026-06-15", "20260615", 6, "expected a date"),
    "date-week": ("2026-06-15", "2026-W01-1", 6, "expected a date"),
    "date-digits": ("2026-06-15", "\u0662026-06-15", 6, "expected a date"),
    "time-impossible": ("2026-06-15", "2026-06-15T25:00:00Z", 6, "expected a date"),
    "model": ("model_used: some-model", "model_used: ''", 7, "`model_used` is empty"),
    "model-long": ("some-model", "x" * 501, 7, "one line"),
    "escalate": ("escalate:", "escalate: yes", 8, "`escalate` is 'yes'; expected full-cycle or nothing"),
    "escalate-null": ("escalate:", "escalate: null", 8, "expected full-cycle or nothing"),
    "escalate-typo": ("escalate:", "esclate: full-cycle", 8, "`esclate` instead of `escalate`"),
    "escalate-gone": ("escalate:\n", "", 1, "`escalate` is missing"),
    "body": ("Text.\n", "<!-- hint -->\n\n| |\n|---|\n## Next\n<!-- open", 10, "expected text"),
}


@pytest.mark.parametrize(("old", "new", "line", "message"), CHANGED.values(), ids=CHANGED.keys())
def test_front_matter_field_table(old: str, new: str, line: int, message: str) -> None:
    changed = ANALYSIS["01-brd.md"].decode().replace(old, new, 1).encode()
    [finding] = validate(
        {**ANALYSIS, "01-brd.md": changed}, work_item="ORCH-7", stage=Stage.ANALYSIS, track=Track.FULL
    )
    assert message in finding.message
    assert (finding.file, finding.line) == ("docs/work-items/ORCH-7/01-brd.md", line)


@pytest.mark.parametrize(
    "moment",
    [
        "2026-06-15",
        "2026-06-15T10:00",
        "2026-06-15T10:00:00Z",
        "2026-06-15 10:00:00 +03:00",
        "'2026-06-15T10:00:00.5Z'",
    ],
)
def test_a_moment_may_be_a_day_or_a_point_in_time(moment: str) -> None:
    changed = ANALYSIS["01-brd.md"].decode().replace("2026-06-15", moment).encode()
    assert findings({**ANALYSIS, "01-brd.md": changed}) == []


def test_all_objections_to_a_document_come_at_once_in_the_order_of_its_lines() -> None:
    broken = (
        ANALYSIS["02-trz.md"]
        .decode()
        .replace("analyst", "me")
        .replace("some-model", "")
        .replace("fast", "quick")
    )
    lines = [re.search(r":(\d+): ", text) for text in findings({**ANALYSIS, "02-trz.md": broken.encode()})]
    assert [match and match[1] for match in lines] == ["4", "7", "9"]


def test_findings_of_one_document_are_bounded() -> None:
    plan = PLAN + b"".join(b"  - id: case %d\n    type: unit\n" % number for number in range(200))
    result = findings({**ANALYSIS, "04-test-plan.yaml": plan})
    assert len(result) == 21 and "and 380 more" in result[-1]


def test_the_folder_is_bounded() -> None:
    many = {f"{number % 100:02}-{number}.md": b"" for number in range(MAX_DOCUMENTS + 1)}
    assert findings(many) == [
        f"docs/work-items/ORCH-7: {MAX_DOCUMENTS + 1} files; expected at most {MAX_DOCUMENTS}"
    ]
    assert "expected at most" in findings({"01-brd.md": b"x" * (MAX_FOLDER_BYTES + 1)})[0]


def test_data_requirements_may_leave_escalate_out() -> None:
    changed = ARCHITECTURE["08-data-requirements.md"].replace(b"escalate:\n", b"")
    assert findings({**ALL, "08-data-requirements.md": changed}, Stage.TESTING) == []


def test_files_of_a_repository_are_cut_to_the_folder() -> None:
    files = {
        "docs/work-items/ORCH-7/01-brd.md": b"a",
        "docs/work-items/ORCH-71/01-brd.md": b"b",
        "README.md": b"c",
    }
    assert in_folder(files, "ORCH-7") == {"01-brd.md": b"a"}
    assert folder("ORCH-7") == "docs/work-items/ORCH-7"


def test_the_catalogue_says_who_writes_what() -> None:
    assert [kind.name for kind in written_by(Role.ANALYST)] == sorted(ANALYSIS)
    assert written_by(Role.DEVELOPER) == ()
    assert {kind.role for kind in CATALOGUE} == set(Role) - {Role.DEVELOPER}
    fast = required(Stage.TESTING, Track.FAST, schema=SchemaChanges.YES)
    assert not [kind.name for kind in fast if kind.role is Role.ARCHITECT]
