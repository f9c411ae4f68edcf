"""What can go wrong at the server, asked for by a test; and the journal of what was sent to it."""

import re
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class How(StrEnum):
    """What becomes of a request."""

    LOST = "the effect takes place and the answer is lost"
    AFTER = "the effect takes place and the answer is an error"
    BEFORE = "nothing takes place and the answer is an error"
    LATE = "the connection is cut, and the effect takes place so many seconds later"
    HELD = "nothing takes place until the test lets it go on"
    HELD_AFTER = "the effect takes place and the answer waits until the test lets it go on"
    GARBAGE = "the effect takes place and the answer is not what the documentation says"


@dataclass
class Fault:
    """One kind of failure, for so many requests."""

    method: str
    pattern: re.Pattern[str]
    how: How
    status: int = 500
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0  # for LATE
    reached: threading.Event = field(default_factory=threading.Event)  # a request has been caught
    landed: threading.Event = field(default_factory=threading.Event)  # and has been dealt with
    go_on: threading.Event = field(default_factory=threading.Event)

    def fits(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method == method and self.pattern.search(path) is not None


@dataclass(frozen=True)
class Call:
    """One request and how it was answered; `status` is 0 where nobody heard it."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    status: int
    answer: Any
    headers: dict[str, str]


class Journal:
    """What was asked, in the order in which it was answered; and the failures that wait for a request."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, call: Call) -> None:
        with self._lock:
            self.calls.append(call)

    def fault_of(self, method: str, path: str) -> Fault | None:
        """The first failure that is meant for this request; it is used up by it."""
        with self._lock:
            found = next((fault for fault in self.faults if fault.fits(method, path)), None)
            if found is not None:
                found.times -= 1
        if found is not None:
            found.reached.set()
        return found

    def let_go(self) -> None:
        for fault in self.faults:
            fault.go_on.set()
