"""Chance: unguessable in production, the same in every replay."""

import re
import uuid

import pytest

from orchestrator.runtime.entropy import Entropy, SeededEntropy, SystemEntropy


@pytest.fixture(params=["system", "seeded"])
def entropy(request: pytest.FixtureRequest) -> Entropy:
    return SystemEntropy() if request.param == "system" else SeededEntropy(7)


def test_tokens_are_hex_of_twice_the_length_and_differ(entropy: Entropy) -> None:
    tokens = {entropy.token(12) for _ in range(100)}
    assert len(tokens) == 100
    assert all(re.fullmatch(r"[0-9a-f]{24}", token) for token in tokens)


def test_uuids_are_random_ones_and_differ(entropy: Entropy) -> None:
    values = {entropy.uuid() for _ in range(100)}
    assert len(values) == 100
    assert {uuid.UUID(value).version for value in values} == {4}


def test_jitter_stays_in_the_upper_half(entropy: Entropy) -> None:
    values = [entropy.jitter(10.0) for _ in range(200)]
    assert all(5.0 <= value < 10.0 for value in values)
    assert max(values) - min(values) > 1.0


def test_the_same_seed_tells_the_same_story() -> None:
    def story(seed: int) -> tuple[str, str, float]:
        entropy = SeededEntropy(seed)
        return entropy.token(), entropy.uuid(), entropy.jitter(1)

    assert story(1) == story(1)
    assert story(1) != story(2)
