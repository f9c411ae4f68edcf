"""Secrets are found by value, in every form in which programs repeat them."""

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.config import Secret
from orchestrator.observability.redactor import Redactor

CANARY = "Canary/7+value&with=odd\"chars'"
FORMS = {
    "plain": CANARY,
    "percent": quote(CANARY, safe=""),
    "percent, path": quote(CANARY),
    "plus": quote_plus(CANARY),
    "lower percent": quote(CANARY, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
    "some percent": CANARY.replace("=", "%3d").replace("C", "%43"),
    "json": json.dumps({"x": CANARY}),
    "html": html.escape(CANARY),
    "repr": repr(CANARY),
    "base64": base64.b64encode(CANARY.encode()).decode(),
    "basic login": base64.b64encode(f"oauth2:{CANARY}".encode()).decode(),
    "url-safe base64": base64.urlsafe_b64encode(f"me:{CANARY}\n".encode()).decode(),
}


@pytest.mark.parametrize("name", FORMS)
def test_known_forms(name: str) -> None:
    shown = Redactor([Secret(CANARY)]).text(f"before {FORMS[name]} after")
    assert shown.startswith("before ") and shown.endswith(" after") and "***" in shown
    assert CANARY not in shown
    assert "dmFsdWUmd2l0aD" not in shown  # a piece of its base64


@given(
    st.text(st.characters(codec="ascii", categories=["L", "N", "P", "S"]), min_size=12, max_size=40),
    st.binary(),
    st.binary(),
)
def test_base64_at_any_offset(secret: str, before: bytes, after: bytes) -> None:
    """What base64 shows of a secret, except the few bits at its edges, is gone."""
    encoded = base64.b64encode(before + secret.encode() + after).decode()
    shown = Redactor([secret]).text(encoded)
    at = len(before)
    inner = encoded[-(-at * 8 // 6) : (at + len(secret)) * 8 // 6]
    assert "***" in shown and inner not in shown


@settings(max_examples=50)
@given(st.lists(st.text(min_size=6, max_size=30), min_size=1, max_size=4), st.text(max_size=50))
def test_no_secret_survives(secrets: list[str], around: str) -> None:
    assume(not any(secret in "***" for secret in secrets))
    shown = Redactor(secrets).text(around + "|".join(secrets) + around)
    # Where two secrets overlap one of them is masked and the other loses a part: neither is whole.
    assert not any(secret in shown for secret in secrets if "*" not in secret and "|" not in secret)


def test_lines_of_a_key_file() -> None:
    key = "-----BEGIN KEY-----\nabcdefghijklmnopqrstuvwxyz\n-----END KEY-----\n"
    assert "abcdefgh" not in Redactor([key]).text("printed: abcdefghijklmnopqrstuvwxyz")


def test_nothing_and_short_values_mask_nothing() -> None:
    assert Redactor(["", "abc", "  "]).text("abc  x") == "abc  x"


def test_data_keeps_its_shape() -> None:
    redactor = Redactor(["hunter2-hunter2"])
    found = redactor.data(
        {"a": ["hunter2-hunter2", 1, None, True], "hunter2-hunter2": {"b": b"hunter2-hunter2"}}
    )
    assert found == {"a": ["***", 1, None, True], "***": {"b": "***"}}


def test_data_that_contains_itself_ends() -> None:
    loop: dict[str, object] = {"secret": "hunter2-hunter2"}
    loop["self"] = loop
    assert "hunter2" not in json.dumps(Redactor(["hunter2-hunter2"]).data(loop))


def test_the_redactor_does_not_show_its_secrets() -> None:
    assert "hunter2" not in repr(Redactor(["hunter2-hunter2"]))
