"""What is said about a repository's settings at the server."""

from dataclasses import replace

import pytest

from orchestrator.forges.gitea_api import BranchFacts, RepositoryFacts
from orchestrator.forges.gitea_rules import complaints

GOOD = RepositoryFacts("acme/shop", "main", True, True, False, True, False)
MAIN = BranchFacts(protected=True, required_approvals=0, may_merge=True)


def test_nothing_is_wrong_with_what_the_guide_describes() -> None:
    assert list(complaints(GOOD, MAIN)) == []


@pytest.mark.parametrize(
    ("repository", "branch", "said", "prevents"),
    [
        (replace(GOOD, archived=True), MAIN, "archived", True),
        (replace(GOOD, may_push=False), MAIN, "may not write", True),
        (replace(GOOD, fast_forward=False, merge=False), MAIN, "neither", True),
        (replace(GOOD, fast_forward=False), MAIN, "a commit of its own", False),
        (GOOD, replace(MAIN, may_merge=False), "may not merge into main", True),
        (replace(GOOD, administered=True), MAIN, "administrator", False),
        (GOOD, replace(MAIN, protected=False), "main is not protected", False),
        (GOOD, replace(MAIN, required_approvals=2), "asks for approvals (2)", False),
        (GOOD, replace(MAIN, required_approvals=2, dismisses=False), "asks for approvals (2)", False),
        (GOOD, replace(MAIN, required_approvals=2, dismisses=True), "dismisses stale ones", True),
    ],
    ids=["archived", "no rights", "no way", "only merges", "no merge", "administrator", "open", "approvals"]
    + ["approvals that stay", "approvals that go"],
)
def test_each_thing_is_told(
    repository: RepositoryFacts, branch: BranchFacts, said: str, prevents: bool
) -> None:
    [found] = complaints(repository, branch)
    assert said in found.text
    assert found.hint
    assert found.prevents is prevents
