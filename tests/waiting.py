"""Waiting for a condition with a deadline: tests never sleep for a guess."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(predicate: Callable[[], T], deadline: float = 20.0, every: float = 0.02) -> T:
    """The first true answer of ``predicate``; fails after ``deadline`` seconds without one."""
    end = time.monotonic() + deadline
    never = threading.Event()
    while True:
        answer = predicate()
        if answer:
            return answer
        assert time.monotonic() < end, f"nothing within {deadline} s: {predicate}"
        never.wait(every)
