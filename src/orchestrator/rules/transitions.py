"""The pipeline as data: which stage may follow which, and what happens inside each.

Pure and printable (``orch pipeline``). These tables are a contract: names are added, never changed (NFR-3).
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from orchestrator.domain.effect import EffectName
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage, Track


class EdgeKind(StrEnum):
    """Why a task moves along an edge."""

    ADVANCE = "advance"  # the gate has passed
    REJECT = "reject"  # the gate has failed; counted, bounded, then the task escalates
    RENEW = "renew"  # the same stage anew, no rejection: main moved, or a person has a deploy started again
    REQUEUE = "requeue"  # a person did not answer in time: slots are freed, no rejection
    CANCEL = "cancel"  # a person's word
    RESTORE = "restore"  # a person has accepted a restored database, and main has the task's merge


@dataclass(frozen=True, slots=True)
class Edge:
    """A permitted move."""

    source: Stage
    target: Stage
    kind: EdgeKind
    gate: str = ""  # name in QG_CHECKS of the last gate before the edge
    track: Track | None = None  # only on this track


class StepKind(StrEnum):
    """What a step inside a stage is."""

    JOB = "job"  # somebody works: an agent, or the orchestrator gathering evidence
    HARVEST = "harvest"  # commits of the agent are taken over into the ledger
    RECORD = "record"  # a verdict document is taken over; the orchestrator commits or keeps it
    GATE = "gate"  # evidence is judged
    EFFECT = "effect"  # an act of the ledger
    APPROVAL = "approval"  # a person's word
    BRANCH = "branch"  # the task's base and branch are fixed
    CANDIDATE = "candidate"  # M is built
    CALL_OFF = "call-off"  # what was prepared is made impossible


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a stage. ``needs`` names the part of the repository's configuration without which it is left out;
    "self" is no such part: the orchestrator delivers itself (S-15)."""

    kind: StepKind
    what: str
    needs: str = ""

    @property
    def name(self) -> str:
        """The mark under which a passed step is recorded, such as ``gate:check_review``."""
        return f"{self.kind}:{self.what}"


def _job(kind: JobKind, needs: str = "") -> Step:
    return Step(StepKind.JOB, kind, needs)


def _gate(name: str, needs: str = "") -> Step:
    return Step(StepKind.GATE, name, needs)


def _effect(name: EffectName, of: str = "", needs: str = "") -> Step:
    return Step(StepKind.EFFECT, f"{name}/{of}" if of else name, needs)


PUSH_BRANCH = _effect(EffectName.PUSH, "branch")
PUSH_CANDIDATE = _effect(EffectName.PUSH, "candidate")
OPEN_PR = _effect(EffectName.OPEN_PR)
IMAGE = _effect(EffectName.IMAGE, needs="image")
START_STAGING = _effect(EffectName.DEPLOY_INIT, "staging", needs="staging")
MERGE = _effect(EffectName.MERGE_PR)
PROMOTE = _effect(EffectName.IMAGE, "production", needs="image")
START_PRODUCTION = _effect(EffectName.DEPLOY_INIT, "production", needs="production")
CALL_OFF_UNDO = Step(StepKind.CALL_OFF, EffectName.DEPLOY_UNDO, needs="self")

CHECK_STAGING = "check_staging"
CHECK_PRODUCTION = "check_production"

WRITTEN_BY: Mapping[str, JobKind] = MappingProxyType(
    {
        "12-review.md": JobKind.REVIEWER,
        "13-test-report.md": JobKind.TESTER,
        "14-staging-log.md": JobKind.DEPLOYER,
    }
)

# What others say at the forge; asked for before the slots are taken, too, by main's configuration as it is then.
FORGE_CHECKS = _gate("check_forge_checks", "forge.required_checks")
FORGE_REVIEWS = _gate("check_forge_reviews", "forge.required_reviews")

APPROVED = "approved"
CONFIRM_DEPLOY = "confirm-deploy"

STAGE_STEPS: Mapping[Stage, tuple[Step, ...]] = MappingProxyType(
    {
        Stage.CREATED: (_gate("check_created"), Step(StepKind.BRANCH, "base")),
        Stage.ANALYSIS: (
            _job(JobKind.ANALYST),
            Step(StepKind.HARVEST, "branch"),
            _gate("check_analysis"),
            PUSH_BRANCH,
            Step(StepKind.APPROVAL, APPROVED, needs="approvals.analysis"),
        ),
        Stage.ARCHITECTURE: (
            _job(JobKind.ARCHITECT),
            Step(StepKind.HARVEST, "branch"),
            _gate("check_architecture"),
            PUSH_BRANCH,
        ),
        Stage.DEVELOPMENT: (
            _job(JobKind.DEVELOPER),
            Step(StepKind.HARVEST, "branch"),
            _gate("check_change"),
            PUSH_BRANCH,
            OPEN_PR,
            _job(JobKind.CI),
            _gate("check_ci"),
            FORGE_CHECKS,
        ),
        Stage.REVIEW: (
            _job(JobKind.REVIEWER),
            Step(StepKind.RECORD, "12-review.md"),
            _gate("check_review"),
            PUSH_BRANCH,
        ),
        Stage.TESTING: (
            _job(JobKind.TESTER),
            Step(StepKind.RECORD, "13-test-report.md"),
            _gate("check_testing"),
            PUSH_BRANCH,
        ),
        Stage.DEPLOY_STAGING: (
            Step(StepKind.CANDIDATE, "merge"),
            PUSH_CANDIDATE,
            _job(JobKind.CANDIDATE_CI),
            _gate("check_candidate"),
            IMAGE,
            START_STAGING,
            _job(JobKind.STAGING_HEALTH, "staging"),
            _gate(CHECK_STAGING, "staging"),
            _job(JobKind.DEPLOYER, "staging"),
            Step(StepKind.RECORD, "14-staging-log.md", "staging"),
            _gate("check_staging_log", "staging"),
            Step(StepKind.APPROVAL, CONFIRM_DEPLOY, needs="approvals.deploy"),
            FORGE_CHECKS,
            FORGE_REVIEWS,
            MERGE,
        ),
        Stage.DEPLOY: (
            PROMOTE,
            START_PRODUCTION,
            _job(JobKind.PRODUCTION_HEALTH, "production"),
            _gate(CHECK_PRODUCTION),
            CALL_OFF_UNDO,
        ),
        Stage.DONE: (),
        Stage.CANCELLED: (),
    }
)


