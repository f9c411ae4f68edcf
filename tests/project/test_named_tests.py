"""The pages of faults, attacks and laws name tests that exist, and leave none of them out."""

import re
from pathlib import Path

import pytest

from tests.proofs import laws
from tests.proofs.mutations import MUTATIONS

ROOT = Path(__file__).parents[2]
EXPLANATION = ROOT / "docs" / "explanation"
PAGES = {
    "reported-faults.md": [str(n) for n in range(1, 36)],
    "attacks.md": [f"H{n}" for n in range(1, 28)] + [f"N{n}" for n in range(1, 24)],
}
LAWS = [str(n) for n in range(1, 13)]


@pytest.mark.parametrize("page", PAGES)
def test_nothing_is_left_out(page: str) -> None:
    text = (EXPLANATION / page).read_text(encoding="utf-8")
    assert re.findall(r"^\| ([HN]?\d+) \|", text, re.M) == PAGES[page]


@pytest.mark.parametrize("page", [*PAGES, "laws.md", "../decisions/0013-departures.md"])
def test_the_tests_that_are_named_exist(page: str) -> None:
    text = (EXPLANATION / page).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", text)
    assert len(named) > len(PAGES.get(page, LAWS)) / 2
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file()
        or (name and not re.search(rf"(?:def|class) {name}\b", (ROOT / path).read_text("utf-8")))
    ]
    assert missing == []


def test_each_law_is_explained_and_has_its_proofs() -> None:
    """Laws that are asked after every step, and seeded bugs, by the names that they have in the proofs."""
    text = (EXPLANATION / "laws.md").read_text(encoding="utf-8")
    explained, proved = text.split("## Which proof covers which law")
    assert re.findall(r"^\| (\d+) ", explained, re.M) == re.findall(r"^\| (\d+) \|", proved, re.M) == LAWS
    asked, bugs = set(), set()
    for line in re.findall(r"^\| (?:\d|slots).*\|$", proved, re.M):
        _, _, step, bug, _, _ = line.split("|")
        asked |= set(re.findall(r"`(\w+)`", step))
        bugs |= {name.strip() for name in bug.split(";")} - {"–"}
    assert [name for name in sorted(asked) if not callable(getattr(laws, name, None))] == []
    assert bugs == {mutation.name.removesuffix(", unguarded") for mutation in MUTATIONS}
