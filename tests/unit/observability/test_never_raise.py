"""A function that promises never to raise returns its safe default and says why."""

import pytest

from orchestrator.domain.errors import InvariantError
from orchestrator.observability.never_raise import never_raises


class Log:
    def __init__(self) -> None:
        self.entries: list[tuple[str, dict[str, object]]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.entries.append((event, fields))


def test_the_value_passes_and_nothing_is_logged() -> None:
    log = Log()

    @never_raises(None, log)
    def double(number: int, *, plus: int = 0) -> int:
        """Twice as much."""
        return 2 * number + plus

    assert double(3, plus=1) == 7
    assert (double.__name__, double.__doc__, log.entries) == ("double", "Twice as much.", [])


@pytest.mark.parametrize("kind", [ValueError, InvariantError, OSError, RecursionError])
def test_an_error_becomes_the_default_and_a_warning(kind: type[Exception]) -> None:
    log = Log()

    @never_raises(False, log)
    def fail() -> bool:
        raise kind("broken")

    assert fail() is False
    ((event, fields),) = log.entries
    assert event == "safe default returned"
    assert str(fields["function"]).endswith("fail") and fields["reason"] == f"{kind.__name__}: broken"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_process_passes(error: type[BaseException]) -> None:
    @never_raises(None, Log())
    def fail() -> None:
        raise error

    with pytest.raises(error):
        fail()
