"""Worlds whose database was put back: what the oracle sees there, and that it sees it when it is there.

In the time that is lost one task was delivered, and the other one tried on staging; a person accepts, and both end.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.db import restored
from orchestrator.installation import comparison
from orchestrator.installation.acceptance import _Import
from orchestrator.installation.comparison import Traces
from tests.proofs import oracle, restores
from tests.proofs.conftest import Worlds
from tests.proofs.lives import Ending, Life, live
from tests.proofs.people import Person, acting
from tests.proofs.restores import Watch
from tests.proofs.scheduler import At, Free, Kill
from tests.proofs.templates import TESTED
from tests.proofs.test_oracle import merged_twice, note, started_twice, started_without_an_intent
from tests.proofs.world import World, closed


def _put_back(world: World, template: Path, tested: Path) -> None:
    """The copy has just been put back."""
    world.come_from(tested)
    world.back_up()
    lived = live(world, Life(At("merge_pr.before_act", Kill(), occurrence=2)))
    assert lived.ending is Ending.KILLED
    assert world.programs_have_ended()
    world.put_back()
    world.keep_as(template)


def _accepted(world: World, template: Path, put_back: Path) -> None:
    """All have ended."""
    world.come_from(put_back)
    assert _to_the_end(world) == []
    world.keep_as(template)


@pytest.fixture
def put_back_template(worlds: Worlds) -> Path:
    tested = worlds.templates[TESTED]
    return worlds.template("put back", lambda world, to: _put_back(world, to, tested))


@pytest.fixture
def put_back(worlds: Worlds, put_back_template: Path) -> World:
    return worlds.at(put_back_template)


@pytest.fixture
def accepted(worlds: Worlds, put_back_template: Path) -> World:
    return worlds.at(worlds.template("accepted", lambda world, to: _accepted(world, to, put_back_template)))


@pytest.mark.long
def test_nothing_is_done_before_a_person_accepts(put_back: World) -> None:
    assert oracle.Seen(put_back).untold >= {"S-2", "S-3"}
    lived = live(put_back, Life(Watch(put_back, Free())))
    assert lived.ending is Ending.REST
    assert closed(put_back)
    assert oracle.at_any_moment(put_back) == []
    assert Person(put_back).next() == [("accept", "")]


def new_merge_not_measured(world: World) -> None:
    world.change("DELETE FROM coverage_baseline WHERE id = (SELECT max(id) FROM coverage_baseline)")


def message_with_a_number_of_lost_time(world: World) -> None:
    taken = sorted(oracle.Seen(world).of_lost_time("SELECT stable_id FROM outbox"))[0]
    world.change(f"UPDATE outbox SET stable_id = '{taken}' WHERE id = (SELECT max(id) FROM outbox)")


WRONGS: dict[Callable[[World], None], str] = {
    merged_twice: "one-merge",
    started_twice: "one-start",
    started_without_an_intent: "intent",
    lambda world: note(world, _older_token(world)): "fence",
    new_merge_not_measured: "ratchet",
    message_with_a_number_of_lost_time: "message",
    lambda world: world.change(
        "UPDATE installation_marks SET cause = 'forge', reason = 'x', closed_at = 'x'"
    ): "guard",
    lambda world: world.change("UPDATE effects SET state = 'revoked' WHERE name = 'merge_pr'"): "ledger",
}


@pytest.mark.parametrize("wrong", WRONGS, ids=list(WRONGS.values()))
def test_what_does_not_agree_is_found(wrong: Callable[[World], None], accepted: World) -> None:
    assert oracle.at_the_end(accepted) == []
    assert restores.accepted(accepted)
    accepted.unguard("effects", "effects_move_forward")
    wrong(accepted)
    assert WRONGS[wrong] in _kinds(oracle.at_the_end(accepted))


def _nothing(*_: Any, **__: Any) -> None:
    """What was taken out."""


BUGS: dict[str, tuple[object, str, Any, str]] = {
    "tokens are not lifted": (restored, "lift_environment", _nothing, "fence"),
    "starts are not imported": (_Import, "_started", lambda *_: False, "intent"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_of_the_acceptance_is_found(put_back: World, bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target, name, without, kind = BUGS[bug]
    monkeypatch.setattr(target, name, without)
    assert kind in _kinds(_to_the_end(put_back))


@pytest.mark.long
def test_a_guard_that_opens_is_found(put_back: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "judge", _nothing)
    monkeypatch.setattr(Traces, "finding", None)
    live(put_back, Life(Watch(put_back, Free())))
    assert "guard" in _kinds(oracle.at_any_moment(put_back))


def _to_the_end(world: World) -> list[str]:
    """A person helps until nothing is left to be done; what is found then, or the first that is found before."""
    person, found = Person(world), list[str]()
    acts = person.next()
    while not found:
        lived = live(world, Life(Watch(world, Free()), acting(acts), polite=True))
        if lived.ending is not Ending.REST:
            return [f"life: it ended {lived.ending}"]
        found = oracle.at_any_moment(world)
        acts = person.next()
        if not acts:
            return found or oracle.at_the_end(world)
    return found


def _older_token(world: World) -> str:
    words = next(words for words in reversed(world.lines("deploys.log")) if words[0] == "start")
    return " ".join([*words[:5], "1", *words[6:]]).replace(words[2], "1" * 40) + "\n"


def _kinds(findings: list[str]) -> set[str]:
    return {finding.split(":")[0] for finding in findings}
