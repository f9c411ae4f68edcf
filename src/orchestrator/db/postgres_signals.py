"""What processes of one PostgreSQL database tell each other, by LISTEN and NOTIFY.

Lossy by design, as all signals are: a slow timer is the net under each. So nobody waits for one to be sent, one that
cannot be sent is dropped, and whoever has lost the server looks at everything once it is back. A signal goes over a
connection of its own, never with a transition: the server lets transactions that notify commit one at a time.

Behind a pooler that gives each transaction another connection nobody can listen. The timers do it alone then.
"""

import json
import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress

import psycopg
import structlog
from psycopg.rows import DictRow

from orchestrator.db.postgres_connection import connecting, pooled
from orchestrator.domain.errors import DatabaseError
from orchestrator.domain.ids import BootId
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.wakeups import Signal

log = structlog.get_logger(__name__)

CHANNEL = "orch"
GAP_S = 0.02  # between two sendings: what comes meanwhile goes together
FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 30.0  # before the server is asked again
FLUSH_S = 2.0  # for what a command has to say before it ends
MAX_IDS = 500  # in one message: the server takes 8,000 bytes
MAX_WAITING = 10_000  # ids; more are nobody's business: a timer finds them
EVERYTHING = Signal("everything")


class PostgresSignals:
    """One process's voice and ear."""

    def __init__(self, url: str, boot_id: BootId, hear: Callable[[Signal], None], *, clock: Clock) -> None:
        """``hear`` is given what others say."""
        self._url = url
        self._boot_id = boot_id
        self._hear = hear
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], set[int]] = {}
        self._something = threading.Event()
        self._stopping = threading.Event()
        self._sent = threading.Event()
        self._speaker: threading.Thread | None = None
        self._listener: threading.Thread | None = None
        self._heard, self._wake = os.pipe()

    def tell(self, signal: Signal) -> None:
        """Have the others told soon. Never waits, never raises."""
        with self._lock:
            if self._stopping.is_set():
                return
            ids = self._waiting.setdefault((signal.what, signal.said), set())
            if len(ids) < MAX_WAITING:
                ids.update(signal.ids)
            self._sent.clear()
            if self._speaker is None:
                self._speaker = threading.Thread(target=self._speak, name="orch-signals-out", daemon=True)
                self._speaker.start()
        self._something.set()

    def listen(self) -> None:
        """Hear what others say, until the end."""
        self._listener = threading.Thread(target=self._listen, name="orch-signals-in", daemon=True)
        self._listener.start()

    def close(self) -> None:
        """Say what is still to be said, for a moment at most, and end."""
        if self._speaker is not None:
            self._clock.wait(self._sent, FLUSH_S)
        self._stopping.set()
        self._something.set()
        os.write(self._wake, b".")
        for thread in (self._speaker, self._listener):
            if thread is not None:
                thread.join(FLUSH_S)
        if self._listener is None or not self._listener.is_alive():
            os.close(self._heard)
            os.close(self._wake)

    # --- saying -----------------------------------------------------------------------------------------------

    def _speak(self) -> None:
        while not self._stopping.is_set():
            self._clock.wait(self._something, None)
            try:
                with connecting(self._url) as connection:
                    self._speak_on(connection)
            except (DatabaseError, psycopg.Error) as error:
                self._drop()
                log.warning("others were not told; their timers find it", reason=str(error))
                self._clock.wait(self._stopping, FIRST_PAUSE_S)

    def _speak_on(self, connection: psycopg.Connection[DictRow]) -> None:
        while not self._stopping.is_set():
            self._clock.wait(self._something, None)
            self._something.clear()
            messages = self._taken()
            if messages:
                # Nothing is lost with it: it need not wait for a disk.
                with connection.transaction():
                    connection.execute("SET LOCAL synchronous_commit = off")
                    for message in messages:
                        connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, message))
            with self._lock:
                if not self._waiting:
                    self._sent.set()
            self._clock.wait(self._stopping, GAP_S)

    def _taken(self) -> list[str]:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        messages = []
        for (what, said), ids in waiting.items():
            ordered = sorted(ids)
            for first in range(0, max(1, len(ordered)), MAX_IDS):
                part = ordered[first : first + MAX_IDS]
                messages.append(json.dumps({"from": self._boot_id, "what": what, "said": said, "ids": part}))
        return messages

    def _drop(self) -> None:
        with self._lock:
            self._waiting = {}
            self._sent.set()
        self._something.clear()

    # --- hearing ----------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        pause = FIRST_PAUSE_S
        while not self._stopping.is_set():
            try:
                with connecting(self._url) as connection:
                    if pooled(connection):
                        log.info("a pooler is in between: other processes are heard of by timers alone")
                        return
                    connection.execute(f"LISTEN {CHANNEL}".encode(), prepare=False)
                    self._hear(EVERYTHING)  # whatever was said before we listened
                    pause = FIRST_PAUSE_S
                    self._hear_on(connection)
            except (DatabaseError, psycopg.Error) as error:
                log.warning("other processes are not heard of", reason=str(error))
                self._clock.wait(self._stopping, pause)
                pause = min(2 * pause, MAX_PAUSE_S)

    def _hear_on(self, connection: psycopg.Connection[DictRow]) -> None:
        ready = select.poll()  # select() takes no file with a number above 1023
        for file in (connection.fileno(), self._heard):
            ready.register(file, select.POLLIN)
        while not self._stopping.is_set():
            ready.poll()
            for notice in connection.notifies(timeout=0):
                signal = self._read(notice.payload)
                if signal is not None:
                    self._hear(signal)

    def _read(self, payload: str) -> Signal | None:
        """What another process says; None for our own words, and for what no version of ours would say."""
        with suppress(ValueError, KeyError, TypeError):
            data = json.loads(payload)
            if data["from"] == self._boot_id:
                return None
            return Signal(str(data["what"]), tuple(int(one) for one in data["ids"]), str(data["said"]))
        log.warning("signal not understood", payload=payload[:200])
        return None
