"""A deploy is applied when it is claimed, an undo when its command has ended; its fact says how."""

import threading
from dataclasses import replace

import pytest

from orchestrator.deploy.deployer import StartGivenUp
from orchestrator.deploy.records import DeployStart, Ending, Exit
from orchestrator.domain.effect import Applied, EffectName, EffectState, Intent, NotApplied, Underway, Unknown
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import EffectId, TaskId
from orchestrator.effects.deploy import DeployEffect, start_of, why_not_undone
from tests.proofs.memory_deployer import NEVER, Environments, Later, MemoryDeployer, key_of

ENDED = Exit(Ending.EXITED, 0, NEVER)


def intent(name: EffectName) -> Intent:
    carried = {
        "environment": "production", "sha": "c0ffee" + "0" * 34, "generation": 2, "digest": "sha256:0",
        "artifact": "/a", "timeout_s": 5.0, "work_item": "S-1", "installation": "inst", "argv": ["undo"], "env": {},
    }  # fmt: skip
    return Intent(EffectId(1), TaskId(1), name, "key", 1, EffectState.INTENDED, 7, "3", carried)


def test_a_deploy_is_applied_when_its_child_has_claimed_it() -> None:
    effect = DeployEffect(
        EffectName.DEPLOY_INIT, MemoryDeployer(Environments(), commands=Later()), threading.Event()
    )
    one = intent(EffectName.DEPLOY_INIT)
    assert isinstance(effect.probe(one), NotApplied)
    effect.act(one)
    assert isinstance(effect.probe(one), Applied)


@pytest.mark.parametrize("name", [EffectName.DEPLOY_INIT, EffectName.DEPLOY_UNDO])
def test_what_was_given_up_in_another_life_of_the_database_is_given_up_here_too(name: EffectName) -> None:
    """A restored database has it as intended; nobody can ever run it any more."""
    deployer = MemoryDeployer(Environments(), commands=Later())
    effect, one = DeployEffect(name, deployer, threading.Event()), intent(name)
    assert effect.turned(one, None) is None
    deployer.revoke(start_of(one))
    assert isinstance(effect.probe(one), NotApplied)
    with pytest.raises(StartGivenUp) as refused:
        effect.act(one)
    assert effect.turned(one, OutsideError("away")) is None
    assert "given up" in str(effect.turned(one, refused.value))


@pytest.mark.parametrize(
    ("ended", "why"),
    [
        (ENDED, None),
        (Exit(Ending.EXITED, 3, NEVER, "It ended with exit code 3."), "exited with exit code 3"),
        (Exit(Ending.TIMED_OUT, None, NEVER, "It did not end in time."), "timed_out"),
        (Exit(Ending.KILLED, None, NEVER, "It was ended on request."), "killed. It was ended on request"),
    ],
    ids=["well", "code", "time-out", "killed"],
)
def test_an_undo_is_applied_when_its_command_has_ended_and_says_how(ended: Exit, why: str | None) -> None:
    state = Environments()
    effect = DeployEffect(EffectName.DEPLOY_UNDO, MemoryDeployer(state, commands=Later()), threading.Event())
    undo = intent(EffectName.DEPLOY_UNDO)
    assert isinstance(effect.probe(undo), NotApplied)
    effect.act(undo)
    assert isinstance(effect.probe(undo), Underway)
    key = key_of(start_of(undo))
    state.starts[key] = replace(state.starts[key], exit=ended)
    seen = effect.probe(undo)
    assert isinstance(seen, Applied)
    said = why_not_undone(undo, seen.fact)
    assert said is None if why is None else why in str(said)
    state.unreachable = True
    assert isinstance(effect.probe(undo), Unknown)


def test_an_undo_is_not_waited_for_while_the_service_ends() -> None:
    """An undo of ourselves waits for our end: whoever waited for its own would keep it waiting."""
    stopping, stops = threading.Event(), list[threading.Event]()

    class Asked(MemoryDeployer):
        def wait(self, start: DeployStart, stop: threading.Event, deadline_s: float) -> Exit | None:
            stops.append(stop)
            return super().wait(start, stop, deadline_s)

    deployer = Asked(Environments(), commands=Later())
    DeployEffect(EffectName.DEPLOY_UNDO, deployer, stopping).act(intent(EffectName.DEPLOY_UNDO))
    assert stops == [stopping]


def test_a_word_is_no_end_and_an_undo_of_earlier_versions_is_believed() -> None:
    undo = intent(EffectName.DEPLOY_UNDO)
    assert "Ann alone" in str(why_not_undone(undo, {"said_by": "Ann"}))
    assert why_not_undone(undo, {"token": "3"}) is None
