"""``orch restore accept``: a person says that work goes on from here (DESIGN §6, "Restored or cloned").

What must hold: nothing that the outside has seen happens a second time. So the facts are imported in one transaction
(candidates, starts and their tokens, numbers above every number seen), and every unfinished task is told to wait for a
person, before any repository is claimed anew; and a repository opens only if nothing unknown is left in it then.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from orchestrator.db import effects, events, installation, mail, restored, tasks
from orchestrator.db.database import Database, Tx
from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.prepared import CONDITIONAL_UNDO, PreparedUndo
from orchestrator.deploy.records import Claimant, DeployKind, DeployStart
from orchestrator.domain.effect import EffectName, EffectState, Intent
from orchestrator.domain.errors import NotFound, RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import BootId, RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.installation import Cause, SeenCandidate
from orchestrator.domain.lease import Actor
from orchestrator.domain.task import Signal, Task
from orchestrator.installation.guard import InstallationGuard
from orchestrator.installation.survey import Found, FoundStart, Survey, Surveyor
from orchestrator.rules.installation import RESTORED
from orchestrator.rules.trailers import whole_number
from orchestrator.runtime.entropy import Entropy

REASON_LIMIT = 2000


class Acceptance:
    """Imports what was found and opens what was closed."""

    def __init__(
        self,
        database: Database,
        surveyor: Surveyor,
        guard: InstallationGuard,
        deployer: Deployer,
        *,
        boot_id: BootId,
        entropy: Entropy,
        wake: Callable[[Iterable[TaskId]], None],
    ) -> None:
        self._database = database
        self._surveyor = surveyor
        self._guard = guard
        self._deployer = deployer
        self._boot_id = boot_id
        self._entropy = entropy
        self._wake = wake
        self._turn = threading.Lock()  # what one has found is stale once another has accepted it

    def status(self) -> dict[str, object]:
        """What is closed and why, what was found, and what accepting would do. Changes nothing.

        :raises OutsideError: a forge, or a record, cannot be read.
        """
        return told(self._surveyor.look())

    def accept(self, *, person: str, reason: str) -> dict[str, object]:
        """Import the facts, have every unfinished task wait for a person, and claim the repositories anew.

        :raises RequestRefused: nothing is wrong, or no reason is given.
        :raises OutsideError: a forge, or a record, cannot be read; nothing was changed.
        """
        if not reason.strip():
            raise RequestRefused("A restore is accepted for a reason.", hint="Say it with --reason.")
        with self._turn:
            return self._accept(person, reason)

    def _accept(self, person: str, reason: str) -> dict[str, object]:
        survey = self._surveyor.look()
        if not survey.found:
            raise RequestRefused(
                "Database and forges belong together; nothing was changed.",
                hint="`orch restore accept` is for a database or a forge that was restored or copied.",
            )
        survey = replace(survey, starts=[self._claimed(one) for one in survey.starts])
        with self._database.write() as tx:
            restored.forget_others(tx, self._boot_id)
            _Import(tx, survey, person[:200], reason[:REASON_LIMIT], self._entropy.token(8)).run()
        opened = self._guard.reopen({repo: one.compared for repo, one in survey.found.items()})
        with self._database.read() as tx:
            waiting = [task.id for task in tasks.every_open(tx)]
        self._wake(waiting)
        return {**told(survey), "opened": opened}

    def _claimed(self, found: FoundStart) -> FoundStart:
        """A start that nobody has claimed must never be: a child of then may still be on its way."""
        if found.start is None or found.claim is not None or not self._ours(found.start):
            return found
        return replace(found, claim=self._deployer.revoke(found.start))

    def _ours(self, start: DeployStart) -> bool:
        with self._database.read() as tx:
            return start.installation == installation.identity(tx)


class _Import:
    """One transaction's work."""

    def __init__(self, tx: Tx, survey: Survey, person: str, reason: str, token: str) -> None:
        self._tx = tx
        self._survey = survey
        self._person = person
        self._reason = reason
        self._token = token

    def run(self) -> None:
        """Numbers first, then what was made, what was started, and who waits."""
        self._lift()
        if any(
            one.finding is not None and one.finding.cause is Cause.DATABASE
            for one in self._survey.found.values()
        ):
            restored.name_messages_anew(self._tx, self._token)
        rounds: dict[Sha, int] = {}
        for found in self._survey.found.values():
            for seen in found.candidates:
                rounds |= self._candidate(found, seen)
        for one in sorted(self._survey.starts, key=lambda one: one.start.sequence if one.start else 0):
            self._start(one, rounds)
        for name in self._survey.runs:
            restored.accept_trace(self._tx, name)
        for repo, found in self._survey.found.items():
            self._take_out(repo)
            restored.accept_main(self._tx, repo)
            data = {"repo": repo, "person": self._person, "reason": self._reason, **_numbers(found)}
            events.append(self._tx, EventType.INSTALLATION_ACCEPTED, Actor.OPERATOR, data=data)

    def _lift(self) -> None:
        found = self._survey.found
        seen = [one.sequence for repo in found.values() for one in repo.candidates]
        seen += [repo.fence for repo in found.values()]  # a number of a lost task is given again, fences stay
        starts = [one.start for one in self._survey.starts if one.start is not None]
        starts += [one.undo.start for one in starts if one.undo is not None]  # its runner may yet perform it
        restored.lift_sequence(self._tx, max([*seen, *(start.sequence for start in starts)], default=0))
        for start in starts:
            if (token := whole_number(start.token)) is not None:
                restored.lift_environment(self._tx, start.environment, token)
        for work_item in self._survey.work_items():
            for one in found.values():
                if (number := _number(work_item, one)) is not None:
                    restored.lift_number(self._tx, one.repo.name, number)

    def _candidate(self, found: Found, seen: SeenCandidate) -> dict[Sha, int]:
        task = self._task(seen.work_item, title=seen.title, task_id=seen.task_id)
        if task is None or task.repo != found.repo.name:
            restored.accept_trace(self._tx, seen.nonce)
            return {}
        return {seen.sha: restored.add_candidate(self._tx, task, seen).round}

    def _start(self, found: FoundStart, rounds: Mapping[Sha, int]) -> None:
        start = found.start
        if start is not None and start.installation != installation.identity(self._tx):
            start = None
        task = self._task(start.work_item, title=f"Known by its start {found.name}") if start else None
        if start is None or task is None or not self._started(task, start, found, rounds.get(start.sha, 1)):
            restored.accept_trace(self._tx, found.name)

    def _started(self, task: Task, start: DeployStart, found: FoundStart, round: int) -> bool:
        before = effects.last_start(self._tx, start.environment)
        applied = found.claim is not None and found.claim.by is Claimant.CHILD
        undo = start.kind is DeployKind.UNDO
        fact: dict[str, object] = {
            "environment": start.environment,
            "sha": start.sha,
            "generation": start.generation,
            "token": start.token,
            "succeeded": found.exit.succeeded if found.exit is not None else None,
        }
        added = restored.add_effect(
            self._tx,
            task,
            EffectName.DEPLOY_UNDO if undo else EffectName.DEPLOY_INIT,
            f"{start.environment}:{start.sha}:{start.generation}",
            round,
            EffectState.APPLIED if applied else EffectState.REVOKED,
            token=start.token,
            judged={**_carried(start), **_before(start, before), **_prepared(start)},
            fact=fact,
            sequence=start.sequence,
        )
        if added and start.digest is not None:
            restored.add_effect(
                self._tx,
                task,
                EffectName.IMAGE,
                start.sha,
                round,
                EffectState.APPLIED,
                token=f"restored-{start.sequence}",
                judged={"repo": task.repo, "sha": start.sha},
                fact={"digest": start.digest, "sha": start.sha},
            )
        return added

    def _task(self, work_item: WorkItem, *, title: str, task_id: TaskId | None = None) -> Task | None:
        """The task by its number, made anew where it was filed after the backup; None where it is nobody's here."""
        try:
            return tasks.by_work_item(self._tx, work_item)
        except NotFound:
            for one in self._survey.found.values():
                if _number(work_item, one) is not None:
                    task = restored.add_task(self._tx, one.repo.name, work_item, title, task_id)
                    data = {"title": task.title, "restored": True}
                    events.append(self._tx, EventType.TASK_CREATED, Actor.OPERATOR, task=task, data=data)
                    return task
        return None

    def _take_out(self, repo: RepoName) -> None:
        """Tell every task that is open, and those just made, to wait; nothing new is begun for one before it has."""
        why = f"{self._reason} (accepted by {self._person}); look at what has happened since, then decide about it"
        for known in tasks.every_open(self._tx, repo):
            task = tasks.held_still(self._tx, known.id)
            restored.cancel_queued(self._tx, task.id, "the database or the forge was restored")
            signal = Signal(RESTORED, task.stage, task.round, None, self._person, why)
            key = f"restored:{self._token}:{task.id}"
            mail.receive(self._tx, task, signal, source="operator", dedup_key=key)


