"""A person's command in a ticket's comment: its first line is what would be typed at the command line.

``orch approve``, ``orch task approve SHOP-7 --sha 3f9c2d1``, ``orch reject The button is red.``. Text in other places
of a comment, quotations of it included, commands nothing.

Must hold: whatever a stranger writes, reading it takes time that grows with its length and no faster, and ends in a
command or in none. Python's own parser keeps neither: of 3.11.7 it takes seconds for 20 kB of open tags, and raises on
some declarations. What is needed here is less than parsing, and is one expression.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape

from orchestrator.webhooks.fields import clean

COMMENT_LIMIT = 20_000  # characters of HTML that are looked at
REASON_LIMIT = 2_000
_BLOCKS = frozenset({"p", "br", "div", "li", "ul", "ol", "pre", "h1", "h2", "h3", "h4", "blockquote", "tr"})
_NOT_SAID = frozenset({"blockquote", "script", "style"})  # somebody else's words, or nobody's
# Every branch takes all that it has looked at: what is never closed goes on to the end, as in a browser.
_PIECE = re.compile(
    r"""<!--(?:.*?-->|.*)
      | <(?P<close>/?)(?P<tag>[a-zA-Z][^\s/>]*+)(?:[^>"']++|"[^"]*+"?|'[^']*+'?)*+>?
      | <[!?/][^>]*+>?
      | (?P<text>[^<]++|<)""",
    re.DOTALL | re.VERBOSE,
)
_ENDLESS_NUMBER = re.compile(r"&#[0-9]{9,}")  # no character has it, and Python refuses to read it
_COMMAND = re.compile(r"orch(?: task)? (approve|reject|cancel|retry)(?:\s+(.*))?", re.IGNORECASE)
_WORK_ITEM = re.compile(r"[A-Za-z][A-Za-z0-9_.]*-[0-9]+")
_SHA = re.compile(r"[0-9a-fA-F]{7,64}")


@dataclass(frozen=True, slots=True)
class Command:
    """What a comment asks for. ``work_item`` and ``sha`` are None where it names none."""

    verb: str
    work_item: str | None
    sha: str | None
    reason: str


def command_in(html: str) -> Command | None:
    """The command of a comment, None where its first line is none."""
    lines = [line for line in map(clean, _text(html[:COMMENT_LIMIT]).splitlines()) if line]
    found = _COMMAND.fullmatch(lines[0]) if lines else None
    if found is None:
        return None
    words = (found[2] or "").split()
    work_item = sha = None
    if words and _WORK_ITEM.fullmatch(words[0]):
        work_item = words.pop(0)
    if words and words[0] in ("--sha", "—sha"):  # editors make one long dash of two
        words.pop(0)
    if words and _SHA.fullmatch(words[0]):
        sha = words.pop(0).lower()
    if words and words[0] in ("--reason", "—reason"):
        words.pop(0)
    reason = "\n".join([" ".join(words), *lines[1:]]).strip().strip('"“”')
    return Command(found[1].lower(), work_item, sha, reason[:REASON_LIMIT])


def _text(html: str) -> str:
    """What a person would read of it, a line for each block."""
    return unescape(_ENDLESS_NUMBER.sub("\ufffd", "".join(_said(html))))


def _said(html: str) -> Iterator[str]:
    """The pieces that are a person's own words."""
    inside = dict.fromkeys(_NOT_SAID, 0)
    for piece in _PIECE.finditer(html):
        tag = (piece["tag"] or "").lower()
        if tag in _NOT_SAID:
            inside[tag] = max(0, inside[tag] + (-1 if piece["close"] else 1))
        if tag in _BLOCKS:
            yield "\n"
        elif piece["text"] and not any(inside.values()):
            yield piece["text"]
