"""Lengths of time as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.duration import parse_duration, render_duration
from orchestrator.domain.spelling import did_you_mean


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("1.5", 1.5),
        ("10m", 600),
        ("2h", 7200),
        ("1d", 86400),
        ("500ms", 0.5),
        (" 5 m ", 300),
    ],
)
def test_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "-1", "1e3", "inf", "nan", "1h30m", "5 minutes", "\u0665", "1" * 30, "1_0"]
)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match="seconds as a number"):
        parse_duration(text)


@given(st.integers(0, 10**8))
def test_rendered_text_is_read_back(seconds: int) -> None:
    assert parse_duration(render_duration(seconds)) == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0"), (0.05, "0.05s"), (90, "90s"), (600, "10m"), (86400, "1d")]
)
def test_rendered(seconds: float, text: str) -> None:
    assert render_duration(seconds) == text


def test_did_you_mean() -> None:
    assert did_you_mean("timout", ["timeout", "command"]) == "Did you mean timeout?"
    assert did_you_mean("zzz", ["timeout"]) == ""
