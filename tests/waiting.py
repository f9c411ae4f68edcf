"""Waiting for a condition with a deadline: tests never sleep for a guess."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 90.0  # what is awaited comes within moments; a machine with other work may take its time


def wait_until(predicate: Callable[[], T], deadline: float = PATIENCE_S, every: float = 0.02) -> T:
    """The first true answer of ``predicate``; fails after ``deadline`` seconds without one."""
    end = time.monotonic() + deadline
    never = threading.Event()
    while True:
        answer = predicate()
        if answer:
            return answer
        assert time.monotonic() < end, f"nothing within {deadline} s: {predicate}"
        never.wait(every)
