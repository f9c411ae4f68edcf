"""The one place where any error is caught: functions that promise never to raise (NFR-1, FR-7).

An error becomes a WARNING with its reason and the safe default that the function declares. What ends a process
(``SystemExit``, ``KeyboardInterrupt``) passes.
"""

import functools
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")


class WarningLog(Protocol):
    """The part of a logger that is needed here."""

    def warning(self, event: str, **fields: object) -> object:
        """Write one entry."""
        ...


def never_raises(default: D, logger: WarningLog) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """Make a function return ``default`` where it would raise; an immutable value, since all calls share it."""

    def decorate(function: Callable[P, R]) -> Callable[P, R | D]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | D:
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - the one place, see the module's docstring
                reason = f"{type(error).__name__}: {error}"
                logger.warning(
                    "safe default returned", function=function.__qualname__, reason=reason, default=default
                )
                return default

        return guarded

    return decorate
