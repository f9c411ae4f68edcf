"""A step that many ask for at once and that serves everybody who asked before it began.

Must hold: it never runs twice at a time, and nobody is served by a run that had begun before they asked: what it saw
may be older than what they know.

On failure all whom the run would have served are told the same error; who asks later causes a new run.
"""

import threading
from collections.abc import Callable

from orchestrator.domain.errors import OutsideError


class SharedStep:
    """One step without a result. Safe to use from many threads."""

    def __init__(self, step: Callable[[], None]) -> None:
        self._step = step
        self._turn = threading.Lock()
        self._begun = 0  # runs, the one that goes on included; changed only by the one whose turn it is
        self._served = 0  # the last run that speaks for others too
        self._failure: OutsideError | None = None  # what it ended with

    def run(self) -> None:
        """Return after a run that began after this call.

        :raises OutsideError: that run failed.
        """
        wanted = self._begun + 1
        with self._turn:
            if self._served >= wanted:
                if self._failure is not None:
                    raise self._failure
                return
            self._begun += 1
            try:
                self._step()
            except OutsideError as error:
                self._served, self._failure = self._begun, error
                raise
            # Any other error says nothing about the step: whoever waits runs it for themselves.
            self._served, self._failure = self._begun, None
