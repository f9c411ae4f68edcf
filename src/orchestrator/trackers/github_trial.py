"""What `orch connect github` does in a repository whose tickets are its issues: the labels that mark and show them."""

from collections.abc import Collection
from http import HTTPStatus

from orchestrator.domain.errors import OutsideError
from orchestrator.trackers.github_issues import Issues
from orchestrator.trackers.github_labels import COLOR, SHOWN, label_of

MARK_COLOR = "0e8a16"


def add_labels(issues: Issues, marks: Collection[str]) -> list[str]:
    """Have the labels that show a stage in the repository, and the first of those that have an issue taken where it has
    none of them; the names of what was made.

    :raises OutsideError: our user may not make them, or the server cannot be asked.
    """
    known = issues.labels()
    mark = None if known & set(marks) else min(marks, default=None)
    wanted = [(mark, MARK_COLOR, "Is taken by orch")] if mark is not None else []
    wanted += [
        (label, COLOR, "Where orch is with it")
        for stage in SHOWN
        if (label := label_of(stage)) is not None and label not in known
    ]
    made = []
    for label, color, description in wanted:
        told = issues.make_label(label, color, description)
        if told.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            raise OutsideError(
                "Our user may not write to its issues.",
                hint="Give its token the permission Issues: read and write.",
            )
        if told.ok:  # else somebody was quicker
            made.append(label)
        elif told.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise OutsideError(f"GitHub did not make the label {label} ({told.status}): {told.message}.")
    return made
