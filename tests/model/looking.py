"""What an owner finds to do, in the engine's order: unsettled effects, people, the next step, the edge."""

from collections.abc import Iterator

from tests.model.commits import may_enter, unsettled_start
from tests.model.decisions import (
    PROBE,
    REVOKE,
    Decision,
    decided,
    move,
    rejection,
)
from tests.model.guards import Guards
from tests.model.people import Label
from tests.model.pipeline import (
    ADVANCE,
    CANCEL,
    CANCELLED,
    DEPLOY,
    DEVELOPMENT,
    DONE,
    INTENDED,
    MERGES,
    PREPARES,
    REJECT,
    RENEW,
    REQUEUE,
    REVOKING,
    STAGES,
    STAGING,
    STARTS,
    TESTING,
    UNDOES,
    Part,
    Parts,
    targets,
)
from tests.model.state import FREEZE, Actor, Row, State, Task, commit_of, landed

Found = Iterator[tuple[Label, State, Actor]]


class Looking:
    """One look at a task by whoever has just acquired it."""

    def __init__(self, guards: Guards, parts: Parts, first: str) -> None:
        self._guards = guards
        self._parts = parts
        self._first = first

    def look(self, state: State, task: int) -> Found:
        """What may be done next, each with the actor that goes about it."""
        kept = state.tasks[task]
        if kept.rows and self._guards.unsettled_first:
            row = kept.rows[0]
            yield (
                ("unsettled", row.what),
                state,
                driving(task, REVOKE if row.state == REVOKING else PROBE, row),
            )
            if row.what == UNDOES and not self._guards.undo_driven_forward:
                yield ("judged again: healthy",), state, decided(task, move(kept, DONE, ADVANCE))
            return
        if kept.cancel:
            if kept.merged or landed(state.world.main, task) or kept.stage == DEPLOY:
                yield ("cancel refused",), state, decided(task, Decision("refuse"))
            else:
                yield ("cancels",), state, decided(task, move(kept, CANCELLED, CANCEL))
            return
        if kept.hold == "broken":
            yield from self._look_at_broken(state, task)
            return
        parts = self._parts[kept.stage]
        if kept.hold or (kept.stage == DEVELOPMENT and self._first == TESTING):
            return
        if kept.step < len(parts):
            yield from self._part(state, task, parts[kept.step])
        elif kept.stage == TESTING:
            if may_enter(state.world, task):
                yield ("slots are free",), state, decided(task, move(kept, STAGING, ADVANCE))
        else:
            for target in targets(kept.stage, ADVANCE):
                yield ("stage passed",), state, decided(task, move(kept, target, ADVANCE))

    def _look_at_broken(self, state: State, task: int) -> Found:
        """After the undo: a fix that is done closes the task; or a person has the start made anew."""
        kept, world = state.tasks[task], state.world
        mine = commit_of(task, kept.candidate)
        fixed = any(other.stage == DONE for other in state.tasks)
        if mine in world.production and (fixed or not self._guards.closed_by_done_fix):
            yield ("the fix is done",), state, decided(task, move(kept, DONE, ADVANCE))
        newest = world.main[-1] == mine or not self._guards.retry_only_newest
        free = world.merge_slot in (0, FREEZE)
        if state.budget.retries and newest and free:
            spent = state._replace(budget=state.budget._replace(retries=state.budget.retries - 1))
            yield ("a person has it started again",), spent, decided(task, move(kept, DEPLOY, RENEW))

    def _part(self, state: State, task: int, part: Part) -> Found:
        kept = state.tasks[task]
        if part.kind == "candidate":
            if kept.away:
                yield ("verdicts are void",), state, decided(task, rejection(kept))
                return
            built = Decision("candidate", kept.stage, "", "", (kept.step, state.world.main))
            yield ("builds M on", state.world.main), state, decided(task, built)
        elif part.kind == "effect":
            row = self._intent(state, task, part.what)
            if row is None:
                return  # an earlier start is unsettled
            if not self._guards.intent_before_act:
                yield ("acts at once",), state, driving(task, PROBE, row)
            else:
                intends = Decision("intend", kept.stage, "", "", (kept.step,), row)
                yield ("decides", part.what), state, decided(task, intends)
        else:
            yield from self._judge(state, task, part)

    def _judge(self, state: State, task: int, part: Part) -> Found:
        """A coin on each evaluation; what is marked is not judged again."""
        kept, budget = state.tasks[task], state.budget
        passed = Decision("mark", kept.stage, "", "", (kept.step,))
        if kept.stage == DEPLOY and kept.step:
            if commit_of(task, kept.candidate) in state.world.production:
                yield ("production is healthy",), state, decided(task, passed)
            if budget.sick:
                spent = state._replace(budget=budget._replace(sick=budget.sick - 1))
                yield ("production is UNHEALTHY",), spent, self._broken(task, kept, state)
            return
        yield (part.what, "passes"), state, decided(task, passed)
        if part.may_fail and budget.fails and targets(kept.stage, REJECT):
            spent = state._replace(budget=budget._replace(fails=budget.fails - 1))
            for target in targets(kept.stage, REJECT):
                yield (part.what, "FAILS"), spent, decided(task, rejection(kept, target))
        if part.asks and budget.silent and kept.stage == STAGING:
            spent = state._replace(budget=budget._replace(silent=budget.silent - 1))
            yield ("nobody confirms",), spent, decided(task, move(kept, TESTING, REQUEUE))

    def _intent(self, state: State, task: int, what: str) -> Row | None:
        """The decision with what it was judged on."""
        kept = state.tasks[task]
        if what == MERGES:
            return Row(what, kept.candidate, (kept.base,), INTENDED)
        if what in (STAGES, PREPARES):
            return Row(what, kept.candidate, (), INTENDED)
        if what != STARTS:
            return Row(what, kept.step, (), INTENDED)
        if self._guards.one_start_at_a_time and unsettled_start(state):
            return None
        return Row(what, self._generation(kept), (closure(task, kept), state.world.production), INTENDED)

    def _generation(self, kept: Task) -> int:
        return kept.generation + 1 if self._guards.retry_draws_generation else max(1, kept.generation)

    def _broken(self, task: int, kept: Task, state: State) -> Actor:
        row = Row(UNDOES, kept.generation + 1, (closure(task, kept), kept.before), INTENDED)
        if not self._guards.undo_in_ledger:
            return driving(task, PROBE, row)
        return decided(task, Decision("broken", DEPLOY, row=row))


def driving(task: int, at: str, row: Row) -> Actor:
    """An owner that drives an effect."""
    return Actor(at, task, True, (row, ""))


def closure(task: int, kept: Task) -> tuple[int, ...]:
    """Main's history as it is, or would be, with the task's M."""
    return (*kept.base, commit_of(task, kept.candidate))
