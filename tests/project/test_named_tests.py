"""The pages of faults and attacks name tests that exist, and leave none of them out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXPLANATION = ROOT / "docs" / "explanation"
PAGES = {
    "reported-faults.md": [str(n) for n in range(1, 36)],
    "attacks.md": [f"H{n}" for n in range(1, 28)] + [f"N{n}" for n in range(1, 24)],
}


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_left_out(page: str) -> None:
    text = (EXPLANATION / page).read_text(encoding="utf-8")
    assert re.findall(r"^\| ([HN]?\d+) \|", text, re.M) == PAGES[page]


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_that_are_named_exist(page: str) -> None:
    text = (EXPLANATION / page).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", text)
    assert len(named) > len(PAGES[page]) / 2
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or (name and f"def {name}(" not in (ROOT / path).read_text("utf-8"))
    ]
    assert missing == []
