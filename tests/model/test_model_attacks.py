"""Each guard has a reason: without it a named law breaks, or a task can never end. A few are spare, and said to be."""

from dataclasses import fields

import pytest

from tests.model.attacks import ATTACKS, Attack
from tests.model.explore import CLEAN, explore
from tests.model.guards import Guards
from tests.model.laws import ALL_LAWS


def _name(attack: Attack) -> str:
    return f"{'+'.join(attack.without)}: {attack.law or attack.result}"


@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
def test_without_the_guard(attack: Attack) -> None:
    found = explore(attack.configuration())
    assert found.result == attack.result
    if attack.law:
        assert found.law == attack.law
    if attack.result != CLEAN:
        assert found.trace  # there is a way to get there


def test_every_guard_is_taken_out_by_some_attack() -> None:
    assert {guard for attack in ATTACKS for guard in attack.without} == {
        field.name for field in fields(Guards)
    }


def test_attacks_speak_of_laws_that_exist() -> None:
    assert {law for attack in ATTACKS for law in (attack.law, *attack.mute) if law} <= ALL_LAWS


def test_every_law_can_be_broken() -> None:
    """A law that nothing breaks could be one that says nothing."""
    # Stage deploy is written by the settlement of merge_pr and by nothing else: no guard stands before that.
    assert ALL_LAWS - {attack.law for attack in ATTACKS} == {"deploy without the merge"}


def test_a_spare_guard_is_one_that_another_covers() -> None:
    spare = {attack.without for attack in ATTACKS if attack.result == CLEAN}
    assert spare == {("probe_every_candidate",), ("one_start_at_a_time",), ("retry_only_newest",)}
