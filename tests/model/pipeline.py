"""What the model takes from the code: stages, edges, the steps of a stage, and the life of a ledger row.

Nothing here is typed in by hand that the code could be asked for, so that a new edge or step reaches the model by
itself. What cannot be derived (which moves a ledger row may make) is written down and compared with a real database.
"""

from collections.abc import Mapping
from typing import NamedTuple

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.stage import Stage
from orchestrator.rules.transitions import (
    MERGE,
    PUSH_CANDIDATE,
    STAGE_STEPS,
    STAGE_TRANSITIONS,
    START_PRODUCTION,
    START_STAGING,
    EdgeKind,
    StepKind,
)

# Plain strings: members of an enumeration hash slowly, and states are hashed a million times.
CREATED, DEVELOPMENT, TESTING = Stage.CREATED.value, Stage.DEVELOPMENT.value, Stage.TESTING.value
STAGING, DEPLOY = Stage.DEPLOY_STAGING.value, Stage.DEPLOY.value
DONE, CANCELLED = Stage.DONE.value, Stage.CANCELLED.value
ENDS = frozenset(stage.value for stage in Stage if stage.terminal)

ADVANCE, REJECT, RENEW = EdgeKind.ADVANCE.value, EdgeKind.REJECT.value, EdgeKind.RENEW.value
REQUEUE, CANCEL = EdgeKind.REQUEUE.value, EdgeKind.CANCEL.value

INTENDED, REVOKING, IN_DOUBT = (
    EffectState.INTENDED.value,
    EffectState.REVOKING.value,
    EffectState.IN_DOUBT.value,
)
APPLIED, REVOKED = EffectState.APPLIED.value, EffectState.REVOKED.value

MERGES, STAGES, STARTS, PREPARES = MERGE.what, START_STAGING.what, START_PRODUCTION.what, PUSH_CANDIDATE.what
UNDOES = EffectName.DEPLOY_UNDO.value

Written = tuple[str, str, str]  # source, target, kind
# Accepting a restored database is no step of any actor: nothing runs until a person has done it.
EDGES: frozenset[Written] = frozenset(
    (edge.source.value, edge.target.value, edge.kind.value)
    for edges in STAGE_TRANSITIONS.values()
    for edge in edges
    if edge.kind is not EdgeKind.RESTORE
)

# How a ledger row may move. The protocol makes no other move; a test asks the database's trigger for all pairs.
EFFECT_MOVES: frozenset[tuple[str, str]] = frozenset(
    {
        (INTENDED, APPLIED),
        (INTENDED, REVOKING),
        (INTENDED, IN_DOUBT),
        (REVOKING, APPLIED),
        (REVOKING, REVOKED),
        (REVOKING, IN_DOUBT),
        (IN_DOUBT, APPLIED),
        (IN_DOUBT, INTENDED),
        (IN_DOUBT, REVOKING),
    }
)
# Permitted by the schema and made by nobody: who gives up keeps ``revoking`` until the authority can be asked again.
UNUSED_MOVES = frozenset({(REVOKING, IN_DOUBT)})


class Part(NamedTuple):
    """One or more steps of a stage that the model passes as one."""

    kind: str  # "judge" | "candidate" | "effect"
    what: str
    stands_for: tuple[str, ...]
    may_fail: bool = False  # holds a gate: a coin on each evaluation, until it is marked
    asks: bool = False  # holds an approval


Parts = Mapping[str, tuple[Part, ...]]


def targets(source: str, kind: str) -> list[str]:
    """Where the edges of a kind lead from a stage."""
    return sorted(edge.target.value for edge in STAGE_TRANSITIONS[Stage(source)] if edge.kind.value == kind)


def parts_of(driven: frozenset[str] | None, first: str) -> Parts:
    """The stages' steps for the model: effects in ``driven`` (None: all) are driven through the ledger, everything else
    between two of them is judged as one; stages before ``first`` are taken as passed."""
    stages = [stage.value for stage in Stage]
    return {
        stage.value: _parts(stage, driven)
        if stages.index(stage.value) >= stages.index(first) and (first == CREATED or stage.value != first)
        else ()
        for stage in Stage
    }


def _parts(stage: Stage, driven: frozenset[str] | None) -> tuple[Part, ...]:
    parts: list[Part] = []
    for step in STAGE_STEPS[stage]:
        if step.kind is StepKind.CANDIDATE:
            parts.append(Part("candidate", step.what, (step.name,)))
        elif step.kind is StepKind.EFFECT and (driven is None or step.what in driven):
            parts.append(Part("effect", step.what, (step.name,)))
        else:
            if not parts or parts[-1].kind != "judge":
                parts.append(Part("judge", "", ()))
            last = parts[-1]
            parts[-1] = last._replace(
                what=last.what or step.what,
                stands_for=(*last.stands_for, step.name),
                may_fail=last.may_fail or step.kind is StepKind.GATE,
                asks=last.asks or step.kind is StepKind.APPROVAL,
            )
    return tuple(parts)
