"""The explorer itself: numbers stand for states and back, and a trace can be walked."""

from tests.model.attacks import ATTACKS
from tests.model.configuration import Configuration
from tests.model.explore import CAPPED, Codes, explore
from tests.model.laws import at_rest
from tests.model.pipeline import CANCELLED, DONE
from tests.model.protocol import Protocol
from tests.model.state import Budget, State


def test_a_state_is_found_again_from_its_number() -> None:
    protocol, codes = Protocol(Configuration("any", tasks=2, budget=Budget(cancels=1))), Codes()
    seen, waiting = {codes.encode(protocol.start()): protocol.start()}, [protocol.start()]
    while waiting:
        for _, new in protocol.successors(waiting.pop()):
            if seen.setdefault(codes.encode(new), new) is new:
                waiting.append(new)
    assert len(set(seen.values())) == len(seen) > 100
    assert all(codes.decode(number) == state for number, state in seen.items())


def test_a_trace_leads_from_the_start_to_the_violation() -> None:
    attack = next(attack for attack in ATTACKS if attack.without == ("revoke_first",))
    found = explore(attack.configuration())
    protocol = Protocol(attack.configuration())
    at: set[State] = {protocol.start()}
    for label in found.trace:
        at = {new for state in at for said, new in protocol.successors(state) if said == label}
        assert at
    assert found.last in at


def test_an_undisturbed_task_ends_in_one_way() -> None:
    protocol = Protocol(Configuration("undisturbed", actors=1))
    state, steps = protocol.start(), 0
    while following := [new for _, new in protocol.successors(state)]:
        (state,) = following
        steps += 1
    assert at_rest(state)
    assert (state.tasks[0].stage, len(state.world.main), state.world.production) == (
        DONE,
        2,
        state.world.main,
    )
    assert steps > 20


def test_a_cancel_can_win_and_can_come_too_late() -> None:
    protocol = Protocol(Configuration("cancel", budget=Budget(cancels=1)))
    ends, seen, waiting = set(), set(), [protocol.start()]
    while waiting:
        state = waiting.pop()
        if state not in seen:
            seen.add(state)
            waiting += [new for _, new in protocol.successors(state)]
            if at_rest(state):
                ends.add(state.tasks[0].stage)
    assert ends == {DONE, CANCELLED}


def test_a_space_above_the_cap_is_not_called_clean() -> None:
    assert explore(Configuration("any", tasks=2, budget=Budget(cancels=2)), cap=50).result == CAPPED
