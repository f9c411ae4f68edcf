"""A name that nobody knows, and the one that was probably meant."""

import difflib
from collections.abc import Iterable

_CLOSE = 0.6  # difflib's own threshold: a swapped or missing letter passes, another word does not


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``Did you mean X?`` or an empty text where nothing known resembles ``name``."""
    close = difflib.get_close_matches(name[:200], list(known), n=1, cutoff=_CLOSE)
    return f"Did you mean {close[0]}?" if close else ""
