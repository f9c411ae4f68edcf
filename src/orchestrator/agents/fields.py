"""Reading JSON that an agent program printed: every field may be missing or of another type, and nothing raises."""

import json
import math
from collections.abc import Mapping

MAX_COUNT = 10**15  # beyond this a count is nonsense


def json_object(line: bytes | str) -> Mapping[str, object] | None:
    """The JSON object that the text is; None where it is none."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def inner(data: Mapping[str, object], key: str) -> Mapping[str, object]:
    """An object inside; empty where there is none."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def text(data: Mapping[str, object], key: str) -> str:
    """A text; empty where there is none."""
    value = data.get(key)
    return value if isinstance(value, str) else ""


def count(data: Mapping[str, object], key: str) -> int:
    """A number of things; 0 where there is none, or it is none that can be."""
    value = data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < MAX_COUNT else 0


def number(data: Mapping[str, object], key: str) -> float | None:
    """A finite number that is not negative."""
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1 < value < MAX_COUNT:
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
