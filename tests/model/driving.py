"""One effect: probe, may it act, act, probe again, settle; or revoke, probe, write (laws 3 and 4).

Each is a step of its own, so that anything may happen in between. An actor carries what it has seen, and goes on with
it although it may be stale by now: only its commit, or the authority, can stop it.
"""

from collections.abc import Iterator

from tests.model.authority import ENVIRONMENT, LATE, REVOKES, lands, shows, undoing
from tests.model.decisions import (
    ACT,
    COMMIT,
    LAST_LOOK,
    LOOK_AGAIN,
    PROBE,
    REVOKE,
    TURN,
    Decision,
    move,
    rejection,
    renewal,
)
from tests.model.guards import Guards
from tests.model.looking import Found
from tests.model.pipeline import (
    ADVANCE,
    APPLIED,
    CANCEL,
    CANCELLED,
    DEPLOY,
    DEVELOPMENT,
    IN_DOUBT,
    INTENDED,
    MERGES,
    REJECT,
    REVOKED,
    STAGING,
    UNDOES,
)
from tests.model.state import IDLE, Actor, Call, Row, State

BY_CANCEL, BY_MAIN, BY_BRANCH, BY_REFUSAL = "cancel", "main moved", "branch moved", "refused"


class Driving:
    """What an actor that stands before an effect may do next."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards

    def step(self, state: State, actor: Actor) -> Found:
        """One step, with what happened and where the actor stands then."""
        row, reason = actor.what
        if actor.at == PROBE:
            yield from self._probe(state, actor, row)
        elif actor.at == TURN:
            why = self._turned(state, actor.task, row, cancel=True)
            if not why:
                yield ("may act",), state, self._to_act(actor, row)
            elif not self._guards.revoke_first:
                yield ("gives up", why), state, self._given_up(state, actor, row, why)
            elif not self._guards.durable_revoking:
                yield ("gives up", why), state, actor._replace(at=REVOKE, what=(row, why))
            else:
                yield ("gives up", why), state, _decide(actor, Decision("revoking", row=row, extra=(why,)))
        elif actor.at == ACT:
            yield from self._act(state, actor, row)
        elif actor.at == LOOK_AGAIN:
            if shows(state, actor.task, row.what, row.key, self._guards):
                yield ("probe: applied",), state, self._applied(state, actor, row)
            elif row.what == MERGES and (why := self._turned(state, actor.task, row, cancel=False)):
                decision = Decision("revoking", row=row, extra=(why,))
                yield ("probe: not applied, and", why), state, _decide(actor, decision)
            else:
                yield ("probe: not applied, look again later",), state, IDLE
        elif actor.at == REVOKE:
            yield from self._revoke(state, actor, row, reason)
        else:
            if shows(state, actor.task, row.what, row.key, self._guards):
                yield ("probe: it had been applied",), state, self._applied(state, actor, row)
            else:
                yield ("probe: revoked",), state, self._given_up(state, actor, row, reason)
            yield from self._unreadable(state, actor, row)

    def _probe(self, state: State, actor: Actor, row: Row) -> Found:
        if shows(state, actor.task, row.what, row.key, self._guards):
            yield ("probe: applied",), state, self._applied(state, actor, row)
        elif row.what == MERGES:
            yield ("probe: not applied",), state, actor._replace(at=TURN)
        elif row.what == UNDOES and undoing(state, actor.task):
            yield ("probe: under way, look again later",), state, IDLE
        else:
            yield ("probe: not applied",), state, self._to_act(actor, row)
        yield from self._unreadable(state, actor, row)

    def _unreadable(self, state: State, actor: Actor, row: Row) -> Found:
        if not state.budget.outages or row.what not in LATE:
            return
        spent = state._replace(budget=state.budget._replace(outages=state.budget.outages - 1))
        if row.state == INTENDED or not self._guards.revoking_stays:
            yield ("CANNOT BE READ",), spent, _decide(actor, Decision("doubt", row=row))
        else:
            yield ("CANNOT BE READ",), spent, IDLE

    def _to_act(self, actor: Actor, row: Row) -> Actor:
        if row.state == IN_DOUBT:
            return _decide(actor, Decision("intended again", row=row))
        return actor._replace(at=ACT)

    def _turned(self, state: State, task: int, row: Row, *, cancel: bool) -> str:
        """The three reasons that turn an intended merge (law 3); nothing turns a deploy or its undo."""
        kept = state.tasks[task]
        if cancel and kept.cancel:
            return BY_CANCEL
        if state.world.main != row.judged[0] and self._guards.turned_by_main:
            return BY_MAIN
        return BY_BRANCH if kept.away else ""

    def _act(self, state: State, actor: Actor, row: Row) -> Found:
        carried = row.judged
        if row.what == MERGES:
            old = row.judged[0] if self._guards.merge_from_parent else state.world.main
            carried = (row.judged[0], old)
        call = Call(row.what, actor.task, row.key, carried)
        after = actor._replace(at=LOOK_AGAIN)
        for label, new, accepted in self._sent(state, call):
            if accepted is False and row.what == MERGES and not self._guards.only_probe_settles:
                yield ("act refused, and believed",), new, self._given_up(new, actor, row, BY_REFUSAL)
            else:
                yield ("act", row.what, label), new, after

    def _sent(self, state: State, call: Call) -> Iterator[tuple[str, State, bool | None]]:
        """A call may land at once, or leave its sender waiting and land later."""
        new, accepted = lands(state, call, self._guards)
        yield "lands" if accepted else "is refused", new, accepted
        if state.budget.late and call.what in LATE:
            spent = state._replace(budget=state.budget._replace(late=state.budget.late - 1))
            yield "TIMES OUT, still under way", spent._replace(calls=(*spent.calls, call)), None
            if call.what in ENVIRONMENT and accepted:
                slow, _ = lands(spent, call, self._guards, slow=True)
                yield "is claimed, its command runs", slow, True

    def _revoke(self, state: State, actor: Actor, row: Row, reason: str) -> Found:
        call = Call(REVOKES, actor.task, row.key, ())
        for label, new, accepted in self._sent(state, call):
            if accepted is None:
                yield ("revoke", label), new, IDLE
            elif self._guards.probe_after_revoke:
                yield ("revoke", label), new, actor._replace(at=LAST_LOOK)
            else:
                yield ("revoke", label), new, self._given_up(new, actor, row, reason)

    def _applied(self, state: State, actor: Actor, row: Row) -> Actor:
        kept = state.tasks[actor.task]
        if row.what == MERGES:
            fields = (("merged", True), ("renewed", 0))
            decision = Decision("move", STAGING, DEPLOY, ADVANCE, fields, row, APPLIED)
        elif row.what == UNDOES:
            decision = Decision("undone", DEPLOY, row=row)
        else:
            decision = Decision("settle", kept.stage, row=row)
        return _decide(actor, decision)

    def _given_up(self, state: State, actor: Actor, row: Row, reason: str) -> Actor:
        """What follows a merge that can never land any more, read from the facts again."""
        kept = state.tasks[actor.task]
        if kept.stage != STAGING:
            decision = move(kept, DEVELOPMENT, REJECT)._replace(stage=STAGING)
        elif reason == BY_CANCEL:
            decision = move(kept, CANCELLED, CANCEL)
        elif state.world.main != row.judged[0] and reason != BY_REFUSAL:
            decision = renewal(kept)
        else:
            decision = rejection(kept)
        return _decide(actor, decision._replace(row=row, outcome=REVOKED))


def _decide(actor: Actor, decision: Decision) -> Actor:
    return actor._replace(at=COMMIT, what=decision)
