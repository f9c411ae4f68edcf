"""What reaches the terminal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli import terminal


@given(st.text())
def test_clean_text_holds_nothing_that_a_terminal_obeys(text: str) -> None:
    shown = terminal.clean(text)
    assert all(c.isprintable() or c == "\u200d" or c.isspace() for c in shown)
    assert "\n" not in shown and "\r" not in shown and "\x1b" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;pwned\x07", r"\x1b]0;pwned\x07"),
        ("a\rb", r"a\rb"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\x9b31m", r"\x9b31m"),
        ("Привет, мир 👩\u200d🔬", "Привет, мир 👩\u200d🔬"),
        ("\udcff", r"\udcff"),
    ],
    ids=["title", "return", "bidi", "C1", "letters", "surrogate"],
)
def test_clean(text: str, shown: str) -> None:
    assert terminal.clean(text) == shown


@given(st.dictionaries(st.text(), st.text()))
def test_json_is_json_and_harmless(value: dict[str, str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        said: list[str] = []
        patch.setattr(terminal.click, "echo", said.append)
        terminal.say_json(value)
    assert json.loads(said[0]) == value
    assert all(c.isprintable() or c in "\n\u200d" or c.isspace() for c in said[0])


def test_columns_line_up_whatever_the_letters() -> None:
    lines = terminal.table([("日本", "x"), ("ab", "y"), ("é", "z")], ("ONE", "TWO")).splitlines()
    ends = {terminal.width(line[: line.rindex(" ")]) for line in lines}
    assert len(ends) == 1


@given(st.text(max_size=300), st.integers(min_value=2, max_value=80))
def test_shortened_text_fits(text: str, room: int) -> None:
    assert terminal.width(terminal.shorten(text, room)) <= room
