"""Reader of coverage.py's JSON report (``coverage json``).

The number is coverage.py's own: lines, and branches too where the run measured them.
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from orchestrator.coverage.measurement import Checkout, Coverage, measured, outside, refused

_SUMMED = ("covered_lines", "num_statements")
_BRANCHES = ("covered_branches", "num_branches")
# How often each character may stand in a report: the most that a large project needs, and what keeps the memory
# that its objects take within a few hundred megabytes.
_BOUNDS = {b"{": 1_000_000, b"[": 1_000_000, b":": 2_000_000, b",": 8_000_000}
_PERCENT_SLACK = 0.01  # the report's percentage is a float of the same division


def read(data: bytes, *, report: str, root: Path) -> Coverage:
    """The totals of the report, checked against its files.

    :raises MeasurementFailed: not such a report, or one that contradicts itself.
    """
    document = _document(data, report)
    totals = _mapping(document, "totals", report)
    files = _mapping(document, "files", report)
    if not files:
        raise refused(report, "it names no files", "the files that were measured")
    branches = _branches(document, totals, report)
    names = _SUMMED + (_BRANCHES if branches else ())
    sums = dict.fromkeys(names, 0)
    checkout = Checkout(root)
    for name in files:
        if checkout.inside(name) is None:
            raise outside(name, report=report)
        summary = _mapping(_mapping(files, name, report), "summary", report)
        for key in names:
            sums[key] += _number(summary, key, report)
    for key in names:
        total = _number(totals, key, report)
        if total != sums[key]:
            raise refused(
                report, f"totals.{key} is {total}, its files add up to {sums[key]}", "equal numbers"
            )
    covered = sums["covered_lines"] + sums.get("covered_branches", 0)
    total = sums["num_statements"] + sums.get("num_branches", 0)
    result = measured(covered, total, report=report)
    _check_percent(totals, 100 * covered / total, report)
    return result


def _document(data: bytes, report: str) -> Mapping[str, object]:
    for character, bound in _BOUNDS.items():
        if data.count(character) > bound:
            raise refused(report, f"more than {bound} times {character.decode()!r}", "a smaller report")
    try:
        document = json.loads(
            data.decode("utf-8-sig"), parse_constant=_no_number, object_pairs_hook=_once_each
        )
    except (ValueError, RecursionError) as error:
        raise refused(
            report, f"it is not usable JSON ({str(error)[:120]})", "a report of `coverage json`"
        ) from None
    if not isinstance(document, dict):
        raise refused(report, "it is not a JSON object", "a report of `coverage json`")
    return document


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return mapping


def _mapping(parent: Mapping[str, object], key: str, report: str) -> Mapping[str, object]:
    value = parent.get(key)
    if not isinstance(value, dict):
        raise refused(report, f"{key[:200]!r} is missing or no object", "a report of `coverage json`")
    return value


def _branches(document: Mapping[str, object], totals: Mapping[str, object], report: str) -> bool:
    measured_branches = _mapping(document, "meta", report).get("branch_coverage")
    if not isinstance(measured_branches, bool):
        raise refused(report, "'meta.branch_coverage' is missing", "a report of `coverage json`")
    if not measured_branches and "num_branches" in totals:
        raise refused(report, "branches are counted but were not measured", "a report of one run")
    return measured_branches


def _number(mapping: Mapping[str, object], key: str, report: str) -> int:
    value = mapping.get(key)
    # ``True`` is an int to Python, and no count.
    if type(value) is not int or not 0 <= value < 10**15:
        raise refused(report, f"{key!r} is {str(value)[:40]!r}", "a whole number, zero or more")
    return value


def _check_percent(totals: Mapping[str, object], percent: float, report: str) -> None:
    stated = totals.get("percent_covered")
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        raise refused(report, "'percent_covered' is no number", "a percentage")
    # Written so that NaN fails; an int may be too large for a float.
    if not (0 <= stated <= 100 and math.isclose(stated, percent, rel_tol=0, abs_tol=_PERCENT_SLACK)):
        raise refused(report, f"'percent_covered' is {str(stated)[:40]}", f"{percent:.4f}, as the lines say")
