"""The front matter of a Markdown document: the block between two lines ``---`` at its top, and the text below.

What must hold: equal meaning with and without byte-order mark, CRLF and a leading blank line; ``---`` further down
is text; a block that is not there, not closed or not readable is an error, never an empty block.
On failure: ``DocumentError`` naming file and line.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.work_items.plain_yaml import Value, parse_yaml, read_yaml_text
from orchestrator.work_items.reading import DocumentError, decode, refusal

__all__ = ["DocumentError", "FrontMatter", "Value", "parse_front_matter", "parse_yaml"]

_FENCE = "---"
_CODE_FENCES = ("```", "~~~")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """A Markdown document in its two parts. ``lines`` says where each field, and each entry below it, begins."""

    file: str
    fields: Mapping[str, Value]
    lines: Mapping[tuple[str | int, ...], int]
    body: str
    body_line: int


def parse_front_matter(data: bytes, *, file: str) -> FrontMatter:
    """Split a document and read its front matter; every scalar stays as it was written.

    :raises DocumentError: no front matter, not closed, or not usable YAML (see ``plain_yaml``).
    """
    lines = decode(data, file=file).split("\n")
    opening = _opening(lines, file)
    closing = _closing(lines, opening, file)
    block = "\n".join(lines[opening + 1 : closing])
    plain = read_yaml_text(block, file=file, first_line=opening + 2)
    if not isinstance(plain.value, dict):
        raise refusal(file, opening + 2, "front matter that is no mapping", "`key: value` lines")
    return FrontMatter(
        file=file,
        fields=plain.value,
        lines=plain.lines,
        body="\n".join(lines[closing + 1 :]),
        body_line=closing + 2,
    )


def _opening(lines: list[str], file: str) -> int:
    first = next((number for number, line in enumerate(lines) if line.strip()), None)
    if first is None:
        raise refusal(file, 1, "an empty file", "front matter between two lines `---`, then text")
    if lines[first].rstrip() != _FENCE:
        raise refusal(file, first + 1, "no front matter", "a line `---` before anything else")
    return first


def _closing(lines: list[str], opening: int, file: str) -> int:
    for number in range(opening + 1, len(lines)):
        if lines[number].rstrip() == _FENCE:
            return number
        if lines[number].startswith(_CODE_FENCES):
            # Code belongs to the text: a `---` inside it must not close a block that was never closed.
            raise refusal(
                file, number + 1, "front matter runs into a code block", "a closing line `---` above it"
            )
    raise refusal(file, opening + 1, "front matter is not closed", "a second line `---` below its last key")
