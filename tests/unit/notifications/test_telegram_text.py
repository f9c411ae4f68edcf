"""Whatever an alert says, Telegram takes it, shows it as it is, and links the work item."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.notifications.telegram_text import CUT, LIMIT, NO_TEXT, shown, units
from orchestrator.played.telegram import visible

URL = "https://orch.example.org/board/SHOP-7"
ITEM = "SHOP-7"
HARD = [
    "a<b && c",
    "</b>",
    "<script>alert(1)</script>",
    'File "x.py", in <module>',
    "&amp; &lt;",
    "\U0001f389" * 3000,
    "x" + "\U0001f389" * 3000,
    "&" * 5000,
    "<" * 4097,
    "",
    "   ",
    "\n\t",
    "\0\x1b[2J\x07",
    "\ud800 half \udfff",
    "\u202etxt.exe",
    "x" * 10_000,
]


@pytest.mark.parametrize("text", HARD, ids=range(len(HARD)))
@pytest.mark.parametrize("item", [None, ITEM])
def test_hard_texts_arrive(text: str, item: str | None) -> None:
    check(text, item, URL)


@given(
    st.text(st.characters()),
    st.none() | st.text(st.characters(), min_size=1),
    st.none() | st.text(st.characters()),
)
@example("x" * 5000, "x" * 5000, "https://" + "x" * 5000)
def test_any_text_arrives(text: str, item: str | None, url: str | None) -> None:
    check(text, item, url)


def check(text: str, item: str | None, url: str | None) -> None:
    message = shown(text, work_item=item, url=url, message_id="m")
    for said in (visible(message.html), message.plain):
        assert 0 < units(said) <= LIMIT and said.strip()
        said.encode("utf-8")
    if item == ITEM:
        assert visible(message.html).startswith(ITEM) and message.plain.startswith(ITEM)


def test_is_shown_as_it_was_said() -> None:
    message = shown('SHOP-7 review: a<b & "c"\nnext line', work_item=ITEM, url=URL, message_id="m")
    assert visible(message.html).startswith('SHOP-7 review: a<b & "c"\nnext line')
    assert message.html.startswith(f'<b><a href="{URL}">SHOP-7</a></b> review')
    assert message.plain.startswith(f"SHOP-7 ({URL}) review: a<b &")


@pytest.mark.parametrize(
    ("text", "item", "expected"),
    [
        ("SHOP-7: done", ITEM, "SHOP-7: done"),
        ("It drifts.", ITEM, "SHOP-7: It drifts."),
        ("SHOP-71 drifts.", ITEM, "SHOP-7: SHOP-71 drifts."),
        ("It drifts.", None, "It drifts."),
        ("", None, NO_TEXT),
    ],
)
def test_the_number_stands_in_front_once(text: str, item: str | None, expected: str) -> None:
    said = visible(shown(text, work_item=item, url=None, message_id="m").html)
    assert said.rpartition("\n#")[0] == expected


@pytest.mark.parametrize(
    "url", [None, "", "javascript:alert(1)", "tg://x", 'https://x/" onclick="y', "http://<b>"]
)
def test_what_is_no_web_address_is_no_link(url: str | None) -> None:
    message = shown("x", work_item=ITEM, url=url, message_id="m")
    assert "<a" not in message.html and visible(message.html).startswith("SHOP-7: x")


def test_a_quarter_of_an_emoji_is_never_shown() -> None:
    for lead in range(4):
        said = visible(shown("x" * lead + "\U0001f389" * 4096, work_item=None, url=None, message_id="m").html)
        assert said.rpartition("\n#")[0].endswith("\U0001f389" + CUT)
        assert units(said) in (LIMIT, LIMIT - 1)


def test_a_repeat_bears_the_same_mark_and_another_alert_another_one() -> None:
    marks = [
        shown("x", work_item=None, url=None, message_id=name).html.rpartition("#")[2]
        for name in ("a", "a", "b")
    ]
    assert marks[0] == marks[1] != marks[2]
