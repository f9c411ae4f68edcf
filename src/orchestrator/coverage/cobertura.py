"""Reader of Cobertura XML: streamed, without a tree, without entities.

Many programs write this format, each a little differently. What is asked of all: a root ``coverage`` with a
``line-rate``, the lines of each class, and totals that agree with them. A bare ``<!DOCTYPE coverage SYSTEM …>``, which
gcovr and Istanbul always write, names a grammar that is never fetched; one that declares anything is refused.
"""

import re
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException, DTDForbidden
from defusedxml.ElementTree import DefusedXMLParser

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

_RATE = re.compile(r"[0-9]{1,4}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,3})?")
_RATE_SLACK = 0.01  # programs write two to seventeen decimals
_MAX_DEPTH = 64
_MAX_SOURCES = 100  # each file is looked for under each of them
_CHUNK = 1024 * 1024

_CLASS = ["coverage", "packages", "package", "classes", "class"]
_LINE = [*_CLASS, "lines", "line"]
_SOURCE = ["coverage", "sources", "source"]


def read(data: bytes, *, report: str, root: Path) -> Coverage:
    """The lines of the report, checked against its totals and its rate.

    :raises MeasurementFailed: not such a report, not well formed, or one that contradicts itself.
    """
    tally = _Tally(report)
    parser = _Parser(target=tally)
    try:
        for start in range(0, len(data), _CHUNK):
            parser.feed(data[start : start + _CHUNK])
        parser.close()
    except DefusedXmlException as error:
        found = f"it declares a DTD or entities ({type(error).__name__})"
        raise refused(report, found, "plain XML") from None
    except (ParseError, ValueError, LookupError) as error:
        # Besides bad XML: an encoding that expat does not know, or knows and cannot read.
        raise refused(
            report, f"it is not well-formed XML ({str(error)[:120]})", "a Cobertura report"
        ) from None
    return tally.result(root)


class _Parser(DefusedXMLParser):
    """Refuses entities always, and a DOCTYPE as soon as it holds declarations of its own."""

    def __init__(self, target: object) -> None:
        super().__init__(target=target, forbid_dtd=False, forbid_entities=True, forbid_external=True)
        # (The parser itself keeps a ``_doctype``, so that this needs another name.)
        self.parser.StartDoctypeDeclHandler = self._doctype_declared

    def _doctype_declared(
        self, name: str, system: str | None, public: str | None, internal_subset: int
    ) -> None:
        if internal_subset or name != "coverage":
            raise DTDForbidden(name, system, public)


class _Tally:
    """Target of the parser: counts as the elements go by."""

    def __init__(self, report: str) -> None:
        self._report = report
        self._path: list[str] = []
        self._root: dict[str, str] | None = None
        self._sources: list[str] = []
        self._text: list[str] = []
        self._files: dict[str, dict[int, bool]] = {}
        self._lines: dict[int, bool] = {}
        self._counted = 0
        self._by_class = [0, 0]  # covered, total: for programs that add classes up, also those sharing a file

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._path.append(tag)
        if len(self._path) > _MAX_DEPTH:
            raise refused(self._report, f"more than {_MAX_DEPTH} levels of elements", "a Cobertura report")
        if len(self._path) == 1:
            if tag != "coverage":
                raise refused(self._report, f"its root element is {tag[:60]!r}", "'coverage'")
            self._root = attributes
        elif self._path == _SOURCE:
            self._text = []
        elif self._path == _CLASS:
            self._lines = self._files.setdefault(self._needed(attributes, "filename", "class"), {})
            if len(self._files) > MAX_FILES:
                raise refused(self._report, f"more than {MAX_FILES} files", "a smaller report")
        elif self._path == _LINE:
            self._count_line(attributes)

    def data(self, text: str) -> None:
        if self._path == _SOURCE:
            self._text.append(text)

    def end(self, tag: str) -> None:
        if self._path == _SOURCE:
            self._sources.append("".join(self._text).strip())
            if len(self._sources) > _MAX_SOURCES:
                raise refused(self._report, f"more than {_MAX_SOURCES} sources", "a Cobertura report")
        self._path.pop()

    def close(self) -> None:
        """The parser asks for it; the result is fetched by its own name."""

    def result(self, root: Path) -> Coverage:
        """What the lines amount to.

        :raises MeasurementFailed: the totals or the rate say otherwise, or a file lies outside ``root``.
        """
        attributes = self._root or {}
        checkout = Checkout(root)
        for name in self._files:
            # An empty list of sources means the checkout itself.
            if all(checkout.inside(name, source) is None for source in self._sources or [""]):
                raise outside(name, report=self._report)
        covered = sum(sum(lines.values()) for lines in self._files.values())
        by_file = (covered, sum(map(len, self._files.values())))
        stated = self._stated(attributes)
        if stated is not None and stated != by_file and stated != tuple(self._by_class):
            found = (
                f"lines-covered/lines-valid are {stated[0]}/{stated[1]}, its lines {by_file[0]}/{by_file[1]}"
            )
            raise refused(self._report, found, "equal numbers")
        result = measured(*(stated or by_file), report=self._report)
        rate = self._rate(attributes)
        if not abs(rate - result.covered / result.total) <= _RATE_SLACK:
            found = f"line-rate is {rate} where {result.covered} of {result.total} lines are covered"
            raise refused(self._report, found, "the same in both")
        return result

    def _count_line(self, attributes: dict[str, str]) -> None:
        number = count(self._needed(attributes, "number", "line"), "a line's number", report=self._report)
        hits = count(self._needed(attributes, "hits", "line"), "a line's hits", report=self._report)
        self._counted += 1
        if self._counted > MAX_LINES:
            raise refused(self._report, f"more than {MAX_LINES} lines", "a smaller report")
        self._lines[number] = self._lines.get(number, False) or hits > 0
        self._by_class[0] += hits > 0
        self._by_class[1] += 1

    def _stated(self, attributes: dict[str, str]) -> tuple[int, int] | None:
        """Covered and valid lines as the root says; ``None`` where an older program says neither."""
        if "lines-covered" not in attributes and "lines-valid" not in attributes:
            return None
        covered = count(
            self._needed(attributes, "lines-covered", "coverage"), "lines-covered", report=self._report
        )
        valid = count(self._needed(attributes, "lines-valid", "coverage"), "lines-valid", report=self._report)
        return covered, valid

    def _rate(self, attributes: dict[str, str]) -> float:
        text = self._needed(attributes, "line-rate", "coverage")
        rate = float(text) if _RATE.fullmatch(text) else float("nan")
        if not 0 <= rate <= 1:
            expected = "a number from 0 to 1 with a decimal point"
            raise refused(self._report, f"line-rate is {text[:40]!r}", expected)
        return rate

    def _needed(self, attributes: dict[str, Any], name: str, element: str) -> str:
        value = attributes.get(name)
        if not isinstance(value, str) or not value:
            raise refused(self._report, f"<{element}> has no {name}", "a Cobertura report")
        return value
