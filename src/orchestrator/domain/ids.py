"""Identifiers as distinct types, so that a task's number is never passed where a job's is wanted."""

import re
from typing import NewType

TaskId = NewType("TaskId", int)
JobId = NewType("JobId", int)
RunId = NewType("RunId", int)
EffectId = NewType("EffectId", int)
EventId = NewType("EventId", int)

WorkItem = NewType("WorkItem", str)
"""The number people see and click, such as ``ORCH-114``. Unique for ever; a ticket delivered again gets a new one."""

RepoName = NewType("RepoName", str)
"""The name a repository is configured under."""

Sha = NewType("Sha", str)
"""A full lower-case git object name (40 or 64 hex digits)."""

Digest = NewType("Digest", str)
"""Content address of a built artefact, ``sha256:<64 hex>``."""

BootId = NewType("BootId", str)
"""Random value drawn at every process start: the identity of one life of one process."""

Home = NewType("Home", str)
"""The id of a worker's own state folder, in which its runs and workspaces lie and which nobody else sees."""

SHARED_HOME = Home("")
"""The state folder that the orchestrators share."""

TransitionId = NewType("TransitionId", str)
"""Unique id of one transition's commit; decides after a lost answer to COMMIT (law 2)."""


_LONG = re.compile(r"\b([0-9a-f]{12})(?:[0-9a-f]{28}|[0-9a-f]{52})\b")


def short_names(text: str) -> str:
    """The text with each commit and digest in it cut to the twelve digits that people compare."""
    return _LONG.sub(r"\1", text)
