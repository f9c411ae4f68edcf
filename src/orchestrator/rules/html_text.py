"""What a person would read of HTML that a stranger has written, a line for each block.

Must hold: reading it takes time that grows with its length and no faster, and never fails. Python's own parser keeps
neither: of 3.11.7 it takes seconds for 20 kB of open tags, and raises on some declarations. What is needed here is less
than parsing, and is one expression.
"""

import re
from collections.abc import Collection, Iterator
from html import unescape

NOBODYS = frozenset({"script", "style"})  # what is between these tags nobody reads
_BLOCKS = frozenset({"p", "br", "div", "li", "ul", "ol", "pre", "h1", "h2", "h3", "h4", "blockquote", "tr"})
# Every branch takes all that it has looked at: what is never closed goes on to the end, as in a browser.
_PIECE = re.compile(
    r"""<!--(?:.*?-->|.*)
      | <(?P<close>/?)(?P<tag>[a-zA-Z][^\s/>]*+)(?:[^>"']++|"[^"]*+"?|'[^']*+'?)*+>?
      | <[!?/][^>]*+>?
      | (?P<text>[^<]++|<)""",
    re.DOTALL | re.VERBOSE,
)
_ENDLESS_NUMBER = re.compile(r"&#[0-9]{9,}")  # no character has it, and Python refuses to read it


def readable(html: str, *, unsaid: Collection[str] = NOBODYS) -> str:
    """The text of it; ``unsaid`` are tags whose content is left out."""
    return unescape(_ENDLESS_NUMBER.sub("\ufffd", "".join(_said(html, unsaid))))


def _said(html: str, unsaid: Collection[str]) -> Iterator[str]:
    inside = dict.fromkeys(unsaid, 0)
    for piece in _PIECE.finditer(html):
        tag = (piece["tag"] or "").lower()
        if tag in inside:
            inside[tag] = max(0, inside[tag] + (-1 if piece["close"] else 1))
        if tag in _BLOCKS:
            yield "\n"
        elif piece["text"] and not any(inside.values()):
            yield piece["text"]
