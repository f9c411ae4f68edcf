"""A person's command in a ticket's comment: its first line is what would be typed at the command line.

``orch approve``, ``orch task approve SHOP-7 --sha 3f9c2d1``, ``orch reject The button is red.``. Text in other places
of a comment, quotations of it included, commands nothing.

Must hold: whatever a stranger writes, reading it takes time that grows with its length and no faster, and ends in a
command or in none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.rules.html_text import NOBODYS, readable
from orchestrator.webhooks.fields import clean

COMMENT_LIMIT = 20_000  # characters of HTML that are looked at
REASON_LIMIT = 2_000
_NOT_SAID = NOBODYS | {"blockquote"}  # somebody else's words, or nobody's
_QUOTED = re.compile(r"^ {0,3}>.*\n?(?:.*\S.*\n?)*", re.MULTILINE)  # up to an empty line, marked or not
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
    """The command of a comment in HTML, None where its first line is none."""
    return _command(readable(html[:COMMENT_LIMIT], unsaid=_NOT_SAID).splitlines())


def command_in_markdown(text: str) -> Command | None:
    """The command of a comment in Markdown, None where its first line is none."""
    said = _QUOTED.sub("", text[:COMMENT_LIMIT].replace("\r\n", "\n"))
    return _command(readable(said, unsaid=_NOT_SAID).replace("`", "").splitlines())


def _command(said: Sequence[str]) -> Command | None:
    lines = [line for line in map(clean, said) if line]
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
