"""What an alert looks like in Telegram: one text, as HTML and without any markup.

What must hold: every value is escaped; the visible text is at most :data:`LIMIT` UTF-16 code units, which is how
Telegram counts; it is cut before it is escaped, so that no tag, entity or character is ever cut in two; it is never
empty. The source of these rules is the Bot API's reference of ``sendMessage``.
"""

import hashlib
import html
import re
from dataclasses import dataclass

LIMIT = 4096  # UTF-16 code units, after the markup has been read
NO_TEXT = "(no text)"
CUT = "…"
_ADDRESS = re.compile(r"https?://[^\s\"<>]{1,1000}")


@dataclass(frozen=True, slots=True)
class Shown:
    """One alert, twice; ``plain`` is for where the markup is refused."""

    html: str
    plain: str


def shown(text: str, *, work_item: str | None, url: str | None, message_id: str) -> Shown:
    """The alert with its work item as a link, and a mark by which a person knows a repeat.

    An address that is not http or https is no link: nobody but us writes it, and still it is checked.
    """
    said = _readable(text)
    number = _readable(work_item or "").strip()[:100]
    if number and said.startswith(number) and not said[len(number) : len(number) + 1].isalnum():
        said = said[len(number) :]
    elif number:
        said = f": {said}"
    if not (number + said).strip():
        said = NO_TEXT
    address = url if number and url is not None and _ADDRESS.fullmatch(url) else ""
    mark = f"\n#{hashlib.sha256(message_id.encode('utf-8', 'replace')).hexdigest()[:8]}"
    beside = f" ({address})" if address else ""
    room = LIMIT - units(number) - units(mark)
    linked = f'<a href="{html.escape(address)}">{html.escape(number)}</a>' if address else html.escape(number)
    return Shown(
        html=f"<b>{linked}</b>{_escaped(said, room)}{mark}" if number else f"{_escaped(said, room)}{mark}",
        plain=f"{number}{beside}{cut(said, room - units(beside))}{mark}",
    )


def units(text: str) -> int:
    """The length as Telegram counts it: a character beyond the first 65,536 counts twice."""
    return len(text.encode("utf-16-le")) // 2


def cut(text: str, room: int) -> str:
    """The text, or as much of its beginning as fits with a sign that it goes on; no character is cut in two."""
    if units(text) <= room:
        return text
    return text.encode("utf-16-le")[: 2 * (room - units(CUT))].decode("utf-16-le", "ignore") + CUT


def _escaped(text: str, room: int) -> str:
    return html.escape(cut(text, room), quote=False)


def _readable(text: str) -> str:
    """Without what no message may hold: control characters, and halves of a character."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return "".join(char if char.isprintable() or char in "\n\t " else " " for char in whole)
