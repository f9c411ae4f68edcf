"""The ways back: a rejection with its findings, and a new candidate. Both are bounded; then a person is called."""

from collections.abc import Callable, Sequence

from orchestrator.db import tasks
from orchestrator.db.database import Tx
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Holding
from orchestrator.effects.ledger import Proof
from orchestrator.rules.transitions import EdgeKind, reject_target
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.situation import Outcome, Situation, Tools


class WaysBack:
    """Sends tasks back, each in one commit."""

    def __init__(self, tools: Tools, moves: Moves) -> None:
        self._tools = tools
        self._moves = moves

    def renew(self, at: Situation, reason: str, *, proofs: Sequence[Proof]) -> Outcome:
        """Main moved: a new candidate in a new round, slots kept, no rejection; bounded by ``max_candidates``."""
        if at.unusable is not None:
            return self._unbounded(at, reason, proofs)
        stage = Stage.DEPLOY_STAGING
        taken = self._taken(at, stage)
        if taken + 1 >= at.settings.budget.max_candidates:
            why = f"main moved {taken + 1} times while a candidate was being tested"
            return self.requeue(at, why, proofs=proofs, hold=Holding(Hold.ESCALATED, why))
        return self._moves.move(at, stage, EdgeKind.RENEW, reason=reason, proofs=proofs)

    def requeue(
        self,
        at: Situation,
        reason: str,
        *,
        proofs: Sequence[Proof] = (),
        hold: Holding | None = None,
        also: Callable[[Tx], None] | None = None,
    ) -> Outcome:
        """Free the slots and queue for them again; verdicts stay, nothing is rejected."""
        return self._moves.move(
            at, Stage.TESTING, EdgeKind.REQUEUE, reason=reason, proofs=proofs, hold=hold, before=also
        )

    def reject(
        self,
        at: Situation,
        reason: str,
        *,
        brief: str,
        proofs: Sequence[Proof] = (),
        also: Callable[[Tx], None] | None = None,
        target: Stage | None = None,
        gone: Callable[[Tx], None] | None = None,
    ) -> Outcome:
        """Send the task back with the findings; bounded per edge, then it waits for a person.

        ``target`` is where the gate wants it to go, if an edge leads there.

        ``also`` adds statements to the commit, such as closing the signal that asked for it; ``gone`` adds those that
        belong to it only where the task does go back.
        """
        if at.unusable is not None:
            return self._unbounded(at, reason, proofs, also)
        goal = reject_target(at.task.stage, target)
        taken = self._taken(at, goal)
        if taken < at.settings.budget.max_rounds:

            def before(tx: Tx) -> None:
                for more in (also, gone):
                    if more is not None:
                        more(tx)

            return self._moves.move(
                at, goal, EdgeKind.REJECT, reason=reason, brief=brief, proofs=proofs, before=before
            )
        why = f"rejected {taken} times on the way {at.task.stage} → {goal}; last: {reason}"
        if at.task.stage is Stage.DEPLOY_STAGING:  # nobody waits for a person with the slots in hand
            return self.requeue(at, why, proofs=proofs, hold=Holding(Hold.ESCALATED, why), also=also)
        return self._moves.hold(at, Hold.ESCALATED, why, proofs=proofs, also=also)

    def _unbounded(
        self,
        at: Situation,
        reason: str,
        proofs: Sequence[Proof],
        also: Callable[[Tx], None] | None = None,
    ) -> Outcome:
        """Without a usable configuration nobody knows the bounds: a person decides."""
        why = f"{reason}; it does not go back by itself: {at.unusable}"
        return self._moves.hold(at, Hold.ESCALATED, why, proofs=proofs, also=also)

    def _taken(self, at: Situation, goal: Stage) -> int:
        with self._tools.database.read() as tx:
            return tasks.times_taken(tx, at.task.id, at.task.stage, goal)
