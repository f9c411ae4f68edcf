from dataclasses import replace

import pytest

from orchestrator.agents.script import default_steps, filled, parse_script, steps_for
from orchestrator.domain.errors import ConfigError
from orchestrator.domain.ids import Sha
from orchestrator.domain.stage import Role
from tests.unit.agents.test_prompt import brief

SCRIPT = """
developer:
  - when: "(?i)button"
    round: 1
    steps:
      - write: {path: "a/{work_item}.txt", content: "{title} {nothing} {gated_sha}"}
      - run: [git, status]
      - commit: {message: "{work_item}: first"}
  - when: button
    steps: [{say: second}]
"""


def test_first_entry_that_fits_is_played() -> None:
    script = parse_script(SCRIPT, "s.yaml")
    first = brief(Role.DEVELOPER, title="Add a Button")
    assert len(steps_for(script, first)) == 3
    assert steps_for(script, replace(first, round=2, body="a button")) == ({"say": "second"},)
    assert steps_for(script, replace(first, round=2)) == default_steps(first)
    assert steps_for(script, replace(first, role=Role.TESTER)) == ({"documents": {}},)


def test_words_are_filled_in_and_nothing_else_is() -> None:
    told = brief(gated_sha=Sha("a" * 40), title="x {work_item}\ny")
    assert filled({"a": ["{work_item} {title} {nothing} {{}}"]}, told) == {
        "a": ["ORCH-7 x {work_item} y {nothing} {{}}"]
    }


def test_ticket_can_ask_for_a_rejected_first_development() -> None:
    told = brief(body="Please. scripted: reject the first development")
    assert "rejected" in str(default_steps(told))
    assert "rejected" not in str(default_steps(replace(told, round=2)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "no YAML"),
        ("- a", "mapping of roles"),
        ("king: []", "no role 'king'"),
        ("tester: {}", "no list"),
        ("tester: [{}]", "steps"),
        ("tester: [{steps: [], wen: x}]", "unknown key 'wen'"),
        ("tester: [{steps: [], when: '('}]", "regular expression"),
        ("tester: [{steps: [], round: one}]", "whole numbers"),
        ("tester: [{steps: [{jump: 1}]}]", "unknown step 'jump'"),
        ("tester: [{steps: [{write: {path: x}}]}]", "needs 'content'"),
        ("tester: [{steps: [{run: rm -rf}]}]", "list of texts"),
        ("tester: [{steps: [{exit: now}]}]", "number"),
        ("tester: [{steps: [{say: a, exit: 1}]}]", "one key"),
    ],
)
def test_wrong_script_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"s\.yaml") as caught:
        parse_script(text, "s.yaml")
    assert said in str(caught.value)