def told(survey: Survey) -> dict[str, object]:
    """A survey for people."""
    return {
        "closed": bool(survey.found),
        "repositories": [
            {
                "repo": repo,
                "cause": found.finding.cause if found.finding is not None else None,
                "reason": found.finding.reason if found.finding is not None else "closed with the others",
                "merges": [
                    {"work_item": seen.work_item, "sha": seen.sha, "title": seen.title}
                    for seen in found.merged
                ],
                "candidates": [{"work_item": seen.work_item, "sha": seen.sha} for seen in found.candidates],
                "lost": found.lost,
                "wait_for_a_person": [task.work_item for task in found.unfinished],
                "baseline": _baseline(found),
            }
            for repo, found in survey.found.items()
        ],
        "starts": [
            {
                "start": one.name,
                "work_item": one.start.work_item if one.start is not None else None,
                "kind": one.start.kind if one.start is not None else None,
                "by": one.claim.by if one.claim is not None else None,
            }
            for one in survey.starts
        ],
        "runs": list(survey.runs),
    }


def _baseline(found: Found) -> str | None:
    """What the coverage baseline may have lost; it rises again with the next merge that is measured."""
    if not found.merged:
        return None
    stands = f"{found.baseline.percent:g} % of {found.baseline.merged_sha[:12]}" if found.baseline else "none"
    return f"the coverage baseline is {stands}; what {len(found.merged)} later merge(s) raised is not known"


