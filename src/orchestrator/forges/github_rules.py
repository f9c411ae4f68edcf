"""What about a repository's settings at GitHub will not work, or is weaker than it could be. Pure."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from orchestrator.forges.complaint import Complaint
from orchestrator.forges.github_api import BranchFacts, RepositoryFacts

SOON = timedelta(days=14)  # so that whoever looks once a week has a week left
# Whether our user may pass by a rule is not shown to it: what follows is a warning.
_BYPASS = "Let a team of our user pass by this rule (its bypass list), or take it away."
_RULES = {
    "merge_queue": "has a merge queue: it would merge something else than what was tested",
    "required_linear_history": "takes no merge commits, and a candidate is one",
    "required_signatures": "takes signed commits alone, and a candidate is not signed",
}


def of_the_token(ends: datetime | None, now: datetime) -> Iterator[Complaint]:
    """What is wrong with a token that ends at a moment, None where it does not."""
    if ends is not None and ends - now < SOON:
        yield Complaint(
            f"Its token ends on {ends:%Y-%m-%d}.", "Make a new one, and set ORCH_GITHUB_TOKEN_FILE.", False
        )


def complaints(repository: RepositoryFacts, branch: BranchFacts) -> Iterator[Complaint]:
    """What is wrong; ``branch`` is the default one."""
    name = repository.default_branch
    if repository.archived:
        yield Complaint("It is archived, or switched off.", "Take it out of the archive.", True)
    if not repository.may_push:
        yield Complaint("Our user may not write to it.", "Give the user the role Write.", True)
    if repository.administered:
        yield Complaint(
            "Our user is an administrator of it: it may pass by the rules of its branches.",
            "Give the user the role Write instead.",
            False,
        )
    if not branch.protected and not branch.rules:
        yield Complaint(
            f"{name} is not protected: who may write can push to it past every gate.",
            "Add a ruleset that restricts updates, with a team of our user on its bypass list.",
            False,
        )
    for rule, does in _RULES.items():
        if rule in branch.rules:
            yield Complaint(f"{name} {does}.", _BYPASS, False)
    if "pull_request" in branch.rules and not repository.merge:
        yield Complaint(
            f"{name} is changed by pull requests alone, and the repository allows no merge commits.",
            f"Allow merge commits. Or: {_BYPASS}",
            False,
        )
    if branch.required_approvals > 0:
        yield Complaint(
            f"{name} asks for approvals ({branch.required_approvals}). The candidate is a new commit, which they are "
            "not for; with `dismiss stale approvals` it is never merged.",
            f"Ask for approvals by `[forge] required_reviews` or `[approvals]` instead. Or: {_BYPASS}",
            False,
        )
