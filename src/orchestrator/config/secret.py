"""A secret value that does not show itself: not in text, logs or tracebacks, nor in a printed copy of the settings."""

from typing import Never

MASK = "***"


class Secret:
    """Holds a value that only ``reveal()`` gives out. Secrets with the same value are equal."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself: for the one call that needs it, never for a message."""
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(Secret)  # one for all: a hash of the value could be guessed from

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __reduce__(self) -> Never:
        raise TypeError("A secret is not pickled or copied to another process.")

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, memo: object) -> "Secret":
        return self


class Secrets(tuple[Secret, ...]):
    """Several values of one secret, of which any will do: an old one and a new one, while it is exchanged."""

    __slots__ = ()
