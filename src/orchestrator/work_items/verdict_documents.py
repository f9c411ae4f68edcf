"""The machine keys of work-item documents: test plan, verdicts, track, escalation.

Keys and their values are a contract (NFR-3): added to, never changed. What must hold: a document yields its record
or a ``DocumentError`` with every objection; a verdict is never read out of prose.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import Sha
from orchestrator.domain.stage import Track
from orchestrator.rules.verdicts import (
    CaseOutcome,
    CaseResult,
    PlannedCase,
    ReviewOutcome,
    ReviewVerdict,
    StagingLog,
    StagingOutcome,
    TestOutcome,
    TestPlan,
    TestReport,
)
from orchestrator.work_items.fields import FieldReader, markdown_fields, yaml_fields
from orchestrator.work_items.plain_yaml import Path, Value
from orchestrator.work_items.reading import DocumentError, objection, refusal, shown

CASE_ID = re.compile(r"TC-[0-9]{1,4}[a-z]?")
MAX_CASES = 500  # of one plan; a tester's report names each of them
_BODY_LIMIT = 4000  # characters of prose handed on to the next agent


class BackTo(StrEnum):
    """Values of ``back_to``, beside nothing."""

    ANALYSIS = "analysis"


class Escalation(StrEnum):
    """Values of ``escalate``, beside nothing."""

    FULL_CYCLE = "full-cycle"


def parse_test_plan(data: bytes, file: str) -> TestPlan:
    """The cases of 04-test-plan.yaml: ``tests``, a list of ``id``, ``type``, ``description``.

    :raises DocumentError: not readable, no cases, an id twice, a case without its fields.
    """
    return _parse_test_plan(data, file)


def parse_review_verdict(data: bytes, file: str) -> ReviewVerdict:
    """12-review.md: ``verdict: approved | rejected``, ``gated_sha``, ``findings``.

    A rejection that lists no findings hands on its text instead.

    :raises DocumentError: not readable, or a key missing or of another type.
    """
    return _parse_review_verdict(data, file)


def parse_test_report(data: bytes, file: str) -> TestReport:
    """13-test-report.md: ``verdict: pass | fail``, ``gated_sha``, ``cases: {TC-01: pass, …}``.

    :raises DocumentError: not readable, or a key missing or of another type.
    """
    return _parse_test_report(data, file)


def parse_staging_log(data: bytes, file: str) -> StagingLog:
    """14-staging-log.md: ``verdict: healthy | unhealthy``, ``candidate_sha``.

    :raises DocumentError: not readable, or a key missing or of another type.
    """
    return _parse_staging_log(data, file)


def parse_track(data: bytes, file: str = "02-trz.md") -> Track | None:
    """The analyst's proposal in 02-trz.md (``track: full | fast``); ``None`` when it makes none.

    :raises DocumentError: not readable, or another value.
    """
    _, reader = markdown_fields(data, file)
    track = reader.choice("track", Track, required=False, empty=True)
    reader.refuse_if_objected()
    return track


def sends_back(documents: Mapping[str, bytes]) -> str | None:
    """Why the architect cannot build on the analysis: the text of 10-tech-risks.md with ``back_to: analysis``.

    A document that cannot be read sends nothing back: ``validate`` refuses it.
    """
    file = "10-tech-risks.md"
    try:
        document, reader = markdown_fields(documents[file], file)
    except (KeyError, DocumentError):
        return None
    if reader.choice("back_to", BackTo, required=False, empty=True) is None:
        return None
    return _excerpt(document.body) or "no reason was given"


def escalates(documents: Mapping[str, bytes]) -> str | None:
    """Path of the first document that asks for a person (``escalate: full-cycle``), else ``None``.

    Documents that cannot be read are left out: ``validate`` refuses them.
    """
    for path in sorted(documents):
        try:
            reader = (
                yaml_fields(documents[path], path)
                if path.endswith(".yaml")
                else markdown_fields(documents[path], path)[1]
            )
        except DocumentError:
            continue
        if reader.choice("escalate", Escalation, required=False, empty=True) is not None:
            return path
    return None


def _parse_test_plan(data: bytes, file: str) -> TestPlan:
    reader = yaml_fields(data, file)
    entries = reader.raw("tests")
    expected = "a list of test cases, each with `id`, `type` and `description`"
    if entries is None:
        reader.object_to("tests", "`tests` is missing", expected)
    elif not isinstance(entries, list) or not entries:
        reader.object_to("tests", "`tests` holds no list of cases", expected)
    elif len(entries) > MAX_CASES:
        reader.object_to("tests", f"`tests` has {len(entries)} cases", f"at most {MAX_CASES}")
    reader.refuse_if_objected()
    assert isinstance(entries, list)  # noqa: S101 - anything else was refused above
    cases: dict[str, PlannedCase] = {}
    for number, entry in enumerate(entries):
        case = _planned_case(entry, number, reader)
        if case is None:
            continue
        if case.id in cases:
            found = f"{case.id} stands here again (first on line {cases[case.id].line})"
            reader.findings.append(objection(file, case.line, found, "each id once"))
        cases[case.id] = case
    reader.refuse_if_objected()
    return TestPlan(tuple(cases.values()), file)


def _planned_case(entry: Value, number: int, plan: FieldReader) -> PlannedCase | None:
    line = plan.line_of("tests", number)
    if not isinstance(entry, dict):
        expected = "`id`, `type` and `description`"
        plan.findings.append(objection(plan.file, line, f"case {number + 1} is no mapping", expected))
        return None
    places: dict[Path, int] = {(key,): plan.line_of("tests", number, key) for key in entry}
    reader = FieldReader(plan.file, entry, places, top=line)
    case_id = reader.text("id", "an id such as TC-01")
    if case_id is not None and not CASE_ID.fullmatch(case_id):
        reader.object_to("id", f"`id` is {shown(case_id)}", "TC- and a number, such as TC-01")
    case_type = reader.text("type", "unit, integration or another kind of test")
    description = entry.get("description")
    if not isinstance(description, str) or not description.strip():
        reader.object_to("description", "`description` is missing or empty", "what the case checks")
    plan.findings.extend(reader.findings)
    if reader.findings or case_id is None or case_type is None or not isinstance(description, str):
        return None
    return PlannedCase(case_id, case_type, description.strip(), line)


def _parse_review_verdict(data: bytes, file: str) -> ReviewVerdict:
    document, reader = markdown_fields(data, file)
    verdict = reader.choice("verdict", ReviewOutcome)
    gated_sha = reader.sha("gated_sha")
    findings = _review_findings(reader)
    reader.refuse_if_objected()
    assert verdict is not None and gated_sha is not None  # noqa: S101 - refused above
    if verdict is ReviewOutcome.REJECTED and not findings:
        text = _excerpt(document.body)
        if not text:
            raise refusal(
                file, reader.line_of("verdict"), "a rejection without a reason", "`findings`, or text"
            )
        findings = (Finding(text, file, document.body_line),)
    return ReviewVerdict(verdict, gated_sha, findings, file)


def _review_findings(reader: FieldReader) -> tuple[Finding, ...]:
    """``findings``: a list of texts, or of mappings with ``message`` and perhaps ``file`` and ``line``."""
    value = reader.raw("findings")
    if value is None or value == "":
        return ()
    if not isinstance(value, list):
        reader.object_to("findings", "`findings` is no list", "a list of `file`, `line`, `message`")
        return ()
    findings = []
    for number, entry in enumerate(value):
        message = entry.get("message") if isinstance(entry, dict) else entry
        if not isinstance(message, str) or not message.strip():
            place = reader.line_of("findings", number)
            found = f"finding {number + 1} has no message"
            reader.findings.append(objection(reader.file, place, found, "text, or a mapping with `message`"))
            continue
        file = entry.get("file") if isinstance(entry, dict) else None
        line = entry.get("line") if isinstance(entry, dict) else None
        findings.append(
            Finding(message.strip(), file if isinstance(file, str) and file else None, _line_number(line))
        )
    return tuple(findings)


def _line_number(value: Value | None) -> int | None:
    # A range ("12-20") or a word is no fault worth a new review: the finding then names the file alone.
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,7}", value):
        return int(value)
    return None


def _parse_test_report(data: bytes, file: str) -> TestReport:
    _, reader = markdown_fields(data, file)
    verdict = reader.choice("verdict", TestOutcome)
    gated_sha = reader.sha("gated_sha")
    cases = _case_results(reader)
    reader.refuse_if_objected()
    assert verdict is not None and gated_sha is not None  # noqa: S101 - refused above
    return TestReport(verdict, gated_sha, cases, file)


def _case_results(report: FieldReader) -> tuple[CaseResult, ...]:
    value = report.raw("cases")
    if not isinstance(value, dict):
        found = "`cases` is missing" if value is None else "`cases` is no mapping"
        report.object_to("cases", found, "a line `TC-01: pass` for every case of the plan")
        return ()
    places: dict[Path, int] = {(case_id,): report.line_of("cases", case_id) for case_id in value}
    reader = FieldReader(report.file, value, places, top=report.line_of("cases"))
    results = []
    for case_id in value:
        if not CASE_ID.fullmatch(case_id):
            reader.object_to(case_id, f"a case called {shown(case_id)}", "an id of the plan, such as TC-01")
            continue
        outcome = reader.choice(case_id, CaseOutcome)
        if outcome is not None:
            results.append(CaseResult(case_id, outcome, reader.line_of(case_id)))
    report.findings.extend(reader.findings)
    return tuple(results)


def _parse_staging_log(data: bytes, file: str) -> StagingLog:
    document, reader = markdown_fields(data, file)
    verdict = reader.choice("verdict", StagingOutcome)
    candidate_sha: Sha | None = reader.sha("candidate_sha")
    reader.refuse_if_objected()
    assert verdict is not None and candidate_sha is not None  # noqa: S101 - refused above
    return StagingLog(verdict, candidate_sha, _excerpt(document.body), file)


def _excerpt(body: str) -> str:
    text = body.strip()
    return text if len(text) <= _BODY_LIMIT else text[:_BODY_LIMIT] + " …"
