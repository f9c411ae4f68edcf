"""Strangers' words stay words."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.quoting import as_words


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
