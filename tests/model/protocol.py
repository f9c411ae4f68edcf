"""The protocol's steps: what an actor may do next, one transaction or one outside call at a time.

An actor that finds something to do takes the task over and looks (one step: nothing that others do in between could
matter to it), and from then on carries only what it has seen. Its decision is committed later, under the epoch it had;
an effect goes intent, probe, turn?, act, probe, settle, or revoking, revoke, probe, write (laws 2 to 4).
"""

from collections.abc import Iterator
from functools import cache

from tests.model.authority import hopeless
from tests.model.commits import Journal, live_owner, others_stale
from tests.model.configuration import Configuration
from tests.model.decisions import CHECKED, COMMIT, LAST_LOOK, LOOK_AGAIN, Decision, Decisions
from tests.model.driving import Driving
from tests.model.looking import Found, Looking
from tests.model.people import Label, Steps, outside
from tests.model.pipeline import DEVELOPMENT, ENDS, PREPARES, REJECT, STAGING, parts_of
from tests.model.state import IDLE, Actor, State, Task


class Protocol:
    """Successors of a state under one configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.guards = configuration.guards
        self.journal = Journal()
        self._parts = parts_of(configuration.driven, configuration.first)
        effects = {part.what for parts in self._parts.values() for part in parts if part.kind == "effect"}
        self._looking = Looking(self.guards, self._parts, configuration.first)
        self._driving = Driving(self.guards)
        self._decisions = Decisions(self.guards, self.journal, prepared=PREPARES in effects)

    def start(self) -> State:
        """Where it begins."""
        chosen = self.configuration
        tasks = tuple(Task(chosen.first) for _ in range(chosen.tasks))
        return State(tasks, chosen.world, (), (IDLE,) * chosen.actors, chosen.budget)

    def successors(self, state: State) -> Iterator[tuple[Label, State]]:
        """Every state that one step leads to, with what happened."""
        for label, new in self._steps(state):
            yield label, self._tidy(new)

    def _steps(self, state: State) -> Steps:
        if state.broken:
            return
        yield from outside(state, self.guards, self.journal, self.configuration.first)
        idle_seen = False
        for index, actor in enumerate(state.actors):
            if actor == IDLE:
                if not idle_seen:
                    yield from self._begin(state, index)
                idle_seen = True
                continue
            who = f"t{actor.task}{'' if actor.current else ' (stale)'}"
            steps = self._commit if actor.at in (COMMIT, CHECKED) else self._driving.step
            for label, new, after in steps(state, actor):
                yield (who, *label), _placed(new, index, after)
            if state.budget.crashes and actor.current:
                spent = state.budget._replace(crashes=state.budget.crashes - 1)
                yield (who, "CRASHES at", actor.at), _placed(state._replace(budget=spent), index, IDLE)

    def _tidy(self, state: State) -> State:
        """One form for all states that nobody can tell apart, and nothing that can have no consequence any more."""
        actors = tuple(sorted((IDLE if self._lost(actor) else actor for actor in state.actors), key=_order))
        calls = state.calls
        if calls:
            calls = tuple(sorted(call for call in calls if not hopeless(state, call, self.guards)))
        laws = tuple(law for law in state.broken if law not in self.configuration.mute)
        return state._replace(actors=actors, calls=calls, broken=laws)

    def _lost(self, actor: Actor) -> bool:
        """A stale actor whose next act could only be the commit that it loses."""
        if actor.current or actor == IDLE or actor.at == CHECKED:
            return False
        if actor.at == COMMIT:
            return self._decisions.tested(actor.what)
        return actor.at in (LOOK_AGAIN, LAST_LOOK) and self.guards.epoch_on_settle

    # --- taking over and looking --------------------------------------------------------------------------------------

    def _begin(self, state: State, index: int) -> Steps:
        for task, kept in enumerate(state.tasks):
            if kept.stage in ENDS:
                continue
            if not self.guards.every_writer_names_epoch and kept.stage == STAGING:
                said = Decision("move", STAGING, DEVELOPMENT, REJECT, (), None, "")
                hook = Actor(CHECKED, task, False, said)
                yield ("webhook", "reads", kept.stage), _placed(state, index, hook)
            owned = live_owner(state, task)
            if owned and not state.budget.steals:
                continue
            ready = state
            if owned:
                spent = state.budget._replace(steals=state.budget.steals - 1)
                ready = state._replace(budget=spent)
            if self.guards.acquire_raises_epoch:
                ready = others_stale(ready, task)
            for label, new, actor in self._looking.look(ready, task):
                took = "takes over a live owner:" if owned else "acquires:"
                yield (f"t{task}", took, *label), _placed(new, index, actor)

    def _commit(self, state: State, actor: Actor) -> Found:
        decision = actor.what
        assert isinstance(decision, Decision)
        tested = actor.at == COMMIT and self._decisions.tested(decision)
        if tested and not actor.current:
            yield ("loses", decision.kind), state, IDLE
        elif tested and not self.guards.epoch_locked:
            yield ("epoch tested, not locked",), state, actor._replace(at=CHECKED)
        else:
            written = self._decisions.apply(state, actor.task, decision)
            if written is None:
                yield ("loses", decision.kind), state, IDLE
            else:
                new, at, row = written
                why = decision.extra[0] if decision.kind == "revoking" else ""
                after = actor._replace(at=at, what=(row, why)) if at else IDLE
                yield ("commits", decision.kind, decision.target), new, after


@cache
def _order(actor: Actor) -> tuple[str, int, bool, str]:
    """Any order will do that makes interchangeable actors equal."""
    return actor.at, actor.task, actor.current, repr(actor.what)


def _placed(state: State, index: int, actor: Actor) -> State:
    """The state with one actor moved on; whether it is stale by now is known there, not to itself."""
    there = state.actors
    if actor != IDLE and there[index] != IDLE and not there[index].current:
        actor = actor._replace(current=False)
    return state._replace(actors=(*there[:index], actor, *there[index + 1 :]))
