"""The effects ``deploy_init`` and ``deploy_undo``: one start of one SHA in one environment (DESIGN §6, "Deploys").

Applied means that the detached child claimed the start, never an answer over HTTP. Health is a gate's business.
"""

from collections.abc import Mapping
from pathlib import Path

from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.records import Claimant, DeployKind, DeployStart, Started
from orchestrator.domain.effect import Applied, EffectName, Intent, NotApplied, Probe, Unknown
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import Digest, Sha, WorkItem
from orchestrator.effects import judged


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

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        """Nothing turns a deploy or its undo."""
        return None

    def revoke(self, intent: Intent) -> None:
        """Claim the start for nobody."""
        self._deployer.revoke(start_of(intent))


def start_of(intent: Intent) -> DeployStart:
    """The start that an intent carries."""
    argv = intent.judged.get("argv")
    env: Mapping[str, object] = judged.mapping(intent, "env")
    return DeployStart(
        environment=judged.text(intent, "environment"),
        sha=Sha(judged.text(intent, "sha")),
        generation=judged.number(intent, "generation"),
        digest=Digest(judged.text(intent, "digest")),
        artifact=Path(judged.text(intent, "artifact")),
        token=intent.token,
        argv=tuple(str(word) for word in argv) if isinstance(argv, list) else (),
        timeout_s=float(str(intent.judged["timeout_s"])),
        work_item=WorkItem(judged.text(intent, "work_item")),
        sequence=intent.sequence,
        installation=judged.text(intent, "installation"),
        kind=DeployKind.UNDO if intent.name is EffectName.DEPLOY_UNDO else DeployKind.DEPLOY,
        env={name: str(value) for name, value in env.items()},
    )


def _fact(intent: Intent, held: Started) -> dict[str, object]:
    return {
        "environment": judged.text(intent, "environment"),
        "sha": judged.text(intent, "sha"),
        "generation": judged.number(intent, "generation"),
        "token": held.token,
        "at": held.at,
    }
