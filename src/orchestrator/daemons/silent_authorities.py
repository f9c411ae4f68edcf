"""Calls a person once for each authority at which effects have failed for too long, and tells when that is over.

Per authority, not per effect or task: an outage of the forge is one thing to mend, however many tasks it stops (H20).
What was told is a row, so that neither a restart nor a second process tells it again.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from orchestrator.db import alerts, authorities, events
from orchestrator.db.authorities import FailingEffect
from orchestrator.db.database import Database
from orchestrator.domain.event import EventType
from orchestrator.domain.lease import Actor
from orchestrator.effects.authority import authority_of
from orchestrator.runtime.clock import Clock, parse_stamp

SHOWN = 10  # effects named in an alert


class SilentAuthorities:
    """Watches for authorities that do not show what became of our effects."""

    def __init__(self, database: Database, *, clock: Clock, alert_s: float) -> None:
        self._database = database
        self._clock = clock
        self._alert_s = alert_s

    def look(self) -> int:
        """Tell what is new; how many times a person was told."""
        with self._database.read() as tx:
            failing = authorities.failing(tx)
            known = authorities.silent(tx)
        found = _by_authority(failing)
        return sum(
            self._silent(authority, failures)
            for authority, failures in found.items()
            if authority not in known and self._late(failures[0])
        ) + sum(self._heard(authority, since) for authority, since in known.items() if authority not in found)

    def _late(self, first: FailingEffect) -> bool:
        return (self._clock.utc() - parse_stamp(first.since)).total_seconds() > self._alert_s

    def _silent(self, authority: str, failures: Sequence[FailingEffect]) -> int:
        since = failures[0].since
        named = ", ".join(f"{e.work_item} {e.intent.name}" for e in failures[:SHOWN])
        more = f" and {len(failures) - SHOWN} more" if len(failures) > SHOWN else ""
        text = (
            f"Since {since} {authority} has not shown what became of {named}{more}: {failures[0].reason} "
            "Nothing is guessed; they go on by themselves once it does. `orch effect list` shows them."
        )
        return self._tell(authority, since, text, over=False)

    def _heard(self, authority: str, since: str) -> int:
        text = f"Nothing is in doubt any more at {authority}, which was silent since {since}."
        return self._tell(authority, since, text, over=True)

    def _tell(self, authority: str, since: str, text: str, *, over: bool) -> int:
        with self._database.write() as tx:
            news = authorities.heard(tx, authority, since) if over else authorities.tell(tx, authority, since)
            if news:
                alerts.call(tx, text, "authority", authority, since, *(["over"] if over else []))
                events.append(tx, EventType.NOTE, Actor.RECONCILER, data={"text": text})
        return int(news)


def _by_authority(failing: Sequence[FailingEffect]) -> Mapping[str, list[FailingEffect]]:
    found: dict[str, list[FailingEffect]] = defaultdict(list)
    for effect in failing:
        found[authority_of(effect.intent)].append(effect)
    return found
