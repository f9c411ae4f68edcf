"""What `orch connect plane` does at a project: the label that marks our tickets, and a trial."""

from http import HTTPStatus

from orchestrator.domain.errors import OutsideError
from orchestrator.trackers.plane_api import Answer, good, mapping
from orchestrator.trackers.plane_project import PlaneProject
from orchestrator.trackers.plane_records import identifier

COLOUR = "#3f76ff"
TEXT = "<p>A trial of the connection; removed at once.</p>"


def add_label(project: PlaneProject, name: str) -> None:
    """Have a label of this name in the project.

    :raises OutsideError: our user may not make one, or the server cannot be asked.
    """
    answer = project.add_label(name, COLOUR)
    if answer.status != HTTPStatus.CONFLICT:  # it is there
        _done(answer, "a label")


def file_and_remove(project: PlaneProject, word: str) -> None:
    """File a work item whose title holds a word, and remove it.

    :raises OutsideError: our user may not, or the server cannot be asked.
    """
    made = _done(project.file(f"orch connect {word}", TEXT), "a work item")
    removed = project.remove(identifier(mapping(made.body), "id"))
    if not removed.ok and removed.status != HTTPStatus.NOT_FOUND:
        raise OutsideError(
            f"The trial's work item `orch connect {word}` could not be removed ({removed.status}).",
            hint="Remove it by hand.",
        )


def _done(answer: Answer, what: str) -> Answer:
    if answer.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        raise OutsideError(
            f"Our user may not make {what} there.", hint="Make it a member of the project, not a guest."
        )
    return good(answer, what)