def _number(work_item: WorkItem, found: Found) -> int | None:
    """A work item's number in a repository; None where it is none there that can have been given."""
    prefix, _, number = work_item.rpartition("-")
    return whole_number(number) if prefix == found.repo.prefix else None


def _numbers(found: Found) -> dict[str, object]:
    return {
        "cause": found.finding.cause if found.finding is not None else None,
        "merges": [seen.sha for seen in found.merged],
        "lost": found.lost,
        "baseline": _baseline(found),
    }


def _carried(start: DeployStart) -> dict[str, object]:
    """What the start's intent carried, as far as its record tells."""
    return {
        "environment": start.environment,
        "sha": start.sha,
        "generation": start.generation,
        "digest": start.digest,
        "artifact": str(start.artifact) if start.artifact is not None else None,
        "argv": list(start.argv),
        "env": dict(start.env),
        "timeout_s": start.timeout_s,
        "work_item": start.work_item,
        "installation": start.installation,
    }


def _prepared(start: DeployStart) -> dict[str, object]:
    """The undo that was drawn with a deploy of ourselves: until it is performed or called off nothing is done."""
    if start.undo is None:
        return {}
    undo = start.undo.start
    prepared = PreparedUndo(
        key=f"{undo.environment}:{undo.sha}:{undo.generation}",
        sequence=undo.sequence,
        token=undo.token,
        within_s=start.undo.within_s,
        judged={**_carried(undo), **_before(undo, None)},
    )
    return {CONDITIONAL_UNDO: prepared.stored()}


def _before(start: DeployStart, last: Intent | None) -> dict[str, object]:
    """What ran before a start, or was brought back by an undo: so that a later undo finds its way."""
    if start.kind is DeployKind.UNDO:
        return {
            "restored_sha": start.env.get("ORCH_PREVIOUS_SHA") or None,
            "restored_artifact": start.env.get("ORCH_PREVIOUS_ARTIFACT") or None,
            "reason": "undone before the restore",
        }
    if last is None:
        return {"previous_sha": None, "previous_artifact": None}
    if last.name is EffectName.DEPLOY_UNDO:
        return {
            "previous_sha": last.judged.get("restored_sha"),
            "previous_artifact": last.judged.get("restored_artifact"),
        }
    return {"previous_sha": last.judged.get("sha"), "previous_artifact": last.judged.get("artifact")}
