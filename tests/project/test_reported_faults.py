"""The page of reported faults names tests that exist, and none of the faults is missing."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/reported-faults.md").read_text(encoding="utf-8")
FAULTS = 35


def test_every_fault_is_told() -> None:
    assert re.findall(r"^\| (\d+) \|", PAGE, re.M) == [str(n) for n in range(1, FAULTS + 1)]


def test_the_tests_it_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", PAGE)
    assert len(named) > FAULTS
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or (name and f"def {name}(" not in (ROOT / path).read_text("utf-8"))
    ]
    assert missing == []
