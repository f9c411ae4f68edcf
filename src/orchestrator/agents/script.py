"""The script of the scripted agent: read, checked, and the entry that fits a brief chosen. Pure.

A script is YAML: ``{role: [{when: regex, round: 1, attempt: 1, steps: [...]}]}``. Of a role's entries the
first that fits is played: ``when`` is searched in the ticket's title and body, ``round`` and ``attempt``
compared where given. A step is one of

    write: {path, content}          a file, replaced
    append: {path, content}         to the end of a file
    replace: {path, old, new}       the first occurrence; an error where there is none
    run: [program, argument, ...]   no shell; an error where it fails
    commit: {message}               everything, on the current branch
    document: {name, text, verdict, track, findings, cases, plan}   one of the role's documents; all but name optional
    documents: {}                   those of the role's documents that this entry has not written
    say: text
    wait: seconds
    exit: code                      ends at once

``{work_item} {title} {repo} {round} {attempt} {base_sha} {head_sha} {gated_sha} {candidate_sha} {staging_url}
{documents_dir}`` in a step's texts are filled in from the brief; everything else in braces stays as it is.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import yaml

from orchestrator.agents.brief import Brief
from orchestrator.domain.errors import ConfigError
from orchestrator.domain.stage import Role

STEPS: Mapping[str, tuple[str, ...]] = {  # and what each must hold
    "write": ("path", "content"),
    "append": ("path", "content"),
    "replace": ("path", "old", "new"),
    "run": (),
    "commit": ("message",),
    "document": ("name",),
    "documents": (),
    "say": (),
    "wait": (),
    "exit": (),
}
FILLED = re.compile(
    r"\{(work_item|title|repo|round|attempt|base_sha|head_sha|gated_sha|candidate_sha|staging_url|documents_dir)\}"
)
EVERYTHING_COMMITTED = frozenset({Role.ANALYST, Role.ARCHITECT})
REJECT_FIRST = re.compile(r"scripted: reject the first development", re.IGNORECASE)

Step = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a script."""

    when: re.Pattern[str] | None
    round: int | None
    attempt: int | None
    steps: tuple[Step, ...]

    def fits(self, brief: Brief) -> bool:
        """True where the entry was written for such a brief."""
        return (
            (self.round is None or self.round == brief.round)
            and (self.attempt is None or self.attempt == brief.attempt)
            and (self.when is None or self.when.search(f"{brief.title}\n{brief.body}") is not None)
        )


Script = Mapping[Role, Sequence[Entry]]


def parse_script(text: str, source: str) -> Script:
    """A script from its YAML.

    :raises ConfigError: it is none; the message names the place.
    """
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _wrong(source, f"it is no YAML: {error}") from error
    if not isinstance(data, dict):
        raise _wrong(source, "it is no mapping of roles to entries")
    script: dict[Role, list[Entry]] = {}
    for name, entries in data.items():
        if name not in list(Role):
            raise _wrong(source, f"there is no role {name!r}; known: {', '.join(Role)}")
        if not isinstance(entries, list):
            raise _wrong(source, f"the entries of {name} are no list")
        script[Role(name)] = [
            _entry(entry, f"{source}: {name}[{number}]") for number, entry in enumerate(entries)
        ]
    return script


def steps_for(script: Script, brief: Brief) -> tuple[Step, ...]:
    """The steps to play: of the first entry that fits, else what the role does by default."""
    for entry in script.get(brief.role, ()):
        if entry.fits(brief):
            return entry.steps
    return default_steps(brief)


def default_steps(brief: Brief) -> tuple[Step, ...]:
    """The least that is right for a role in any repository."""
    if brief.role in EVERYTHING_COMMITTED:
        return (
            {"documents": {}},
            {"commit": {"message": "{work_item}: documents of the " + brief.role.value}},
        )
    if brief.role is Role.DEVELOPER:
        note = {
            "path": "docs/changes/{work_item}.md",
            "content": "# {work_item}: {title}\n\nRound {round}.\n",
        }
        return ({"write": note}, {"commit": {"message": "{work_item}: {title}"}})
    if brief.role is Role.REVIEWER and brief.round == 1 and REJECT_FIRST.search(brief.body):
        finding = "The ticket asks for its first development to be rejected; build it again."
        return ({"document": {"name": "12-review.md", "verdict": "rejected", "findings": [finding]}},)
    return ({"documents": {}},)


def filled(value: object, brief: Brief) -> object:
    """The value with the brief's words in its texts."""
    if isinstance(value, str):
        return FILLED.sub(lambda found: _word(brief, found.group(1)), value)
    if isinstance(value, list):
        return [filled(item, brief) for item in value]
    if isinstance(value, dict):
        return {key: filled(item, brief) for key, item in value.items()}
    return value


def _word(brief: Brief, name: str) -> str:
    if name == "documents_dir":
        return brief.folder
    if name == "title":
        return " ".join(brief.title.split())
    return str(getattr(brief, name) or "")


def _entry(data: object, place: str) -> Entry:
    if not isinstance(data, dict) or not isinstance(data.get("steps"), list):
        raise _wrong(place, "an entry is a mapping with `steps`, a list")
    unknown = set(data) - {"when", "round", "attempt", "steps"}
    if unknown:
        raise _wrong(
            place, f"unknown key {sorted(map(str, unknown))[0]!r}; known: when, round, attempt, steps"
        )
    when = data.get("when")
    try:
        pattern = re.compile(str(when)) if when is not None else None
    except re.error as error:
        raise _wrong(place, f"`when` is no regular expression: {error}") from error
    steps = tuple(_step(step, f"{place}.steps[{number}]") for number, step in enumerate(data["steps"]))
    return Entry(pattern, _whole(data.get("round"), place), _whole(data.get("attempt"), place), steps)


def _step(data: object, place: str) -> Step:
    if not isinstance(data, dict) or len(data) != 1:
        raise _wrong(place, f"a step is a mapping with one key: {', '.join(STEPS)}")
    ((name, value),) = data.items()
    if name not in STEPS:
        raise _wrong(place, f"unknown step {name!r}; known: {', '.join(STEPS)}")
    for key in STEPS[name]:
        if not isinstance(value, dict) or not isinstance(value.get(key), str):
            raise _wrong(place, f"{name} needs {key!r}, a text")
    if name == "run" and not (
        isinstance(value, list) and value and all(isinstance(word, str) for word in value)
    ):
        raise _wrong(place, "run needs a list of texts: the program and its arguments")
    if name in ("wait", "exit") and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise _wrong(place, f"{name} needs a number")
    return data


def _whole(value: object, place: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise _wrong(place, "`round` and `attempt` are whole numbers")


def _wrong(place: str, what: str) -> ConfigError:
    return ConfigError(
        f"The scripted agent's script cannot be used: {place}: {what}.", hint="Correct the script."
    )
