"""The seam between the product and its database; SQLite and PostgreSQL stand behind it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = Mapping[str, Any]


class Tx(Protocol):
    """Named statements inside one transaction. Parameters go by name; nothing is ever pasted into SQL."""

    def execute(self, name: str, /, **params: object) -> int:
        """Run a statement and return how many rows it changed: the rowcount guard of every compare-and-swap.

        :raises ConstraintRefused: the schema forbids it; the transaction's own changes are undone by the caller's exit.
        """
        ...

    def one(self, name: str, /, **params: object) -> Row | None:
        """The first row, or None."""
        ...

    def all(self, name: str, /, **params: object) -> Sequence[Row]:
        """All rows; the statement itself bounds them."""
        ...


class Database(Protocol):
    """One database. ``write`` and ``read`` are the only doors."""

    def write(self) -> AbstractContextManager[Tx]:
        """A transaction that is durable once the block has been left: returns only after its group's COMMIT.

        Nothing but SQL inside; nothing is answered, signalled or acted upon before it has returned.

        :raises DatabaseError: the group was not committed; nothing of the block happened.
        """
        ...

    def read(self) -> AbstractContextManager[Tx]:
        """One consistent snapshot; writing is refused."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...
