"""The full protocol keeps every law, and from every state every task can come to an end (short form)."""

import pytest

from tests.model.configuration import Configuration
from tests.model.configurations import LONG, SHORT
from tests.model.explore import explore
from tests.model.pipeline import CREATED, EDGES, EFFECT_MOVES, UNUSED_MOVES, Written


@pytest.mark.parametrize("configuration", SHORT, ids=lambda chosen: chosen.name)
def test_the_protocol_keeps_its_laws_and_nothing_gets_stuck(configuration: Configuration) -> None:
    found = explore(configuration)
    assert (found.result, found.law, found.trace) == ("clean", "", ())
    assert found.states > 1000  # a space that has shrunk to nothing proves nothing


def test_the_model_writes_every_edge_and_makes_every_move_that_the_code_knows() -> None:
    edges: set[Written] = set()
    moves: set[tuple[str, str]] = set()
    for configuration in SHORT:
        if configuration.first == CREATED or configuration.budget.strays:
            journal = explore(configuration).protocol.journal
            edges |= journal.edges
            moves |= journal.moves
    assert edges == EDGES
    assert moves == EFFECT_MOVES - UNUSED_MOVES


def test_every_kind_of_misfortune_meets_every_other_in_some_configuration() -> None:
    kinds = SHORT[0].budget._fields
    apart = {
        (one, other)
        for one in kinds
        for other in kinds
        if not any(
            getattr(chosen.budget, one) and getattr(chosen.budget, other) for chosen in (*SHORT, *LONG)
        )
    }
    assert not apart