def _edges() -> Iterator[Edge]:
    for source, target, gate, track in (
        (Stage.CREATED, Stage.ANALYSIS, "check_created", None),
        (Stage.ANALYSIS, Stage.ARCHITECTURE, "check_analysis", Track.FULL),
        (Stage.ANALYSIS, Stage.DEVELOPMENT, "check_analysis", Track.FAST),
        (Stage.ARCHITECTURE, Stage.DEVELOPMENT, "check_architecture", None),
        (Stage.DEVELOPMENT, Stage.REVIEW, "check_ci", None),
        (Stage.REVIEW, Stage.TESTING, "check_review", None),
        (Stage.TESTING, Stage.DEPLOY_STAGING, "check_testing", None),
        (Stage.DEPLOY_STAGING, Stage.DEPLOY, "check_staging_log", None),
        (Stage.DEPLOY, Stage.DONE, "check_production", None),
    ):
        yield Edge(source, target, EdgeKind.ADVANCE, gate, track)
    for source, target in (
        (Stage.ANALYSIS, Stage.ANALYSIS),
        (Stage.ARCHITECTURE, Stage.ARCHITECTURE),
        (Stage.ARCHITECTURE, Stage.ANALYSIS),
        (Stage.DEVELOPMENT, Stage.DEVELOPMENT),
        (Stage.REVIEW, Stage.DEVELOPMENT),
        (Stage.TESTING, Stage.DEVELOPMENT),
        (Stage.DEPLOY_STAGING, Stage.DEVELOPMENT),
    ):
        yield Edge(source, target, EdgeKind.REJECT)
    yield Edge(Stage.DEPLOY_STAGING, Stage.DEPLOY_STAGING, EdgeKind.RENEW)
    yield Edge(Stage.DEPLOY, Stage.DEPLOY, EdgeKind.RENEW)
    yield Edge(Stage.DEPLOY_STAGING, Stage.TESTING, EdgeKind.REQUEUE)
    for source in Stage:
        if not source.terminal and source is not Stage.DEPLOY:
            yield Edge(source, Stage.CANCELLED, EdgeKind.CANCEL)
            yield Edge(source, Stage.DEPLOY, EdgeKind.RESTORE)


STAGE_TRANSITIONS: Mapping[Stage, tuple[Edge, ...]] = MappingProxyType(
    {stage: tuple(edge for edge in _edges() if edge.source is stage) for stage in Stage}
)


def next_step(stage: Stage, passed: Container[str], has: Container[str]) -> Step | None:
    """The first step of a stage that is not behind the task; None where the edge is next.

    :param passed: names of the steps that this round has recorded.
    :param has: parts of the repository's configuration that are there.
    """
    for step in STAGE_STEPS[stage]:
        if step.name not in passed and (not step.needs or step.needs in has):
            return step
    return None


def advance_target(stage: Stage, track: Track | None) -> Stage:
    """Where the passed gate leads; a task without a track is on the full one."""
    wanted = track or Track.FULL
    for edge in STAGE_TRANSITIONS[stage]:
        if edge.kind is EdgeKind.ADVANCE and edge.track in (None, wanted):
            return edge.target
    raise KeyError(stage)


def reject_target(stage: Stage, wanted: Stage | None = None) -> Stage:
    """Where a failed gate leads: back to development where the stage can send back, else the same stage again."""
    targets = [edge.target for edge in STAGE_TRANSITIONS[stage] if edge.kind is EdgeKind.REJECT]
    if wanted in targets:
        return wanted
    return Stage.DEVELOPMENT if Stage.DEVELOPMENT in targets else targets[0]


def allowed(source: Stage, target: Stage, kind: EdgeKind) -> bool:
    """Whether the edge exists."""
    return any(edge.target is target and edge.kind is kind for edge in STAGE_TRANSITIONS[source])


def mermaid() -> str:
    """The pipeline's ordinary ways as a diagram for the documentation; generated, so that it cannot drift."""
    lines = ["stateDiagram-v2", "    [*] --> created"]
    for edge in (edge for edges in STAGE_TRANSITIONS.values() for edge in edges):
        if edge.kind not in (EdgeKind.CANCEL, EdgeKind.RESTORE):
            note = edge.gate if edge.kind is EdgeKind.ADVANCE else edge.kind.value
            label = f"{note} (track {edge.track})" if edge.track else note
            lines.append(f"    {_id(edge.source)} --> {_id(edge.target)}: {label}")
    lines += [
        "    done --> [*]",
        "    note right of cancelled: from every stage before deploy, by a person's word",
    ]
    return "\n".join(lines)


def _id(stage: Stage) -> str:
    return stage.value.replace("-", "_")
