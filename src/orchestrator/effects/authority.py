"""Names the authority of an effect as people know it: the place whose word settles it (law 4)."""

from orchestrator.domain.effect import EffectName, Intent
from orchestrator.effects import judged


def authority_of(intent: Intent) -> str:
    """The forge of a repository, an environment, or the image store."""
    if intent.name in (EffectName.DEPLOY_INIT, EffectName.DEPLOY_UNDO):
        return f"the environment {judged.text(intent, 'environment')}"
    if intent.name is EffectName.IMAGE:
        return "the image store"
    return f"the forge of {judged.text(intent, 'repo')}"
