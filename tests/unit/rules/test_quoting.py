"""Strangers' words stay words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.quoting import as_markdown, as_words, without_references


@pytest.mark.parametrize("text", ["", " \n"])
def test_nothing_stays_nothing(text: str) -> None:
    assert as_words(text) == ""


@given(st.text(alphabet="`\n a#5", min_size=1).filter(lambda text: bool(text.strip())))
def test_no_text_gets_out_of_its_block(text: str) -> None:
    first, *middle, last = as_words(text).split("\n")
    fence = first.removesuffix("text")
    assert re.fullmatch("`{3,}", fence) and last == fence
    assert "\n".join(middle) == text
    assert fence not in text


@pytest.mark.parametrize(
    ("title", "reads"),
    [
        ("closes #5", "closes # 5"),
        ("Fixes: acme/shop#12, resolves GH-7 and gh-8", "Fixes: acme/shop# 12, resolves GH 7 and gh 8"),
        ("fix https://github.com/acme/shop/issues/5", "fix https: //github.com/acme/shop/issues/5"),
        ("closes !3 at a Gitea", "closes ! 3 at a Gitea"),
        (
            "Use C# 12, not #main; see https://example.org/a",
            "Use C# 12, not #main; see https://example.org/a",
        ),
        ("HIGH-5 for all", "HIGH-5 for all"),
    ],
)
def test_a_title_names_no_ticket_by_its_number(title: str, reads: str) -> None:
    assert without_references(title) == reads
    assert without_references(reads) == reads


@given(st.text(alphabet="#!5gGhH-closes /:"))
def test_no_title_closes_anything(title: str) -> None:
    said = without_references(title)
    assert not re.search(r"[#!]\d|\bgh-\d", said, re.IGNORECASE)
    assert re.sub(r"[\s-]", "", said) == re.sub(r"[\s-]", "", title)


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("Waits for a person: orch task approve SHOP-7", "Waits for a person: orch task approve SHOP-7"),
        ("One.\n\nTwo.", "One.\n\nTwo."),
        ("@ann closes #5", "@\u200bann closes #\u200b5"),
        ("# Big\n- item\n1. first\n---\n===", "\\# Big\n\n\\- item\n\n1\\. first\n\n\\---\n\n\\==="),
        ("<img src=x> `x` *b* [a](http://x)", "\\<img src=x\\> \\`x\\` \\*b\\* \\[a\\](http:\u200b//x)"),
        ("GH-5 www.example.org &amp; a|b", "GH\u200b-5 www\u200b.example.org \\&amp; a\\|b"),
        ("    indented\0\u202e", "indented"),
    ],
)
def test_text_in_a_comment_is_text(text: str, markdown: str) -> None:
    assert as_markdown(text) == markdown
