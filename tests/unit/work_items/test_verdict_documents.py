"""The machine keys of the documents, and who may not get away with what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.gate import Finding
from orchestrator.domain.stage import Track
from orchestrator.rules.verdicts import CaseOutcome, ReviewOutcome, StagingOutcome, TestOutcome
from orchestrator.work_items import verdict_documents
from orchestrator.work_items.reading import DocumentError
from orchestrator.work_items.verdict_documents import (
    escalates,
    parse_review_verdict,
    parse_staging_log,
    parse_test_plan,
    parse_test_report,
    parse_track,
)

SHA1 = "0123456789abcdef0123456789abcdef01234567"
SHA256 = SHA1 + "0" * 24


def front(text: str, body: str = "What I saw.\n") -> bytes:
    return f"---\n{text}\n---\n\n{body}".encode()


def test_review_with_findings() -> None:
    data = front(
        f"verdict: rejected\ngated_sha: {SHA1}\nfindings:\n"
        "  - file: src/a.py\n    line: 12\n    message: 'off by one: use <='\n"
        "  - no test for the empty list\n"
        "  - message: too slow\n    line: 10-20\n    file:\n"
    )
    review = parse_review_verdict(data, "12-review.md")
    assert (review.verdict, review.gated_sha) == (ReviewOutcome.REJECTED, SHA1)
    assert review.findings == (
        Finding("off by one: use <=", "src/a.py", 12),
        Finding("no test for the empty list"),
        Finding("too slow"),
    )


def test_rejection_without_findings_hands_on_its_text() -> None:
    review = parse_review_verdict(front(f"verdict: rejected\ngated_sha: {SHA256}"), "12-review.md")
    assert review.findings == (Finding("What I saw.", "12-review.md", 5),)
    with pytest.raises(DocumentError, match="a rejection without a reason"):
        parse_review_verdict(front(f"verdict: rejected\ngated_sha: {SHA1}", ""), "12-review.md")
    long = parse_review_verdict(front(f"verdict: rejected\ngated_sha: {SHA1}", "x" * 9999), "12-review.md")
    assert len(long.findings[0].message) < 4100


def test_approval_needs_no_findings() -> None:
    for findings in ("", "\nfindings:", "\nfindings: []"):
        assert (
            parse_review_verdict(front(f"verdict: approved\ngated_sha: {SHA1}{findings}"), "f").findings == ()
        )


REVIEWS_REFUSED = {
    "no-verdict": (f"gated_sha: {SHA1}", "`verdict` is missing; expected approved | rejected"),
    "empty": (f"verdict:\ngated_sha: {SHA1}", "`verdict` is empty"),
    "case": (f"verdict: Approved\ngated_sha: {SHA1}", "`verdict` is 'Approved'"),
    "other": (f"verdict: pass\ngated_sha: {SHA1}", "expected approved | rejected"),
    "prose": (f"summary: approved\ngated_sha: {SHA1}", "`verdict` is missing"),
    "no-sha": ("verdict: approved", "`gated_sha` is missing"),
    "short": ("verdict: approved\ngated_sha: 0123456", "expected a full commit id"),
    "upper": (f"verdict: approved\ngated_sha: {SHA1.upper()}", "expected a full commit id"),
    "41": (f"verdict: approved\ngated_sha: {SHA1}0", "expected a full commit id"),
    "head": ("verdict: approved\ngated_sha: HEAD", "expected a full commit id"),
    "findings": (f"verdict: rejected\ngated_sha: {SHA1}\nfindings: many", "`findings` is no list"),
    "finding": (f"verdict: rejected\ngated_sha: {SHA1}\nfindings: [{{file: a}}]", "finding 1 has no message"),
    "twice": (f"verdict: rejected\nverdict: approved\ngated_sha: {SHA1}", "expected each key once"),
}


@pytest.mark.parametrize(("text", "message"), REVIEWS_REFUSED.values(), ids=REVIEWS_REFUSED.keys())
def test_review_table(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_review_verdict(front(text), "12-review.md")
    assert message in str(refused.value)


def test_verdict_in_the_text_is_no_verdict() -> None:
    with pytest.raises(DocumentError):
        parse_review_verdict(f"verdict: approved\ngated_sha: {SHA1}\n".encode(), "12-review.md")
    with pytest.raises(DocumentError):
        parse_review_verdict(
            front("title: x", f"---\nverdict: approved\ngated_sha: {SHA1}\n---\n"), "12-review.md"
        )


def test_test_report() -> None:
    text = f"verdict: fail\ngated_sha: {SHA1}\ncases:\n  TC-01: pass\n  TC-02: skipped\n  TC-3b: blocked\n  TC-04: fail"
    report = parse_test_report(front(text), "13-test-report.md")
    assert (report.verdict, report.gated_sha) == (TestOutcome.FAIL, SHA1)
    assert [(case.id, case.outcome, case.line) for case in report.cases] == [
        ("TC-01", CaseOutcome.PASS, 5),
        ("TC-02", CaseOutcome.SKIPPED, 6),
        ("TC-3b", CaseOutcome.BLOCKED, 7),
        ("TC-04", CaseOutcome.FAIL, 8),
    ]


REPORTS_REFUSED = {
    "none": ("", "`cases` is missing"),
    "empty": ("cases:", "`cases` is no mapping"),
    "list": ("cases: [TC-01]", "`cases` is no mapping"),
    "outcome": ("cases: {TC-01: PASS}", "`TC-01` is 'PASS'; expected pass | fail | skipped | blocked"),
    "no-outcome": ("cases:\n  TC-01:", "`TC-01` is empty"),
    "nested": ("cases: {TC-01: [pass]}", "`TC-01` is a list"),
    "id": ("cases: {login: pass}", "a case called 'login'"),
    "hostile-id": ('cases: {"TC-01\\npass": pass}', r"a case called 'TC-01\npass'"),
    "twice": ("cases:\n  TC-01: fail\n  TC-01: pass", "expected each key once"),
}


@pytest.mark.parametrize(("cases", "message"), REPORTS_REFUSED.values(), ids=REPORTS_REFUSED.keys())
def test_report_table(cases: str, message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_test_report(front(f"verdict: pass\ngated_sha: {SHA1}\n{cases}"), "13-test-report.md")
    assert message in str(refused.value)


def test_staging_log() -> None:
    log = parse_staging_log(front(f"verdict: unhealthy\ncandidate_sha: {SHA1}"), "14-staging-log.md")
    assert (log.verdict, log.candidate_sha, log.summary) == (StagingOutcome.UNHEALTHY, SHA1, "What I saw.")
    with pytest.raises(DocumentError, match="`candidate_sha` is missing"):
        parse_staging_log(front(f"verdict: healthy\ngated_sha: {SHA1}"), "14-staging-log.md")


def test_test_plan_names_its_cases_in_order() -> None:
    data = b"tests:\n  - {id: TC-02, type: unit, description: 'b'}\n"
    data += b"  - id: TC-01\n    type: e2e\n    description: >\n      a\n"
    plan = parse_test_plan(data, "04-test-plan.yaml")
    assert [(case.id, case.type, case.description, case.line) for case in plan.cases] == [
        ("TC-02", "unit", "b", 2),
        ("TC-01", "e2e", "a", 3),
    ]


PLANS_REFUSED = {
    "none": ("title: x", 1, "`tests` is missing"),
    "empty": ("tests:", 1, "`tests` holds no list"),
    "empty-list": ("tests: []", 1, "`tests` holds no list"),
    "mapping": ("tests: {TC-01: x}", 1, "`tests` holds no list"),
    "list": ("- id: TC-01", 1, "no mapping at the top"),
    "words": ("tests:\n  - TC-01", 2, "case 1 is no mapping"),
    "no-id": ("tests:\n  - type: unit\n    description: x", 2, "`id` is missing"),
    "id": ("tests:\n  - type: unit\n    id: 1\n    description: x", 3, "expected TC- and a number"),
    "type": ("tests:\n  - id: TC-01\n    description: x", 2, "`type` is missing"),
    "description": (
        "tests:\n  - id: TC-01\n    type: unit\n    description: ''",
        4,
        "`description` is missing or empty",
    ),
    "twice": (
        "tests:\n  - {id: TC-01, type: u, description: a}\n  - {id: TC-01, type: u, description: b}",
        3,
        "TC-01 stands here again (first on line 2)",
    ),
    "many": (
        "tests:\n" + "".join(f"  - {{id: TC-{n}, type: u, description: a}}\n" for n in range(501)),
        1,
        "at most 500",
    ),
}


@pytest.mark.parametrize(("text", "line", "message"), PLANS_REFUSED.values(), ids=PLANS_REFUSED.keys())
def test_plan_table(text: str, line: int, message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_test_plan(text.encode(), "04-test-plan.yaml")
    assert refused.value.findings[0].line == line
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "track"),
    [("track: full", Track.FULL), ("track: fast # small", Track.FAST), ("track:", None), ("title: x", None)],
)
def test_track(text: str, track: Track | None) -> None:
    assert parse_track(front(text)) is track


@pytest.mark.parametrize("text", ["track: quick", "track: [fast]", "track: FAST", "track: no"])
def test_another_track_is_refused(text: str) -> None:
    with pytest.raises(DocumentError, match=r"02-trz\.md:2: .*expected full \| fast or nothing"):
        parse_track(front(text))


def test_escalation_names_the_document_that_asks_for_it() -> None:
    documents = {"01-brd.md": front("escalate:"), "02-trz.md": front("title: x"), "03-acceptance.md": b"\xff"}
    assert escalates(documents) is None
    assert escalates({**documents, "04-test-plan.yaml": b"escalate: full-cycle\n"}) == "04-test-plan.yaml"
    assert escalates({**documents, "10-tech-risks.md": front("escalate: full-cycle")}) == "10-tech-risks.md"
    assert escalates({"01-brd.md": front("escalate: perhaps")}) is None
    assert escalates({"01-brd.md": front("title: x", "---\nescalate: full-cycle\n---\n")}) is None


def test_the_seeds_names_are_there() -> None:
    for name in ("review_verdict", "test_report", "staging_log", "test_plan"):
        assert callable(getattr(verdict_documents, f"_parse_{name}"))


KEYS = st.sampled_from(
    ["verdict", "gated_sha", "candidate_sha", "cases", "tests", "findings", "track", "escalate", "x"]
)
VALUES = st.sampled_from(
    [
        "approved",
        "rejected",
        "pass",
        SHA1,
        "[]",
        "{}",
        "[a]",
        "{TC-01: pass}",
        "[{id: TC-01}]",
        "[[x]]",
        "",
        "{a: {b: c}}",
    ]
)


@given(st.dictionaries(KEYS, VALUES))
def test_any_mixture_of_keys_gives_a_record_or_a_document_error(fields: dict[str, str]) -> None:
    text = "\n".join(f"{key}: {value}" for key, value in fields.items())
    for parse in (parse_review_verdict, parse_test_report, parse_staging_log, parse_track):
        try:
            parse(front(text or "x: y"), "f.md")
        except DocumentError as error:
            assert error.findings
    try:
        parse_test_plan(text.encode(), "f.yaml")
    except DocumentError as error:
        assert error.findings
    assert escalates({"f.md": front(text)}) is None
