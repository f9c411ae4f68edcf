"""Words of ours as HTML for a comment: every value is escaped, so that nobody's text becomes markup there."""

import html

from orchestrator.trackers.telling import cut


def as_html(text: str) -> str:
    """A paragraph for each line of the text."""
    whole = cut("".join(char if char.isprintable() or char in "\n\t" else " " for char in text))
    lines = [line.strip() for line in whole.splitlines()]
    return "".join(f"<p>{html.escape(line)}</p>" for line in lines if line) or "<p></p>"
