"""What reaches the terminal. Ticket text and agents' words are hostile: no control or bidirectional code gets through.

Results go to standard output, everything else to standard error, so that `--json` can be piped.
"""

import json
import os
import sys
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from orchestrator.domain.errors import OutsideError

if TYPE_CHECKING:
    from orchestrator.runtime.clock import Clock

_JOINER = "\u200d"  # holds emoji together and does no harm
_WIDE = frozenset("WF")


def clean(text: str) -> str:
    """``text`` on one line, safe for any terminal."""
    return "".join(c if c == _JOINER or c.isprintable() or _blank(c) else ascii(c)[1:-1] for c in text)


def clean_lines(text: str) -> str:
    """Several lines, each safe."""
    return "\n".join(clean(line.replace("\t", "    ")) for line in text.splitlines())


def say(text: str = "") -> None:
    """A result, for people.

    :raises OutsideError: it cannot be written.
    """
    _result(clean_lines(text))


def note(text: str) -> None:
    """Something beside the result: to standard error."""
    click.echo(clean_lines(text), err=True)


def complain(message: str, hint: str = "") -> None:
    """An error: what happened, and what to do."""
    first, *rest = clean_lines(message).splitlines() or [""]
    lines = [f"orch: {first}", *rest, *(clean_lines(hint.strip()).splitlines())]
    click.echo("\n".join(lines), err=True)


def say_json(value: object) -> None:
    """A result, for programs: one JSON document; what a terminal would obey is escaped.

    :raises OutsideError: it cannot be written.
    """
    text = json.dumps(value, ensure_ascii=False, indent=2)
    safe = "".join(
        c if c in "\n" or c == _JOINER or c.isprintable() or _blank(c) else _escape(c) for c in text
    )
    _result(safe)


def _result(text: str) -> None:
    try:
        click.echo(text)
    except BrokenPipeError:  # whoever read us has seen enough
        raise
    except OSError as error:
        # What is left of it must not fail once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutsideError(
            f"The result cannot be written: {error.strerror}.",
            hint="What was asked for is done all the same: look before you ask for it again.",
        ) from error


def table(rows: Sequence[Sequence[str]], heads: Sequence[str]) -> str:
    """Columns that line up; the last one is cut to the terminal's width."""
    shown = [[clean(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(width(row[i]) for row in shown) for i in range(len(heads) - 1)]
    room = max(20, _columns() - sum(widths) - 2 * len(widths))
    lines = []
    for row in shown:
        cells = [cell + " " * (widths[i] - width(cell)) for i, cell in enumerate(row[:-1])]
        lines.append("  ".join([*cells, shorten(row[-1], room)]).rstrip())
    return "\n".join(lines)


def shorten(text: str, room: int) -> str:
    """The text, or as much of it as fits into ``room`` cells with an ellipsis."""
    if width(text) <= room:
        return text
    taken, used = "", 0
    for c in text:
        used += width(c)
        if used > room - 1:
            break
        taken += c
    return taken.rstrip() + "…"


def width(text: str) -> int:
    """How many cells of a terminal the text takes."""
    return sum(
        0
        if unicodedata.combining(c) or c == _JOINER
        else 2
        if unicodedata.east_asian_width(c) in _WIDE
        else 1
        for c in text
    )


def age(since: object, clock: "Clock") -> str:
    """How long ago a stamp was, such as ``4 min``; empty where it is none."""
    from orchestrator.runtime.clock import parse_stamp

    if not isinstance(since, str):
        return ""
    try:
        then: datetime = parse_stamp(since)
    except ValueError:
        return ""
    seconds = max(0, int((clock.utc() - then).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _blank(c: str) -> bool:
    return unicodedata.category(c) == "Zs"


def _escape(c: str) -> str:
    return json.dumps(c)[1:-1]


def _columns() -> int:
    """The terminal's width; wide where the output goes to a file or another program."""
    import shutil

    return shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 200
