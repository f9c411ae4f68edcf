"""What a person can do for a task that waits for one: commands to copy. Pure: values in, values out."""

from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold

FROZEN_GUIDE = "docs/how-to/frozen-repository.md"
_SHA_SHOWN = 12


def next_steps(
    work_item: str, stage: Stage, hold: Hold | None, repo: str, *, frozen: bool, subject: str | None = None
) -> tuple[str, ...]:
    """The commands that a person chooses from; none where nobody is waited for.

    A change that is on the default branch (stage deploy) cannot be cancelled any more. ``frozen``: its repository is.
    """
    retry, unfreeze = f"orch task retry {work_item}", f"orch unfreeze {repo}"
    if hold is Hold.PERSON:
        seen = f" --sha {subject[:_SHA_SHOWN]}" if subject else ""
        return (
            f"orch task approve {work_item}{seen}",
            f'orch task reject {work_item}{seen} --reason "…"',
        )
    if hold is Hold.FROZEN:
        return f"{unfreeze} --for {work_item}", unfreeze
    if hold not in (Hold.ESCALATED, Hold.BLOCKED):
        return ()
    if stage is Stage.DEPLOY:
        return (retry, f"{unfreeze} --for …", unfreeze) if frozen else (retry,)
    return retry, f"orch task cancel {work_item}"


def needs_guide(stage: Stage, hold: Hold | None, *, frozen: bool) -> bool:
    """Whether the way on is that of a frozen repository, which wants to be read before it is gone."""
    return hold is Hold.FROZEN or (frozen and stage is Stage.DEPLOY and hold is not None)
