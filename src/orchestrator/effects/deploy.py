"""The effects ``deploy_init`` and ``deploy_undo``: one start of one SHA in one environment (DESIGN §6, "Deploys").

Applied means that the detached child claimed the start, never an answer over HTTP. Health is a gate's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.records import Claimant, ConditionalUndo, DeployKind, DeployStart, Started
from orchestrator.domain.effect import Applied, EffectName, Intent, NotApplied, Probe, Unknown
from orchestrator.domain.errors import InvariantError, OutsideError
from orchestrator.domain.ids import Digest, Sha, WorkItem
from orchestrator.effects import judged

CONDITIONAL_UNDO = (
    "conditional_undo"  # in the intent of a deploy of ourselves; SQL looks for it under this name
)


@dataclass(frozen=True, slots=True)
class PreparedUndo:
    """The whole intent of an undo, drawn with the start that it is for; it becomes an effect when it is needed."""

    key: str
    sequence: int
    token: str
    within_s: float
    judged: Mapping[str, object]

    def stored(self) -> dict[str, object]:
        """As the start's intent carries it."""
        return {
            "key": self.key,
            "sequence": self.sequence,
            "token": self.token,
            "within_s": self.within_s,
            "judged": dict(self.judged),
        }

    def start(self) -> DeployStart:
        """What it would run."""
        return _start(DeployKind.UNDO, self.judged, self.sequence, self.token)


class DeployEffect:
    """A start, forward or back again; once sent it is never turned (law 3)."""

    def __init__(self, name: EffectName, deployer: Deployer) -> None:
        self.name = name
        self._deployer = deployer

    def probe(self, intent: Intent) -> Probe:
        """Who holds the claim of this start."""
        try:
            held = self._deployer.started(start_of(intent))
        except OutsideError as error:
            return Unknown(str(error))
        if held is not None and held.by is Claimant.CHILD:
            return Applied(_fact(intent, held))
        return NotApplied({"claimed_by": held.by.value if held else None})

    def act(self, intent: Intent) -> None:
        """Send the detached child; its claim decides."""
        self._deployer.start(start_of(intent))

    def said(self, intent: Intent) -> Mapping[str, object] | None:
        """Which start it was; whether it is healthy is a gate's business."""
        return {
            "environment": judged.text(intent, "environment"),
            "sha": judged.text(intent, "sha"),
            "generation": judged.number(intent, "generation"),
            "token": intent.token,
        }

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        """Nothing turns a deploy or its undo."""
        return None

    def revoke(self, intent: Intent) -> None:
        """Claim the start for nobody."""
        self._deployer.revoke(start_of(intent))


def start_of(intent: Intent) -> DeployStart:
    """The start that an intent carries."""
    kind = DeployKind.UNDO if intent.name is EffectName.DEPLOY_UNDO else DeployKind.DEPLOY
    start = _start(kind, intent.judged, intent.sequence, intent.token)
    prepared = prepared_undo(intent)
    if prepared is None:
        return start
    return replace(start, undo=ConditionalUndo(prepared.start(), prepared.within_s))


def prepared_undo(intent: Intent) -> PreparedUndo | None:
    """The undo that was drawn with a start; None where it is no deploy of ourselves."""
    if CONDITIONAL_UNDO not in intent.judged:
        return None
    stored = judged.mapping(intent, CONDITIONAL_UNDO)
    carried = stored["judged"]
    if not isinstance(carried, dict):
        raise InvariantError(f"the conditional undo of {intent.key} carries nothing")
    return PreparedUndo(
        key=str(stored["key"]),
        sequence=int(str(stored["sequence"])),
        token=str(stored["token"]),
        within_s=float(str(stored["within_s"])),
        judged=carried,
    )


def _start(kind: DeployKind, carried: Mapping[str, object], sequence: int, token: str) -> DeployStart:
    argv, env = carried.get("argv"), carried.get("env")
    return DeployStart(
        environment=str(carried["environment"]),
        sha=Sha(str(carried["sha"])),
        generation=int(str(carried["generation"])),
        digest=Digest(str(carried["digest"])),
        artifact=Path(str(carried["artifact"])),
        token=token,
        argv=tuple(str(word) for word in argv) if isinstance(argv, list) else (),
        timeout_s=float(str(carried["timeout_s"])),
        work_item=WorkItem(str(carried["work_item"])),
        sequence=sequence,
        installation=str(carried["installation"]),
        kind=kind,
        env={name: str(value) for name, value in env.items()} if isinstance(env, dict) else {},
    )


def _fact(intent: Intent, held: Started) -> dict[str, object]:
    return {
        "environment": judged.text(intent, "environment"),
        "sha": judged.text(intent, "sha"),
        "generation": judged.number(intent, "generation"),
        "token": held.token,
        "at": held.at,
    }
