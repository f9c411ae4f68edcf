"""What lies between an actor and an authority: each call passes here, so that it can be stopped, lost, or late."""

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Wire(Protocol):
    """The way to the authorities for one actor."""

    def ask(self, name: str, look: Callable[[], T]) -> T:
        """A question: changes nothing outside."""
        ...

    def act(self, name: str, call: Callable[[], T]) -> T:
        """A call that may change something outside. It may take place later than its answer, or without one."""
        ...


class DirectWire:
    """No distance at all: for the tests that every authority has to pass."""

    def ask(self, name: str, look: Callable[[], T]) -> T:
        return look()

    def act(self, name: str, call: Callable[[], T]) -> T:
        return call()
