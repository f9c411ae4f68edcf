"""What a verdict is about (DESIGN §3): the gated SHA of a head."""

from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import Sha
from orchestrator.work_items.documents import folder, kind_of
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.commits import REGULAR


def why_not_gated(
    clone: Clone, *, gated: Sha, head: Sha, own: frozenset[Sha], work_item: str
) -> Finding | None:
    """Why verdicts about ``gated`` say nothing of ``head``; None where they hold.

    They hold iff ``gated`` is the head or an ancestor of it, everything since was committed by the orchestrator itself,
    and only documents of the work item (regular files named as the catalogue names them) differ.
    """
    if gated == head:
        return None
    if not clone.is_ancestor(gated, head):
        return Finding(f"the judged commit {gated} is no ancestor of the head {head}")
    strangers = [commit.sha for commit in clone.commits(gated, head) if commit.sha not in own]
    if strangers:
        return Finding(
            f"{strangers[0]} was committed after the judgement of {gated}, not by the orchestrator"
        )
    place = folder(work_item)
    if not clone.trees_equal_outside(gated, head, place):
        return Finding(f"{head} differs from the judged commit {gated} outside {place}")
    for change in clone.changes(gated, head):
        name = change.path.removeprefix(place).lstrip("/")
        if change.mode not in REGULAR and change.mode != "000000" or kind_of(name) is None:
            return Finding("only work-item documents may follow the judged commit", file=change.path)
    return None
