"""What a coverage report amounts to, and the one way in which it is refused.

What must hold: a ``Coverage`` is a sane number (``0 <= covered <= total``, ``total > 0``) that the report itself does
not contradict. The absence of a measurement is never a number. On failure: ``MeasurementFailed``.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.errors import MeasurementFailed

MAX_LINES = 2_000_000
"""Measured lines of one report; bounds the memory that comparing totals with their parts takes."""

MAX_FILES = 200_000
"""Source files of one report; for the same reason."""

_COUNT = re.compile(r"[0-9]{1,15}")


@dataclass(frozen=True, slots=True)
class Coverage:
    """What was measured. ``percent`` is rounded down to two decimals, so that rounding never lifts a ratchet."""

    covered: int
    total: int
    percent: float


def measured(covered: int, total: int, *, report: str) -> Coverage:
    """The measurement, once its numbers are sane.

    :raises MeasurementFailed: nothing was measured, or more was covered than there is.
    """
    if not total > 0:
        raise refused(report, "it counts no lines at all", "at least one measured line")
    if not 0 <= covered <= total:
        raise refused(report, f"{covered} of {total} lines covered", "between none and all")
    return Coverage(covered, total, covered * 10_000 // total / 100)


def refused(report: str, found: str, expected: str) -> MeasurementFailed:
    """The error for a report that cannot be taken for a measurement."""
    return MeasurementFailed(
        f"Coverage report {report}: {found}; expected {expected}. "
        "Nothing was measured: the coverage gate does not pass and the baseline stays as it is.",
        hint="Look at the coverage step of the CI command and at `[coverage]` in .orchestrator.toml.",
    )


def count(text: str, what: str, *, report: str) -> int:
    """A number of lines or hits as written in a report.

    :raises MeasurementFailed: anything but one to fifteen digits.
    """
    if _COUNT.fullmatch(text) is None:
        raise refused(report, f"{what} is {text[:40]!r}", "a whole number, zero or more")
    return int(text)


class Checkout:
    """Tells the checkout's files from others, as a report names them.

    Names are compared as text: the file need not exist any more.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        # A report may name the checkout by the path it was given or by the one without links.
        self._tops = tuple({os.path.normpath(self._root) + "/", os.path.realpath(root) + "/"})

    def inside(self, name: str, base: str = "") -> str | None:
        """The file's path relative to the checkout, or ``None`` for a file elsewhere.

        ``base`` is what a relative name is relative to; itself relative to the checkout.
        """
        path = os.path.normpath(os.path.join(self._root, base, name))
        return next((path.removeprefix(top) for top in self._tops if path.startswith(top)), None)


def outside(name: str, *, report: str) -> MeasurementFailed:
    """The error for a report about files that are not the checkout's."""
    return refused(report, f"it counts the file {name[:200]!r}", "files of the checkout alone")
