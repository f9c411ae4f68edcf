"""What about a repository's settings at Gitea or Forgejo will not work, or is weaker than it could be. Pure."""

from collections.abc import Iterator

from orchestrator.forges.complaint import Complaint
from orchestrator.forges.gitea_api import BranchFacts, RepositoryFacts


def complaints(repository: RepositoryFacts, branch: BranchFacts) -> Iterator[Complaint]:
    """What is wrong; ``branch`` is the default one."""
    name = repository.default_branch
    if repository.archived:
        yield Complaint("It is archived.", "Take it out of the archive.", True)
    if not repository.may_push:
        yield Complaint("Our user may not write to it.", "Give the user write access.", True)
    if not repository.merges:
        yield Complaint(
            "It allows neither fast-forward merges nor merge commits.",
            "Allow fast-forward-only in its settings.",
            True,
        )
    elif not repository.fast_forward:
        yield Complaint(
            "It does not merge by fast-forward only: the server makes a commit of its own, whose tree is compared.",
            "Allow fast-forward-only merges (Gitea 1.22, Forgejo 7, or newer).",
            False,
        )
    if repository.may_push and not branch.may_merge:
        yield Complaint(
            f"Our user may not merge into {name}.",
            "Put the user on the branch's list of who may merge.",
            True,
        )
    if repository.administered:
        yield Complaint(
            "Our user is an administrator of it: the rules of its branches do not bind us.",
            "Give the user write access instead.",
            False,
        )
    if not branch.protected:
        yield Complaint(
            f"{name} is not protected: who may write can push to it past every gate.",
            "Protect it against pushes, and let our user merge.",
            False,
        )
    if branch.required_approvals > 0:
        asks = f"{name} asks for approvals ({branch.required_approvals})"
        yield Complaint(
            f"{asks} and dismisses stale ones. The candidate is a new commit: it is never merged."
            if branch.dismisses
            else f"{asks}. The candidate is a new commit, which they are not for; with `dismiss stale approvals` it is "
            "never merged.",
            "Switch that off there, and ask for approvals by `[forge] required_reviews` or `[approvals]` instead.",
            branch.dismisses is True,
        )
