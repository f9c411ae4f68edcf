"""Beginnings of the work-item documents, in English and Russian, one file each.

``${name}`` stands for a value. What must hold: a value is data (law 10) — it is put in once and never read as a
template; in YAML it is quoted, so that any text comes back from the reader as it went in; in a heading it stays on
its line. A beginning alone passes no gate: its hints are comments, its machine keys are empty.
"""

from collections.abc import Mapping
from importlib import resources
from string import Template

from orchestrator.domain.errors import ConfigError, InvariantError

LANGUAGES = ("en", "ru")

NAMES = (
    "01-brd.md",
    "02-trz.md",
    "03-acceptance.md",
    "04-test-plan.yaml",
    "06-adr.md",
    "08-data-requirements.md",
    "10-tech-risks.md",
    "12-review.md",
    "13-test-report.md",
    "14-staging-log.md",
)
"""``06-adr.md`` is the beginning of each ``06-adr/NNN-*.md``."""

DEFAULTS: Mapping[str, str] = {
    "summary": "",
    "escalate": "",
    "track": "",
    "schema_changes": "",
    "verdict": "",
    "gated_sha": "",
    "candidate_sha": "",
    "framework": "",
}
"""Values that may be left out; ``status`` too, whose default is the template's own."""

_STATUS = {"06-adr.md": "proposed", "08-data-requirements.md": "proposed", "10-tech-risks.md": "proposed"}
_STATUS |= dict.fromkeys(("12-review.md", "13-test-report.md", "14-staging-log.md"), "final")
_UNQUOTED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._")
_UNWRITABLE = dict.fromkeys([0, *range(0xD800, 0xE000)], "\ufffd")  # what no text file can hold
_FREE_TEXT = frozenset({"title", "summary", "framework"})


def render(
    name: str, language: str, values: Mapping[str, str], *, cases: Mapping[str, str] | None = None
) -> str:
    """The beginning of document ``name`` in ``language``.

    ``values`` must hold ``title``, ``work_item``, ``created_at`` and ``model_used``, and may hold ``status`` and the
    names in ``DEFAULTS``. ``cases``: for 13-test-report.md, id of each planned case → its result ("" leaves it to
    the tester).

    :raises ConfigError: there are no templates in that language.
    :raises InvariantError: no such template, or a value that it needs was not given.
    """
    template = _template(name, language)
    given = {**DEFAULTS, "status": _STATUS.get(name, "ready-for-review"), **values}
    head, body = (template, "") if name.endswith(".yaml") else _parted(template)
    yaml_values = {key: _in_yaml(key, value) for key, value in given.items()}
    yaml_values["cases"] = _case_lines(cases or {"TC-01": ""})
    body_values = {key: value.translate(_UNWRITABLE) for key, value in given.items()}
    if "title" in body_values:
        body_values["title"] = _on_one_line(body_values["title"])
    try:
        return Template(head).substitute(yaml_values) + Template(body).substitute(body_values)
    except KeyError as error:
        raise InvariantError(f"The template {name} needs a value for {error}, which was not given.") from None


def yaml_quoted(text: str) -> str:
    """``text`` as a double-quoted YAML scalar on one line; every YAML reader gives the same text back.

    A lone surrogate, which no file can hold, becomes U+FFFD.
    """
    return '"' + "".join(map(_escaped, text)) + '"'


def _template(name: str, language: str) -> str:
    if language not in LANGUAGES:
        known = ", ".join(LANGUAGES)
        raise ConfigError(
            f"There are no document templates in language {language!r}.", hint=f"Use one of: {known}."
        )
    if name not in NAMES:
        raise InvariantError(f"There is no template called {name!r}.")
    return resources.files(__name__).joinpath(language, name).read_text(encoding="utf-8")


def _parted(template: str) -> tuple[str, str]:
    end = template.index("\n---\n") + len("\n---\n")
    return template[:end], template[end:]


def _in_yaml(key: str, value: str) -> str:
    # The short words of the machine keys read better bare, as people write them; free text is always quoted.
    bare = key not in _FREE_TEXT and _UNQUOTED.issuperset(value) and not value.startswith(("-", "."))
    return value if bare else yaml_quoted(value)


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if "\ud800" <= char <= "\udfff":
        return "\ufffd"  # in ``_UNWRITABLE`` too, but a NUL can be escaped
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _on_one_line(text: str) -> str:
    # An opened comment would hide the rest of the document.
    return " ".join(text.split()).replace("<!--", "&lt;!--")


def _case_lines(cases: Mapping[str, str]) -> str:
    lines = (
        f"  {_in_yaml('case', case_id)}: {_in_yaml('case', result)}" for case_id, result in cases.items()
    )
    return "\n".join(line.rstrip() for line in lines)
