"""What is said about a repository's settings at GitHub."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.forges.github_api import BranchFacts, RepositoryFacts
from orchestrator.forges.github_rules import complaints, of_the_token

GOOD = RepositoryFacts("acme/shop", "main", True, False, True, False)
MAIN = BranchFacts(protected=True, rules=frozenset({"update"}), required_approvals=0)


def ruled(*rules: str, approvals: int = 0) -> BranchFacts:
    return BranchFacts(protected=True, rules=frozenset(rules), required_approvals=approvals)


def test_nothing_is_wrong_with_what_the_guide_describes() -> None:
    assert list(complaints(GOOD, MAIN)) == []
    assert list(complaints(GOOD, ruled("pull_request", "required_status_checks"))) == []


@pytest.mark.parametrize(
    ("repository", "branch", "said", "prevents"),
    [
        (replace(GOOD, archived=True), MAIN, "archived", True),
        (replace(GOOD, may_push=False), MAIN, "may not write", True),
        (replace(GOOD, administered=True), MAIN, "administrator", False),
        (GOOD, replace(MAIN, protected=False, rules=frozenset()), "main is not protected", False),
        (GOOD, ruled("merge_queue"), "merge queue", False),
        (GOOD, ruled("required_linear_history"), "no merge commits", False),
        (GOOD, ruled("required_signatures"), "signed commits", False),
        (replace(GOOD, merge=False), ruled("pull_request"), "by pull requests alone", False),
        (GOOD, ruled("pull_request", approvals=2), "asks for approvals (2)", False),
    ],
)
def test_each_thing_is_told(
    repository: RepositoryFacts, branch: BranchFacts, said: str, prevents: bool
) -> None:
    [found] = complaints(repository, branch)
    assert said in found.text
    assert found.hint
    assert found.prevents is prevents


@pytest.mark.parametrize(("days", "said"), [(None, 0), (30, 0), (13, 1), (-1, 1)])
def test_a_token_that_ends_soon_is_told(days: int | None, said: int) -> None:
    now = datetime(2026, 1, 5, tzinfo=UTC)
    ends = None if days is None else now + timedelta(days=days)
    found = list(of_the_token(ends, now))
    assert len(found) == said
    assert all("Its token ends on" in one.text and not one.prevents for one in found)
