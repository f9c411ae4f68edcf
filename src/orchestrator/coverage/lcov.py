"""Reader of LCOV tracefiles (``lcov.info``).

One record per source file and test run: ``SF``, a ``DA`` for each line, ``LF`` and ``LH`` as their sums,
``end_of_record``. Records about the same file are put together; other kinds of lines are not needed here.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.coverage.measurement import (
    MAX_FILES,
    MAX_LINES,
    Checkout,
    Coverage,
    count,
    measured,
    outside,
    refused,
)

_KEY = re.compile(r"[A-Z][A-Z0-9]{1,7}")  # TN, SF, VER, FN, FNDA, FNL, BRDA, MCDC …
_MAX_LINE = 16 * 1024  # characters; function names of templates are long


@dataclass(slots=True)
class _Record:
    source: str
    lines: dict[int, bool] = field(default_factory=dict)
    found: int | None = None
    hit: int | None = None


def read(data: bytes, *, report: str, root: Path) -> Coverage:
    """The lines of the tracefile, checked against the sums that it states.

    :raises MeasurementFailed: not such a file, cut off, or one that contradicts itself.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refused(report, f"byte {error.start} is not UTF-8", "an LCOV tracefile") from None
    return _Tracefile(report, root).read(text)


class _Tracefile:
    """Reads line by line; holds the record that is open and the files seen so far."""

    def __init__(self, report: str, root: Path) -> None:
        self._report = report
        self._checkout = Checkout(root)
        self._record: _Record | None = None
        self._files: dict[str, dict[int, bool]] = {}
        self._counted = 0

    def read(self, text: str) -> Coverage:
        for line in text.split("\n"):
            self._line(line.rstrip("\r"))
        if self._record is not None:
            source = self._record.source
            raise refused(
                self._report, f"the record of {source[:200]!r} has no end_of_record", "a complete file"
            )
        covered = sum(sum(lines.values()) for lines in self._files.values())
        return measured(covered, sum(map(len, self._files.values())), report=self._report)

    def _line(self, line: str) -> None:
        if not line.strip() or line.startswith("#"):
            return
        if line.strip() == "end_of_record":
            self._close(self._opened(line))
            return
        key, colon, value = line.partition(":")
        if not colon or not _KEY.fullmatch(key) or len(line) > _MAX_LINE:
            raise refused(self._report, f"a line {line[:60]!r}", "an LCOV tracefile")
        if key == "SF":
            self._open(value)
        elif key == "DA":
            self._count_line(self._opened(line), value)
        elif key == "LF":
            self._opened(line).found = count(value.strip(), "LF", report=self._report)
        elif key == "LH":
            self._opened(line).hit = count(value.strip(), "LH", report=self._report)

    def _open(self, source: str) -> None:
        if self._record is not None:
            raise refused(self._report, f"a second SF in the record of {self._record.source[:200]!r}", "one")
        name = self._checkout.inside(source) if source.strip() else None
        if name is None:
            raise outside(source, report=self._report)
        self._record = _Record(name)

    def _opened(self, line: str) -> _Record:
        if self._record is None:
            raise refused(self._report, f"{line[:60]!r} before any SF", "an LCOV tracefile")
        return self._record

    def _count_line(self, record: _Record, value: str) -> None:
        parts = value.strip().split(",")
        if len(parts) not in (2, 3):  # the third is a checksum
            raise refused(self._report, f"a line 'DA:{value[:60]}'", "DA:<line>,<hits>")
        number = count(parts[0], "a line's number", report=self._report)
        hits = count(parts[1], "a line's hits", report=self._report)
        self._counted += 1
        if self._counted > MAX_LINES:
            raise refused(self._report, f"more than {MAX_LINES} lines", "a smaller report")
        record.lines[number] = record.lines.get(number, False) or hits > 0

    def _close(self, record: _Record) -> None:
        found, hit = len(record.lines), sum(record.lines.values())
        for key, stated, counted in (("LF", record.found, found), ("LH", record.hit, hit)):
            if stated is not None and stated != counted:
                text = f"{key} of {record.source[:200]!r} is {stated}, its lines say {counted}"
                raise refused(self._report, text, "equal numbers")
        lines = self._files.setdefault(record.source, {})
        if len(self._files) > MAX_FILES:
            raise refused(self._report, f"more than {MAX_FILES} files", "a smaller report")
        for number, covered in record.lines.items():
            lines[number] = lines.get(number, False) or covered
        self._record = None
