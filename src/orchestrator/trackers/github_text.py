"""How an issue is named here, and what a comment there looks like."""

import re

from orchestrator.domain.errors import OutsideError
from orchestrator.rules.quoting import as_markdown
from orchestrator.trackers.telling import cut

_TICKET = re.compile(r".*#([1-9][0-9]{0,17})")


def ticket_of(repo: str, number: int) -> str:
    """The external id of an issue: by our own name of its repository, for that stays when it is renamed there."""
    return f"{repo}#{number}"


def numbered(external_id: str) -> int:
    """The number that an external id bears.

    :raises OutsideError: it is none of an issue.
    """
    found = _TICKET.fullmatch(external_id)
    if found is None:
        raise OutsideError(f"{external_id!r} is no issue at GitHub.")
    return int(found[1])


def as_comment(text: str, mark: str, pull_request: str | None) -> str:
    """Words of ours as a comment; nobody's text becomes markup there, and the mark is seen by none who reads it."""
    link = [f"Pull request: {pull_request}"] if pull_request else []
    return "\n\n".join([as_markdown(cut(text)), *link, hidden(mark)])


def hidden(mark: str) -> str:
    """By which we know a comment of ours again."""
    return f"<!-- {mark} -->"
