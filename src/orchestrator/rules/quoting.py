"""Strangers' words where a server reads more into them: in a pull request "closes #5" would close a ticket."""

import re

_RUNS = re.compile("`+")


def as_words(text: str) -> str:
    """Text as a Markdown block in which nothing is a reference, a mention, a link or markup; nothing stays nothing."""
    if not text.strip():
        return ""
    longest = max((len(run) for run in _RUNS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
