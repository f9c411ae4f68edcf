"""Lengths of time as people write them: plain seconds, or a number with a unit such as ``90s``, ``10m``, ``2h``."""

import re

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?P<number>[0-9]{1,9}(?:\.[0-9]{1,6})?)\s?(?P<unit>ms|s|m|h|d)?", re.ASCII)

EXPECTED = 'seconds as a number, or text such as "90s", "10m", "2h", "1d"'


def parse_duration(text: str) -> float:
    """Seconds meant by ``text``; never negative.

    :raises ValueError: it is no length of time; the message is what was expected.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(EXPECTED)
    return float(match["number"]) * _UNITS[match["unit"] or "s"]


def render_duration(seconds: float) -> str:
    """The shortest text that ``parse_duration`` reads back as the same length, to the microsecond."""
    for unit in ("d", "h", "m"):
        count = seconds / _UNITS[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    number = f"{seconds:.6f}".rstrip("0").rstrip(".")
    return number if number == "0" else f"{number}s"
