"""Words of ours as HTML for a comment: every value is escaped, so that nobody's text becomes markup there."""

import html

from orchestrator.domain.stage import Stage

LIMIT = 10_000  # characters of a comment before the markup
CUT = " …"


def as_html(text: str) -> str:
    """A paragraph for each line of the text."""
    whole = "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)
    if len(whole) > LIMIT:
        whole = whole[:LIMIT] + CUT
    lines = [line.strip() for line in whole.splitlines()]
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line) or "<p></p>"


def about_stage(work_item: str, stage: Stage, reason: str) -> str:
    """What a ticket is told of its task's new stage."""
    if stage is Stage.CREATED:
        return f"Taken as {work_item}."
    said = f"{work_item} is {stage}." if stage.terminal else f"{work_item} is in {stage}."
    return f"{said}\n{reason}" if reason.strip() else said
