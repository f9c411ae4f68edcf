"""What a ticket elsewhere is told of its task, and what makes a message the same one there."""

import hashlib

from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task

LIMIT = 10_000  # characters of a comment before the markup
CUT = " …"


def about_stage(work_item: str, stage: Stage, reason: str) -> str:
    """What a ticket is told of its task's new stage."""
    if stage is Stage.CREATED:
        return f"Taken as {work_item}."
    said = f"{work_item} is {stage}." if stage.terminal else f"{work_item} is in {stage}."
    return f"{said}\n{reason}" if reason.strip() else said


def message_mark(task: Task, message_id: str) -> str:
    """What makes a message the same one, where other installations may write to the same ticket."""
    about = f"{task.repo}\n{task.work_item}\n{task.created_at}\n{message_id}"
    return f"orch-{hashlib.sha256(about.encode('utf-8', 'replace')).hexdigest()[:40]}"


def cut(text: str) -> str:
    """So much of a text as a comment holds."""
    return text if len(text) <= LIMIT else text[:LIMIT] + CUT
