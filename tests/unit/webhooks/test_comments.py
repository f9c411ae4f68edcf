"""A comment is read in time that grows with its length and no faster, and never raises, whoever has written it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.html_text import readable
from orchestrator.trackers.github_records import visible
from orchestrator.webhooks import comments
from orchestrator.webhooks.comments import Command, command_in, command_in_markdown

OPEN = [
    "<a",
    "<a x='",
    '<a "',
    "<",
    "</",
    "<!--",
    "<!x",
    "<?",
    "<![CDATA[",
    "<script>",
    "&#",
    "<!-->",
    "<blockquote>",
]
ODD = [
    *OPEN, "<![x[y]>", "<![", "]>", "]]>", "-->", ">", "'", '"', "/", "=", "&#" + "9" * 5000 + ";", "&#xFFFFFFFF;",
    "&amp;", "\0", "\ud800", "\n", " ", "orch approve", "</p>", "</script>", "</blockquote>",
]  # fmt: skip
APPROVE = Command("approve", None, None, "")


@pytest.mark.parametrize("piece", OPEN)
def test_a_comment_of_open_ends_is_read_in_one_go(piece: str) -> None:
    """Fifteen times the bound: what takes time by the square of the length would take an hour for some."""
    assert (
        readable(piece * (15 * comments.COMMENT_LIMIT // len(piece)), unsaid=comments._NOT_SAID) is not None
    )


@given(st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=5)), max_size=60).map("".join))
def test_a_comment_is_a_command_or_none(html: str) -> None:
    command_in(html)


def test_a_declaration_that_is_none_commands_nothing() -> None:
    assert command_in("<![x[y]>") is None
    assert command_in("<![x[y]><p>orch approve</p>") == APPROVE


@pytest.mark.parametrize(
    ("html", "said"),
    [
        ("a &lt;b&gt; &amp;amp; &#99;", "a <b> &amp; c"),
        ("<P>one</P><p class=\"a>b\" title='<p>'>two</p>", "one|two"),
        ("one<br/>two<BR>three", "one|two|three"),
        ("1 < 2 <3 a<b", "1 < 2 <3 a"),
        ("<!-- <p>orch cancel</p> -->one<!-- two", "one"),
        ("<blockquote><p>quoted</p></script></blockquote>own", "own"),
        ("<blockquote>a<blockquote>b</blockquote>c</blockquote>own", "own"),
        ("</blockquote>own", "own"),
        ("<style>p {}</style><script>if (a < b) {}</script>own", "own"),
        ("<a href=x", ""),
    ],
)
def test_what_a_person_would_read(html: str, said: str) -> None:
    lines = [line.strip() for line in readable(html, unsaid=comments._NOT_SAID).splitlines() if line.strip()]
    assert "|".join(lines) == said


def test_what_comes_after_the_bound_is_not_read() -> None:
    assert command_in(" " * comments.COMMENT_LIMIT + "orch approve") is None


OPEN_IN_MARKDOWN = [">", "> ", "> x\n", "   >\n", "> x\n \n", "`", "```\n", "<!--", "\n", "x\n> y\n"]


@pytest.mark.parametrize("piece", OPEN_IN_MARKDOWN)
def test_a_comment_in_markdown_is_read_in_one_go(piece: str) -> None:
    many = 15 * comments.COMMENT_LIMIT // len(piece)
    for text in (piece * many, f"> {' ' * 15 * comments.COMMENT_LIMIT}{piece}"):
        assert comments._QUOTED.sub("", text) is not None
        assert visible(text) is not None


@given(
    st.lists(st.one_of(st.sampled_from([*ODD, *OPEN_IN_MARKDOWN]), st.text(max_size=5)), max_size=60).map(
        "".join
    )
)
def test_a_comment_in_markdown_is_a_command_or_none(text: str) -> None:
    command_in_markdown(text)
    visible(text)


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("orch approve", APPROVE),
        ("> orch cancel\nand more of it\n\norch approve", APPROVE),
        ("   > orch cancel\n\n`orch approve`", APPROVE),
        ("<!-- orch cancel -->\r\n\r\norch approve", APPROVE),
        ("> orch approve", None),
        ("> Shall I?\norch approve", None),
        ("See:\n\norch approve", None),
        ("- orch approve", None),
        ("orch reject `a > b`", Command("reject", None, None, "a > b")),
    ],
)
def test_a_command_in_markdown(text: str, command: Command | None) -> None:
    assert command_in_markdown(text) == command
