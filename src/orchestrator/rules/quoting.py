"""Strangers' words where a server reads more into them: in a pull request "closes #5" would close a ticket."""

import re

_RUNS = re.compile("`+")
# A number that a server would take for another ticket or pull request, before its digits: `#5`, `shop#5`, Gitea's `!5`,
# `GH-5`, and an address that ends in one.
_NUMBERED = re.compile(r"[#!](?=\d)|\bGH-(?=\d)|\bhttps?:(?=//\S*?/(?:issues|pulls?)/\d)", re.IGNORECASE)
_MARKUP = re.compile(r"[\\`*_\[\]<>~|$&]")
_AT_ITS_BEGINNING = re.compile(r"^(\d*)([#+\-=.):])")  # a heading, a list, a rule
_REFERENCE = re.compile(r"[@#!](?=\w)|\bGH(?=-\d)|\bwww(?=\.)|\bhttps?:(?=//)", re.IGNORECASE)


def as_words(text: str) -> str:
    """Text as a Markdown block in which nothing is a reference, a mention, a link or markup; nothing stays nothing."""
    if not text.strip():
        return ""
    longest = max((len(run) for run in _RUNS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def without_references(line: str) -> str:
    """Text as the title of a pull request or the subject of a commit, where nothing is markup and everything is
    searched: what would name a ticket by its number reads the same and names none, so that none is closed by it.
    """
    return _NUMBERED.sub(lambda found: f"{found[0].removesuffix('-')} ", line)


def as_markdown(text: str) -> str:
    """Text as Markdown that reads like it, a paragraph for each line: nothing is a reference, a mention, a link or
    markup. A space of no width stands in what would be one."""
    clean = "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)
    lines = (" ".join(line.split()) for line in clean.splitlines())
    return "\n\n".join(_REFERENCE.sub("\\g<0>\u200b", _escaped(line)) for line in lines if line)


def _escaped(line: str) -> str:
    return _AT_ITS_BEGINNING.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", line))
