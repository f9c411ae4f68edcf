"""What a gate may look at: facts of git, of our own ledger and of checks we ran ourselves; no agent's word alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from orchestrator.db import evidence as ledger
from orchestrator.db import slots, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.domain.job import JobKind
from orchestrator.domain.others import Said
from orchestrator.domain.stage import Stage, Track
from orchestrator.domain.task import Candidate, Landed, Task
from orchestrator.repo_config.records import RepoConfig
from orchestrator.work_items.documents import MAX_DOCUMENTS, MAX_FOLDER_BYTES, folder
from orchestrator.workspace.clone import Clone
from orchestrator.workspace.commits import REGULAR
from orchestrator.workspace.history import Entry


@dataclass(frozen=True)
class Evidence:
    """Everything about one task at one moment. Git is read when asked for; objects in it never change."""

    task: Task
    config: RepoConfig | None
    clone: Clone
    unmet: tuple[tuple[WorkItem, Stage], ...]
    freeze: slots.Freeze | None
    baseline: slots.Baseline | None
    candidate: Candidate | None
    checks: Mapping[JobKind, ledger.CheckResult]
    steps: Mapping[str, Mapping[str, object]]
    own_commits: frozenset[Sha]
    kept: ledger.KeptDocument | None  # 14-staging-log of this round
    landed: Landed | None = None  # the candidate, as the forge shows it on main; asked for in *deploy*
    said: Said | None = None  # what others say at the forge; asked for by the gates that are about it
    secrets: tuple[str, ...] = ()  # of this installation: looked for in every diff

    @property
    def head(self) -> Sha:
        """The branch's own head; before any commit, its base."""
        sha = self.task.head_sha or self.task.base_sha
        if sha is None:
            raise ValueError(f"{self.task.work_item} has no branch yet")
        return sha

    @property
    def base(self) -> Sha:
        """The commit the task started from."""
        if self.task.base_sha is None:
            raise ValueError(f"{self.task.work_item} has no branch yet")
        return self.task.base_sha

    @property
    def track(self) -> Track:
        """The task's track; until one is chosen, the full one."""
        return self.task.track or Track.FULL

    @cached_property
    def fork(self) -> Sha:
        """Where the branch left main: the base, or what of main has been merged into the branch since."""
        return self.clone.merge_base(self.head, self._main) or self.base

    @cached_property
    def documents(self) -> Mapping[str, bytes]:
        """The work item's folder at the head: path relative to it → content."""
        prefix = folder(self.task.work_item)
        readable: list[Entry] = []
        total = 0
        for entry in self.clone.list_files(self.head, prefix)[: MAX_DOCUMENTS + 1]:
            if entry.mode in REGULAR and entry.size <= MAX_FOLDER_BYTES:
                readable.append(entry)
                total += entry.size
            if total > MAX_FOLDER_BYTES:
                break
        contents = self.clone.contents(entry.blob for entry in readable)
        return {entry.path.removeprefix(prefix).lstrip("/"): contents[entry.blob] for entry in readable}

    @property
    def harvest_findings(self) -> tuple[Finding, ...]:
        """What the harvest of this round objected to."""
        noted = self.steps.get("harvest:branch", {}).get("findings", [])
        return tuple(Finding(str(text)) for text in noted) if isinstance(noted, list) else ()

    @property
    def _main(self) -> Sha:
        return self.clone.tip(self.clone.default_branch) or self.base


def gather(
    tx: Tx, task: Task, *, config: RepoConfig | None, clone: Clone, secrets: tuple[str, ...] = ()
) -> Evidence:
    """Read what the ledger holds about a task."""
    in_round = task.stage in (Stage.DEPLOY_STAGING, Stage.DEPLOY)
    checks = {kind: found for kind in JobKind if (found := ledger.check_result(tx, task, kind)) is not None}
    return Evidence(
        task=task,
        config=config,
        clone=clone,
        unmet=tuple(tasks.unmet_dependencies(tx, task.id)),
        freeze=slots.frozen(tx, task.repo),
        baseline=slots.baseline(tx, task.repo),
        candidate=ledger.candidate_of(tx, task.id) if in_round else None,
        checks=checks,
        steps=ledger.steps_of_round(tx, task),
        own_commits=ledger.own_commits(tx, task.id),
        kept=ledger.document(tx, task, "14-staging-log.md"),
        secrets=secrets,
    )
