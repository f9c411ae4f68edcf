"""Decisions: what an actor has made up its mind to commit, and the transaction that does it."""

from typing import Any, NamedTuple

from orchestrator.domain.stage import Stage
from orchestrator.rules.transitions import reject_target
from tests.model.authority import put
from tests.model.commits import (
    Journal,
    freeze_for,
    insert_row,
    later_merge,
    may_enter,
    move_row,
    settle_row,
    slot_to_freeze,
    take_slots,
    write_stage,
)
from tests.model.guards import Guards
from tests.model.pipeline import (
    APPLIED,
    DEPLOY,
    IN_DOUBT,
    INTENDED,
    REJECT,
    RENEW,
    REQUEUE,
    REVOKING,
    STAGING,
    TESTING,
)
from tests.model.state import FREEZE, Actor, Row, State, Task

# Where an actor can stand.
COMMIT, CHECKED = "commit", "tested, not yet written"
PROBE, TURN, ACT, LOOK_AGAIN = "probe", "may it act", "act", "probe after the act"
REVOKE, LAST_LOOK = "revoke", "probe after the revoke"

MAX_ROUNDS = 1  # rejections, renewals before the task escalates; the code's bounds are larger, not different

Written = tuple[State, str, Row | None]  # then where the actor goes on with which row; "" ends its lease


class Decision(NamedTuple):
    """One transaction to be. ``stage`` is the one that was judged."""

    kind: str
    stage: str = ""
    target: str = ""
    edge: str = ""
    extra: tuple[Any, ...] = ()
    row: Row | None = None
    outcome: str = ""


class Decisions:
    """Applies them; None where what was judged is no longer so."""

    def __init__(self, guards: Guards, journal: Journal, *, prepared: bool) -> None:
        """``prepared``: a candidate's fence is set up by an effect of its own, not with the candidate."""
        self._guards = guards
        self._journal = journal
        self._prepared = prepared

    def tested(self, decision: Any) -> bool:
        """Whether the transaction tests the epoch."""
        if decision.kind in ("intend", "broken"):
            return self._guards.epoch_on_intent
        return self._guards.epoch_on_settle

    def apply(self, state: State, task: int, decision: Decision) -> Written | None:
        """The transaction, tests of the epoch apart."""
        if decision.stage and state.tasks[task].stage != decision.stage:
            return None
        if decision.kind == "move":
            return self._move(state, task, decision)
        if decision.row is not None:
            return self._row(state, task, decision, decision.row)
        kept = state.tasks[task]
        if decision.kind == "refuse":
            kept = kept._replace(cancel=False)
        elif decision.kind == "escalate":
            kept = kept._replace(hold="escalated")
        elif kept.step != decision.extra[0]:
            return None
        else:
            kept = kept._replace(step=kept.step + 1)
            if decision.kind == "candidate":
                kept = kept._replace(candidate=kept.candidate + 1, base=decision.extra[1])
                if not self._prepared:
                    kept = kept._replace(fence=max(kept.fence, 2 * kept.candidate))
        return put(state, task, kept), "", None

    def _move(self, state: State, task: int, decision: Decision) -> Written | None:
        if decision.row is not None:
            settled = settle_row(state, task, decision.row, decision.outcome, self._journal)
            if settled is None:
                return None
            state = settled
        if (decision.stage, decision.target) == (TESTING, STAGING):
            if not may_enter(state.world, task):
                return None
            state = take_slots(state, task)
        fields = dict(decision.extra)
        if (decision.target, decision.edge) == (DEPLOY, RENEW):
            world = state.world
            if world.merge_slot not in (0, FREEZE):
                return None
            if self._guards.retry_judged_with_slot and later_merge(state, task):
                return None
            state = state._replace(world=world._replace(merge_slot=task + 1))
            fields["hold"] = ""
        new = write_stage(state, task, decision.target, decision.edge, self._guards, self._journal, **fields)
        return new, "", None

    def _row(self, state: State, task: int, decision: Decision, row: Row) -> Written | None:
        kept = state.tasks[task]
        if decision.kind in ("intend", "broken"):
            if decision.kind == "intend" and kept.step != decision.extra[0]:
                return None
            state = insert_row(state, task, row)
            if decision.kind == "broken":
                state = freeze_for(state, task)
            return state, PROBE, row
        if decision.kind in ("settle", "undone"):
            settled = settle_row(state, task, row, APPLIED, self._journal)
            if settled is None:
                return None
            kept = settled.tasks[task]
            if decision.kind == "settle":
                return put(settled, task, kept._replace(step=kept.step + 1)), "", None
            return slot_to_freeze(put(settled, task, kept._replace(hold="broken")), task), "", None
        to = {"revoking": REVOKING, "doubt": IN_DOUBT, "intended again": INTENDED}[decision.kind]
        moved = move_row(state, task, row, to, self._journal)
        if moved is None:
            return None
        new, there = moved
        return new, {"revoking": REVOKE, "doubt": "", "intended again": ACT}[decision.kind], there


def move(kept: Task, target: str, kind: str, *fields: tuple[str, Any]) -> Decision:
    """To take an edge from where the task stands."""
    return Decision("move", kept.stage, target, kind, fields)


def rejection(kept: Task, target: str = "") -> Decision:
    """Back, with the findings; bounded, then a person is called."""
    goal = target or reject_target(Stage(kept.stage)).value
    if kept.rejected < MAX_ROUNDS:
        return move(kept, goal, REJECT, ("rejected", kept.rejected + 1))
    if kept.stage == STAGING:  # nobody waits for a person with the slots in hand
        return move(kept, TESTING, REQUEUE, ("hold", "escalated"))
    return Decision("escalate", kept.stage)


def renewal(kept: Task) -> Decision:
    """A new candidate, the slots kept; bounded too."""
    if kept.renewed < MAX_ROUNDS:
        return move(kept, STAGING, RENEW, ("renewed", kept.renewed + 1))
    return move(kept, TESTING, REQUEUE, ("hold", "escalated"))


def decided(task: int, decision: Decision) -> Actor:
    """An owner that is about to commit."""
    return Actor(COMMIT, task, True, decision)
