"""Front matter and plain YAML: what was written comes back, or a refusal that names the line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.work_items.front_matter import DocumentError, parse_front_matter, parse_yaml
from orchestrator.work_items.plain_yaml import MAX_NODES, read_yaml
from orchestrator.work_items.reading import MAX_BYTES
from orchestrator.work_items.templates import yaml_quoted

PLAIN = b"---\nwork_item: ORCH-1\ntitle: Fix it\n---\n# Text\n\nmore\n"

SCALARS = [
    ("country: no", "no"),
    ("flag: yes", "yes"),
    ("v: 1.10", "1.10"),
    ("id: 0123", "0123"),
    ("time: 12:30:45", "12:30:45"),
    ("date: 2026-01-05", "2026-01-05"),
    ("n: 1e3", "1e3"),
    ("n: .nan", ".nan"),
    ("x: ~", "~"),
    ("x: null", "null"),
    ("x: 0x1f", "0x1f"),
    ("x: 1_000", "1_000"),
    ("flag: true # why", "true"),
    ("x: =", "="),
    ("x: <<", "<<"),
    ("x:", ""),
    ("x: 'it''s'", "it's"),
    ('x: "a\\u0041"', "aA"),
    ("x: Исправить вход 🐛", "Исправить вход 🐛"),
]


@pytest.mark.parametrize(("line", "expected"), SCALARS, ids=[line for line, _ in SCALARS])
def test_every_scalar_stays_the_string_that_was_written(line: str, expected: str) -> None:
    value = parse_yaml(line.encode(), file="f.yaml")
    assert value == {line.partition(":")[0]: expected}


def test_keys_stay_strings_too() -> None:
    assert parse_yaml(b"on: push\nno: 1\n1.10: x\n", file="f") == {"on": "push", "no": "1", "1.10": "x"}


def test_nested_values_and_the_lines_they_stand_on() -> None:
    plain = read_yaml(b"a: [x, {y: 01}]\nl:\n  - id: 1\n    z: |\n      p\n      \tq\n", file="f")
    assert plain.value == {"a": ["x", {"y": "01"}], "l": [{"id": "1", "z": "p\n\tq\n"}]}
    assert plain.lines[("l", 0, "z")] == 4


@pytest.mark.parametrize(
    "data",
    [
        PLAIN,
        b"\xef\xbb\xbf" + PLAIN,
        PLAIN.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n"),
        PLAIN.replace(b"ORCH-1\n", b"ORCH-1\r\n"),
        PLAIN.replace(b"\n", b"\r"),
        b"\n" + PLAIN,
        b"\r\n  \r\n" + PLAIN,
        PLAIN.replace(b"---", b"---  "),
    ],
    ids=["plain", "bom", "crlf", "bom-crlf", "mixed", "cr", "blank-line", "blank-lines", "trailing-blanks"],
)
def test_equal_meaning_whatever_the_line_ends_and_marks(data: bytes) -> None:
    document = parse_front_matter(data, file="01-brd.md")
    assert document.fields == {"work_item": "ORCH-1", "title": "Fix it"}
    assert document.body == "# Text\n\nmore\n"
    # In the file as an editor shows it.
    text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert text[document.body_line - 1] == "# Text"
    assert text[document.lines[("title",)] - 1] == "title: Fix it"


def test_dashes_further_down_belong_to_the_text() -> None:
    body = "text\n\n---\n\n```yaml\n---\nwork_item: OTHER\n---\n```\n"
    document = parse_front_matter(f"---\na: b\n---\n{body}".encode(), file="f.md")
    assert (document.fields, document.body) == ({"a": "b"}, body)


FRONT_MATTER_REFUSED = {
    "empty": (b"", 1, "an empty file"),
    "blank": (b"\n \n", 1, "an empty file"),
    "none": (b"# Title\n", 1, "a line `---` before anything else"),
    "text-first": (b"\n\nHello\n---\na: b\n---\n", 3, "a line `---` before anything else"),
    "not-closed": (b"---\na: b\n", 1, "a second line `---`"),
    "not-closed-code-block": (b"---\na: b\n\n```\n---\n```\n", 4, "a closing line `---` above it"),
    "no-keys": (b"---\n---\ntext", 2, "`key: value` lines"),
    "a-list": (b"---\n- a\n---\ntext", 2, "`key: value` lines"),
    "a-word": (b"---\nword\n---\ntext", 2, "`key: value` lines"),
    "tab": (b"---\na:\n\tb: c\n---\n", 3, "spaces"),
    "tab-value": (b"---\na:\tb\n---\n", 2, "spaces"),
    "duplicate": (b"---\na: 1\nb: 2\na: 3\n---\n", 4, "each key once"),
    "duplicate-below": (b"---\na:\n  b: 1\n  b: 2\n---\n", 4, "each key once"),
    "anchor": (b"---\na: &x 1\n---\n", 2, "no anchors"),
    "alias": (b"---\nb: 1\na: *x\n---\n", 3, "the value written out"),
    "tag": (b"---\na: !!python/object/apply:os.system [id]\n---\n", 2, "no tags"),
    "plain-tag": (b"---\na: !!str no\n---\n", 2, "no tags"),
    "colon": (b"---\ntitle: Fix: the login\n---\n", 2, "in quotes"),
    "backtick": (b"---\ntitle: `x`\n---\n", 2, "in quotes"),
    "latin-1": (b"---\nok: 1\ntitle: caf\xe9\n---\n", 3, "UTF-8"),
    "latin-1-body": (b"---\nok: 1\n---\n\ncaf\xe9\n", 5, "UTF-8"),
    "utf-16": ("---\na: b\n---\n".encode("utf-16"), 1, "UTF-8"),
    "nul": (b"---\na: b\n---\nx\0y\n", 4, "expected text"),
    "bell": (b"---\nb: 1\na: \x07\n---\n", 3, "printable text"),
    "directive": (b"---\n%YAML 1.1\n---\n", 2, ""),
    "second-document": (b"---\na: b\n...\nc: d\n---\n", 4, ""),
    "list-as-key": (b"---\n? [a]\n: b\n---\n", 2, "a word as key"),
    "no-key": (b"---\n? \n: b\n---\n", 2, "`key: value`"),
    "escape": (b'---\na: "\\UFFFFFFFF"\n---\n', 2, "plain text"),
    "open-quote": (b"---\na: 'b\n---\n", 2, "in quotes"),
}


@pytest.mark.parametrize(
    ("data", "line", "expected"), FRONT_MATTER_REFUSED.values(), ids=FRONT_MATTER_REFUSED.keys()
)
def test_front_matter_table(data: bytes, line: int, expected: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_front_matter(data, file="02-trz.md")
    [finding] = refused.value.findings
    assert (finding.file, finding.line) == ("02-trz.md", line)
    assert "expected " in finding.message and expected in finding.message
    assert str(refused.value).startswith(f"02-trz.md:{line}: ")


def test_the_refusal_of_bytes_says_which() -> None:
    with pytest.raises(DocumentError, match=r"byte 0xe9 at offset 9 is not UTF-8"):
        parse_yaml(b"\xef\xbb\xbftitle \xe9", file="f")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a: " + b"x" * MAX_BYTES, "at most 1048576"),
        (b"[" * 33 + b"]" * 33, "a flatter document"),
        (b"- " * 40, "a flatter document"),
        (b"- a\n" * (MAX_NODES + 1), "a document that people can read"),
        (b"a: 1\n---\nb: 2\n", "one document"),
        (b"%YAML 1.2\n---\na: b\n", "without directives"),
        (b"# only a comment\n", "`key: value` lines"),
        (b"%YAML " + b"9" * 5000 + b".1\n--- a", "plain text"),
    ],
    ids=["1-mib", "deep", "deep-block", "many", "two-documents", "directive", "comment", "digits"],
)
def test_what_would_cost_time_or_hide_something_is_refused(data: bytes, expected: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_yaml(data, file="f.yaml")
    assert expected in refused.value.findings[0].message


def test_alias_bomb_is_refused_at_its_first_anchor() -> None:
    levels = [b"a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    levels += [b"a%d: &a%d [%s]" % (n, n, b",".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 9)]
    with pytest.raises(DocumentError, match="f:1: an anchor"):
        parse_yaml(b"\n".join(levels), file="f")


def test_lines_are_an_editors_lines() -> None:
    # To YAML 1.1, U+2028 ends a line; to git and editors it does not.
    with pytest.raises(DocumentError) as refused:
        parse_yaml("a: 'x\u2028y'\nb: 1\nb: 2\n".encode(), file="f")
    assert refused.value.findings[0].line == 3


@given(st.text())
def test_any_title_survives_the_round_trip(title: str) -> None:
    document = f"---\ntitle: {yaml_quoted(title)}\n---\nbody\n".encode()
    assert parse_front_matter(document, file="f.md").fields == {"title": title}


HOSTILE = st.one_of(
    st.binary(max_size=300),
    st.text(alphabet="---:\n\r\t &*!|>'\"[]{},#%?@`~ab\u2028\x85\ufeff0", max_size=200).map(str.encode),
    st.lists(
        st.sampled_from(
            [
                "---\n",
                "...\n",
                "a: b\n",
                "- ",
                "? ",
                "[",
                "{",
                "}",
                "]",
                "&a ",
                "*a",
                "!!x ",
                "!<",
                '"\\',
                "'",
                "|2\n",
            ]
            + ["%TAG ! x\n", "\t", "\0", "\r\n", "key:\n  ", "<<: ", "\\U", "\ufeff", ",", ": "]
        ),
        max_size=40,
    ).map(lambda parts: "".join(parts).encode()),
)


@given(HOSTILE)
def test_arbitrary_bytes_give_a_value_or_a_document_error(data: bytes) -> None:
    for read in (parse_yaml, parse_front_matter):
        for content in (data, b"---\n" + data + b"\n---\ntext\n"):
            try:
                read(content, file="f")
            except DocumentError as error:
                assert error.findings and all("expected " in finding.message for finding in error.findings)
