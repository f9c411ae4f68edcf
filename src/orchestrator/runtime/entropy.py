"""Chance, handed in (law 12)."""

import random
import secrets
import uuid
from typing import Protocol


class Entropy(Protocol):
    """Source of ids, tokens and jitter."""

    def token(self, length: int = 16) -> str:
        """``2 * length`` lower-case hex digits that nobody can guess."""
        ...

    def uuid(self) -> str:
        """A random UUID in its usual text form."""
        ...

    def jitter(self, seconds: float) -> float:
        """A value in ``[0.5, 1.0) * seconds``: spreads retries and timers."""
        ...


class SystemEntropy:
    """The operating system's randomness."""

    def token(self, length: int = 16) -> str:
        """Hex from the system's generator."""
        return secrets.token_hex(length)

    def uuid(self) -> str:
        """A version 4 UUID."""
        return str(uuid.uuid4())

    def jitter(self, seconds: float) -> float:
        """Uniform in the upper half."""
        return seconds * (0.5 + random.random() / 2)  # noqa: S311 - spreads timers, keeps no secret


class SeededEntropy:
    """The same ids in every run: for tests and replays."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - deliberately predictable

    def token(self, length: int = 16) -> str:
        """Hex from the seed."""
        return self._random.randbytes(length).hex()

    def uuid(self) -> str:
        """A UUID from the seed."""
        return str(uuid.UUID(bytes=self._random.randbytes(16), version=4))

    def jitter(self, seconds: float) -> float:
        """Uniform in the upper half."""
        return seconds * (0.5 + self._random.random() / 2)
