"""HTML of strangers as a person reads it; how long that takes is looked at with comments."""

import pytest

from orchestrator.rules.html_text import readable


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>Sum the <b>line</b> items.</p><p>Twice.</p>", ["Sum the line items.", "Twice."]),
        ("<script>steal()</script>a<style>b{}</style>", ["a"]),
        ("a &lt;script&gt; &amp; b", ["a <script> & b"]),
        ("<mention-component entity_name='user'></mention-component> look", ["look"]),
        ("<p>unclosed <b>tag", ["unclosed tag"]),
        ("<!-- hidden -->seen", ["seen"]),
        ("&#99999999999;", ["\ufffd;"]),
        ("", []),
    ],
)
def test_text_of(html: str, text: list[str]) -> None:
    assert [line.strip() for line in readable(html).splitlines() if line.strip()] == text
