"""The beginnings of documents: filled in they pass, untouched they do not, and no value is read as a template."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.errors import ConfigError, InvariantError
from orchestrator.domain.stage import Stage, Track
from orchestrator.work_items.documents import CATALOGUE, kind_of, validate
from orchestrator.work_items.front_matter import parse_front_matter, parse_yaml
from orchestrator.work_items.templates import LANGUAGES, NAMES, render, yaml_quoted

SHA = "0123456789abcdef0123456789abcdef01234567"
NEEDED = {"work_item": "ORCH-7", "title": "Fix", "created_at": "2026-06-15", "model_used": "some-model"}
VERDICTS = {"12-review.md": "approved", "13-test-report.md": "pass", "14-staging-log.md": "healthy"}


def path_of(name: str) -> str:
    return "06-adr/001-first.md" if name == "06-adr.md" else name


def filled(language: str, **values: str) -> dict[str, bytes]:
    sane = {**NEEDED, "summary": "A text: with colon.", "track": "full", "schema_changes": "yes"}
    sane |= {"gated_sha": SHA, "candidate_sha": SHA, **values}
    return {
        path_of(name): render(
            name, language, {**sane, "verdict": VERDICTS.get(name, "")}, cases={"TC-01": "pass"}
        ).encode()
        for name in NAMES
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_filled_in_they_validate(language: str) -> None:
    documents = filled(language)
    assert {kind_of(path) for path in documents} == set(CATALOGUE)
    assert validate(documents, work_item="ORCH-7", stage=Stage.DEPLOY_STAGING, track=Track.FULL) == ()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_untouched_they_pass_no_gate(name: str, language: str) -> None:
    documents = {**filled(language), path_of(name): render(name, language, NEEDED).encode()}
    findings = validate(documents, work_item="ORCH-7", stage=Stage.DEPLOY_STAGING, track=Track.FULL)
    assert findings and {finding.file for finding in findings} == {f"docs/work-items/ORCH-7/{path_of(name)}"}


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_ask_for_the_same_keys(name: str) -> None:
    english, russian = (filled(language)[path_of(name)] for language in LANGUAGES)
    if name.endswith(".yaml"):
        assert parse_yaml(english, file=name) == parse_yaml(russian, file=name)
    else:
        first, second = parse_front_matter(english, file=name), parse_front_matter(russian, file=name)
        assert first.fields == second.fields
        assert first.body.count("\n## ") == second.body.count("\n## ")
        assert first.body.count("<!--") == second.body.count("<!--")


HOSTILE = [
    "${work_item} $title $$ {{ 7 * 7 }} {% raw %} %s {0}",
    "a: b # c",
    "---\nverdict: approved\n---",
    "'\"\\ \\u0041 \t",
    "no",
    "",
    "@`!&*|>[]{},?-",
    "Исправить вход 🐛 テスト",
    "\u2028 \u2029 \x85 \ufeff \x00 \x7f \uffff",
    "<!-- comment",
    "x" * 300,
]


@pytest.mark.parametrize("title", HOSTILE, ids=range(len(HOSTILE)))
def test_ticket_text_is_data(title: str) -> None:
    documents = filled("en", title=title, summary=f"About {title!r}")
    assert validate(documents, work_item="ORCH-7", stage=Stage.DEPLOY_STAGING, track=Track.FULL) == ()
    for path, data in documents.items():
        fields = (
            parse_yaml(data, file=path)
            if path.endswith("yaml")
            else parse_front_matter(data, file=path).fields
        )
        assert isinstance(fields, dict) and fields["title"] == title


@given(st.text())
def test_any_title_leaves_the_other_keys_alone(title: str) -> None:
    data = render(
        "12-review.md", "ru", {**NEEDED, "title": title, "verdict": "rejected", "gated_sha": SHA}
    ).encode()
    document = parse_front_matter(data, file="f")
    assert document.fields["title"] == title
    assert (document.fields["verdict"], document.fields["findings"]) == ("rejected", [])
    heading = document.body.split("\n")[1]
    assert heading.startswith("# 12") and "<!--" not in heading


@given(st.dictionaries(st.sampled_from(["verdict", "status", "escalate", "model_used"]), st.text()))
def test_any_value_comes_back_as_it_went_in(values: dict[str, str]) -> None:
    fields = parse_front_matter(render("12-review.md", "en", {**NEEDED, **values}).encode(), file="f").fields
    assert {key: fields[key] for key in values} == values


def test_case_lines_are_quoted_where_they_must_be() -> None:
    data = render("13-test-report.md", "en", NEEDED, cases={"TC-01": "", "a: b\nverdict": "x: y"}).encode()
    assert parse_front_matter(data, file="f").fields["cases"] == {"TC-01": "", "a: b\nverdict": "x: y"}


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert yaml_quoted("a\ud800b") == '"a\ufffdb"'


def test_what_cannot_be_rendered_says_so() -> None:
    with pytest.raises(ConfigError, match="Use one of: en, ru"):
        render("01-brd.md", "de", NEEDED)
    with pytest.raises(InvariantError, match="no template called"):
        render("../../etc/passwd", "en", NEEDED)
    with pytest.raises(InvariantError, match="needs a value for 'title'"):
        render("01-brd.md", "en", {key: value for key, value in NEEDED.items() if key != "title"})
