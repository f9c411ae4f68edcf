"""Typed reading of a document's fields: every scalar is text until the type its field declares is asked for.

What must hold: a field is either of its declared type or a finding with file, line, what stands there and what was
expected; nothing falls back in silence. All objections to a document are gathered before it is refused.
"""

import re
from collections.abc import Mapping
from datetime import date, datetime
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import TypeVar

from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import Sha
from orchestrator.rules.verdicts import is_full_sha
from orchestrator.work_items.front_matter import FrontMatter, parse_front_matter
from orchestrator.work_items.plain_yaml import Path, Value, read_yaml
from orchestrator.work_items.reading import DocumentError, objection, refusal, shown

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?( ?([Zz]|[+-][0-9]{2}:[0-9]{2}))?"
)
_LINE_LIMIT = 500  # characters of a field that is one line of text
_KEYS_COMPARED = 100  # when a key looks misspelled; no document of ours has more

Choice = TypeVar("Choice", bound=StrEnum)


class FieldReader:
    """Reads fields one by one and gathers what is wrong with them."""

    def __init__(
        self, file: str, fields: Mapping[str, Value], lines: Mapping[Path, int], *, top: int = 1
    ) -> None:
        self.file = file
        self.findings: list[Finding] = []
        self._fields = fields
        self._lines = lines
        self._top = top  # where a missing field would stand

    def line_of(self, *path: str | int) -> int:
        """Line on which a field, or an entry below it, begins."""
        return self._lines.get(path, self._top)

    def raw(self, name: str) -> Value | None:
        """The field as it was read; ``None`` when it is missing."""
        return self._fields.get(name)

    def object_to(self, name: str, found: str, expected: str) -> None:
        """Note an objection to the field."""
        self.findings.append(objection(self.file, self.line_of(name), found, expected))

    def text(self, name: str, expected: str, *, required: bool = True, empty: bool = False) -> str | None:
        """One line of text. ``required``: the key must be there; ``empty``: its value may be nothing."""
        value = self._fields.get(name)
        if value is None:
            if required:
                self._missing(name, expected)
            return None
        if not isinstance(value, str):
            kind = "a list" if isinstance(value, list) else "a mapping"
            self.object_to(name, f"`{name}` is {kind}", expected)
        elif not value.strip():
            if empty:
                return ""
            self.object_to(name, f"`{name}` is empty", expected)
        elif len(value) > _LINE_LIMIT or "\n" in value.strip():
            self.object_to(name, f"`{name}` is a text of {len(value)} characters", f"one line: {expected}")
        else:
            return value.strip()
        return None

    def exactly(self, name: str, wanted: str) -> None:
        """The field must hold ``wanted``."""
        value = self.text(name, f"`{name}: {wanted}`")
        if value is not None and value != wanted:
            self.object_to(name, f"`{name}` is {shown(value)}", wanted)

    def choice(
        self, name: str, choices: type[Choice], *, required: bool = True, empty: bool = False
    ) -> Choice | None:
        """One of the values of an enum, written exactly so; ``None`` for nothing or for an objection."""
        expected = " | ".join(member.value for member in choices) + (" or nothing" if empty else "")
        value = self.text(name, expected, required=required, empty=empty)
        if not value:
            return None
        for member in choices:
            if member.value == value:
                return member
        self.object_to(name, f"`{name}` is {shown(value)}", expected)
        return None

    def sha(self, name: str) -> Sha | None:
        """A full commit id."""
        expected = "a full commit id of 40 or 64 lower-case hex digits"
        value = self.text(name, expected)
        if value is None:
            return None
        if is_full_sha(value):
            return Sha(value)
        self.object_to(name, f"`{name}` is {shown(value)}", expected)
        return None

    def moment(self, name: str) -> None:
        """A day (``2026-01-05``) or a point in time (``2026-01-05T12:30:45Z``) that exists."""
        expected = "a date such as 2026-01-05, or 2026-01-05T12:30:45Z"
        value = self.text(name, expected)
        if value is not None and not _exists(value):
            self.object_to(name, f"`{name}` is {shown(value)}", expected)

    def refuse_if_objected(self) -> None:
        """End the reading of a document that cannot be used.

        :raises DocumentError: there is any finding.
        """
        if self.findings:
            raise DocumentError(self.findings)

    def _missing(self, name: str, expected: str) -> None:
        candidates = [key for key in islice(self._fields, _KEYS_COMPARED) if len(key) <= 2 * len(name)]
        near = get_close_matches(name, candidates, n=1, cutoff=0.8)
        if near:
            line = self.line_of(near[0])
            self.findings.append(objection(self.file, line, f"`{near[0]}` instead of `{name}`", f"`{name}`"))
        else:
            self.findings.append(objection(self.file, self._top, f"`{name}` is missing", expected))


def markdown_fields(data: bytes, file: str) -> tuple[FrontMatter, FieldReader]:
    """A Markdown document opened for reading its front matter.

    :raises DocumentError: no readable front matter.
    """
    document = parse_front_matter(data, file=file)
    return document, FieldReader(file, document.fields, document.lines)


def yaml_fields(data: bytes, file: str) -> FieldReader:
    """A YAML document, all of it fields, opened for reading.

    :raises DocumentError: not readable, or no mapping.
    """
    plain = read_yaml(data, file=file)
    if not isinstance(plain.value, dict):
        raise refusal(file, 1, "no mapping at the top", "`key: value` lines")
    return FieldReader(file, plain.value, plain.lines)


def _exists(text: str) -> bool:
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
        elif _TIMESTAMP.fullmatch(text):
            datetime.fromisoformat(text.upper().replace(" Z", "Z").replace(" +", "+").replace(" -", "-"))
        else:
            return False
    except ValueError:
        return False
    return True
