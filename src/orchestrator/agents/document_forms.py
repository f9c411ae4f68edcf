"""The work-item documents as an agent has to write them: names, front matter, and a least text that is right.

Prompts show the front matter of each expected document; the scripted agent writes the documents with it. The
gate's validators are elsewhere and have the last word; a test holds the two together.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.agents.brief import Brief
from orchestrator.domain.stage import Role

WRITTEN_BY: Mapping[Role, tuple[str, ...]] = {
    Role.ANALYST: ("01-brd.md", "02-trz.md", "03-acceptance.md", "04-test-plan.yaml"),
    Role.ARCHITECT: ("06-adr/001-decision.md", "10-tech-risks.md"),
    Role.DEVELOPER: (),
    Role.REVIEWER: ("12-review.md",),
    Role.TESTER: ("13-test-report.md",),
    Role.DEPLOYER: ("14-staging-log.md",),
}
COMMITTED_BY_AGENT = frozenset({Role.ANALYST, Role.ARCHITECT, Role.DEVELOPER})
STAGE_OF: Mapping[Role, str] = {
    Role.ANALYST: "analysis",
    Role.ARCHITECT: "architecture",
    Role.DEVELOPER: "development",
    Role.REVIEWER: "review",
    Role.TESTER: "testing",
    Role.DEPLOYER: "deploy-staging",
}
GOOD: Mapping[Role, str] = {Role.REVIEWER: "approved", Role.TESTER: "pass", Role.DEPLOYER: "healthy"}
BAD: Mapping[Role, str] = {Role.REVIEWER: "rejected", Role.TESTER: "fail", Role.DEPLOYER: "unhealthy"}
HEADINGS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "01": "Business requirements",
        "02": "Technical specification",
        "03": "Acceptance criteria",
        "06": "Decision",
        "08": "Data requirements",
        "10": "Technical risks",
        "12": "Review",
        "13": "Test report",
        "14": "Staging log",
    },
    "ru": {
        "01": "Бизнес-требования",
        "02": "Техническое задание",
        "03": "Критерии приёмки",
        "06": "Решение",
        "08": "Требования к данным",
        "10": "Технические риски",
        "12": "Ревью",
        "13": "Отчёт о тестировании",
        "14": "Журнал staging",
    },
}


@dataclass(frozen=True, slots=True)
class Form:
    """What is filled into a document."""

    text: str
    status: str = "final"
    track: str = "full"
    verdict: str | None = None  # the good one where nothing is said
    cases: tuple[tuple[str, str], ...] = (("TC-01", "pass"),)
    plan: tuple[tuple[str, str], ...] = (("TC-01", ""),)  # id and description
    findings: tuple[str, ...] = ()
    schema_changes: str = "no"
    extra: Mapping[str, str] = field(default_factory=dict)


def expected(brief: Brief) -> tuple[str, ...]:
    """The documents that this piece of work has to leave."""
    return brief.documents_expected or WRITTEN_BY[brief.role]


def document(name: str, brief: Brief, form: Form) -> str:
    """A whole document."""
    fields = front_matter(name, brief, form)
    if name.endswith(".yaml"):
        return fields
    number = name[:2]
    heading = HEADINGS.get(brief.language, HEADINGS["en"]).get(number, name)
    return f"---\n{fields}---\n\n# {number} — {heading}: {brief.work_item}\n\n{form.text.strip()}\n"


def front_matter(name: str, brief: Brief, form: Form) -> str:
    """The keys that are read by machine, each on its line."""
    lines = [
        f"work_item: {brief.work_item}",
        f"stage: {STAGE_OF[brief.role]}",
        f"author_agent: {brief.role.value}",
        f"status: {form.status}",
        f"created_at: {brief.date or '<today, YYYY-MM-DD>'}",
        f"model_used: {brief.model or 'unknown'}",
        "escalate:",
        f"title: {quoted(brief.title)}",
    ]
    lines += _own_keys(name, brief, form)
    lines += [f"{key}: {value}" for key, value in form.extra.items()]
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """Any text as one line of YAML."""
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def _own_keys(name: str, brief: Brief, form: Form) -> list[str]:
    verdict = form.verdict or GOOD.get(brief.role, "")
    match name[:2]:
        case "02":
            return [f"track: {form.track}"]
        case "04":
            return ["framework: existing", f"scope: {quoted(form.text)}", "tests:", *_plan(brief, form)]
        case "10":
            return [f"schema_changes: {form.schema_changes}"]
        case "12":
            findings = [f"  - message: {quoted(finding)}" for finding in form.findings]
            head = ["findings:", *findings] if findings else ["findings: []"]
            return [f"verdict: {verdict}", f"gated_sha: {brief.gated_sha or '<gated_sha>'}", *head]
        case "13":
            cases = [f"  {case}: {outcome}" for case, outcome in form.cases]
            return [f"verdict: {verdict}", f"gated_sha: {brief.gated_sha or '<gated_sha>'}", "cases:", *cases]
        case "14":
            return [f"verdict: {verdict}", f"candidate_sha: {brief.candidate_sha or '<candidate_sha>'}"]
    return []


def _plan(brief: Brief, form: Form) -> list[str]:
    lines = []
    for case, description in form.plan:
        lines += [
            f"  - id: {case}",
            "    type: unit",
            f"    description: {quoted(description or brief.title or case)}",
        ]
    return lines
