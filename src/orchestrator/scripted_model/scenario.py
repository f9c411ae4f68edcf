"""Scenarios: what the scripted model says, read from YAML, and the step that comes next in a conversation.

A scenario is ``{when?, vars?, aux?, loop?, steps}``. ``when`` is a regular expression, or several that must
all be found, searched in the opening of the conversation (``^`` and ``$`` match at lines). ``vars`` names
further expressions; what their first group finds is filled in for ``{name}`` in the steps, as are ``{cwd}``
and the facts that the orchestrator's prompts state (``{work_item}``, ``{gated_sha}`` …). Requests that offer
no tools get the ``aux`` text and count for nothing; with ``aux: null`` they are steps too. A step is one of

    text: words                     the final answer (repeat: N makes it N times as long)
    shell: command                  run by whatever shell tool the program offers
    write: {path, content}          by its file tools (read, then written), else by its shell
    tool: name, input: {...}        a call as written
    calls: [step, ...]              several calls in one answer
    malformed: json | unknown | args    a broken call
    error: status, retry_after?, type?, message?
    overflow: true                  the prompt is too long, in the protocol's own words
    midstream: type                 an error inside a stream that began well
    stall: headers | start | ping, seconds?
    reset: true                     the connection breaks in mid-stream

and may say ``text`` beside a call, ``usage: {input, output, cache_read, cache_write}``, ``delay`` seconds,
``stop``, ``times: N``.

Where a conversation stands is read from the request itself: the number of answers it holds. Only faults are
counted here, for they leave no trace in it. So a run that is killed and begun anew starts from the first
step.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from orchestrator.domain.errors import ConfigError
from orchestrator.scripted_model.asking import Asked

SHIPPED = Path(__file__).parent / "scenarios"
AUTO = "auto"
DEFAULT_AUX = "Scripted session"
FAULTS = frozenset({"error", "overflow", "midstream", "stall", "reset"})
FACTS = (
    "work_item",
    "round",
    "attempt",
    "documents_dir",
    "today",
    "base_sha",
    "head_sha",
    "gated_sha",
    "candidate_sha",
    "staging_url",
)
NOTHING_LEFT: Mapping[str, object] = {"text": "Nothing left to do."}

Step = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file."""

    name: str
    when: tuple[re.Pattern[str], ...]
    vars: Mapping[str, re.Pattern[str]]
    aux: str | None
    loop: bool
    steps: tuple[Step, ...]

    def fits(self, opening: str) -> bool:
        """True where all of its expressions are found."""
        return bool(self.when) and all(pattern.search(opening) for pattern in self.when)


@dataclass(slots=True)
class Stage:
    """All scenarios, and how many faults each conversation has met."""

    scenarios: Sequence[Scenario]
    faults: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def next_step(self, name: str, run: str, request: Asked) -> tuple[str, Step]:
        """The scenario that applies and what it does now, filled in."""
        scenario = self._choose(name, request)
        if scenario is None:
            return name, {"text": f"There is no scripted scenario for {name!r} that fits this prompt."}
        if not request.tools and scenario.aux is not None:
            return scenario.name, {"text": scenario.aux}
        key = (scenario.name, run, request.conversation)
        step, fault = _current(scenario, request.turns, self.faults.get(key, 0))
        if fault:
            self.faults[key] = self.faults.get(key, 0) + 1
        return scenario.name, _filled(step, _words(scenario, request))

    def _choose(self, name: str, request: Asked) -> Scenario | None:
        for scenario in self.scenarios:
            if scenario.name == name or (name == AUTO and scenario.fits(request.opening)):
                return scenario
        return None


def load(folders: Sequence[Path]) -> list[Scenario]:
    """The scenarios of some folders, in their order and by file name within each: the first that fits is played.

    :raises ConfigError: a file is no scenario, or a folder is not there.
    """
    scenarios = []
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                f"There is no folder of scenarios at {folder}.", hint="Give another with --scenarios."
            )
        scenarios += [_read(path) for path in sorted(folder.glob("*.yaml"))]
    return scenarios


def _current(scenario: Scenario, turns: int, met: int) -> tuple[Step, bool]:
    """The step after ``turns`` answers and ``met`` faults, and whether it is a fault."""
    answers = sum(not is_fault(step) for step in scenario.steps)
    if scenario.loop:
        if not answers:
            return scenario.steps[met % len(scenario.steps)], True
        turns %= answers
    answered = faults = 0
    for step in scenario.steps:
        if is_fault(step):
            if faults >= met and answered == turns:
                return step, True
            faults += 1
        else:
            if answered == turns:
                return step, False
            answered += 1
    return NOTHING_LEFT, False


def is_fault(step: Step) -> bool:
    """True for a step that the conversation will show no trace of."""
    return not FAULTS.isdisjoint(step)


def _words(scenario: Scenario, request: Asked) -> dict[str, str]:
    words = {"cwd": request.cwd}
    for name in FACTS:
        found = re.search(rf"^{name}: (\S.*?)\s*$", request.opening, re.MULTILINE)
        words[name] = found.group(1) if found else ""
    for name, pattern in scenario.vars.items():
        found = pattern.search(request.opening)
        words[name] = found.group(found.re.groups and 1) if found else ""
    return words


def _filled(step: Step, words: Mapping[str, str]) -> Step:
    """The step with the words in place. They stay texts, whatever they hold."""
    raw = json.dumps(step)
    for name, word in words.items():
        raw = raw.replace("{" + name + "}", json.dumps(word)[1:-1])
    filled = json.loads(raw)
    return filled if isinstance(filled, dict) else step


def _read(path: Path) -> Scenario:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ConfigError(f"The scenario {path} is no mapping.")
        when = data.get("when") or []
        aux = data.get("aux", DEFAULT_AUX)
        return Scenario(
            name=path.stem,
            when=tuple(_pattern(text) for text in ([when] if isinstance(when, str) else when)),
            vars={str(name): _pattern(text) for name, text in (data.get("vars") or {}).items()},
            aux=None if aux is None else str(aux),
            loop=data.get("loop") is True,
            steps=tuple(_steps(data.get("steps"), path)),
        )
    except (OSError, UnicodeDecodeError, yaml.YAMLError, re.error, TypeError, ValueError) as error:
        raise ConfigError(f"The scenario {path} cannot be used: {error}.") from error


def _pattern(text: object) -> re.Pattern[str]:
    return re.compile(str(text), re.MULTILINE)


def _steps(given: object, path: Path) -> Iterator[Step]:
    if not isinstance(given, list) or not all(isinstance(step, dict) for step in given) or not given:
        raise ConfigError(f"The scenario {path} has no list of steps.")
    for step in given:
        for _ in range(int(step.get("times", 1))):
            yield step
