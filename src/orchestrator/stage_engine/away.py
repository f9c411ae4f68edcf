"""Whose turn it is where some of a task's work lies in one state folder alone: what an agent has left in its workspace,
until the branch is at the forge or the database has the document.

Only a process of that home takes it over, judges it and pushes it. From the others a person's word gets through all the
same. Where the home is a worker's of which nothing is heard any more, the work is given up for lost: what was begun
with it is settled or revoked first (law 4), then the agent that did it is asked once more, on what the forge has.
"""

from collections.abc import Callable
from dataclasses import replace

from orchestrator.db import events, evidence, homes, leases, mail, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.effect import Cause, GivingUp
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import Sha
from orchestrator.domain.job import JobKind, JobStatus
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.rules.transitions import STAGE_STEPS, Step, StepKind, next_step
from orchestrator.stage_engine.acts import Acts
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.resolutions import Resolutions
from orchestrator.stage_engine.signals import Signals
from orchestrator.stage_engine.situation import Outcome, Situation, Tools
from orchestrator.stage_engine.work import Work

# In which a worker goes on after its own run up to the stage's end: git, the forge and the database are all they need.
FINALISED_BY_WORKERS = frozenset(
    {Stage.ANALYSIS, Stage.ARCHITECTURE, Stage.DEVELOPMENT, Stage.REVIEW, Stage.TESTING}
)


class Away:
    """Leaves to others what is theirs, and takes back what is lost."""

    def __init__(
        self,
        tools: Tools,
        moves: Moves,
        acts: Acts,
        signals: Signals,
        resolutions: Resolutions,
        work: Work,
    ) -> None:
        self._tools = tools
        self._moves = moves
        self._acts = acts
        self._signals = signals
        self._resolutions = resolutions
        self._work = work

    def is_away(self, task: Task) -> bool:
        """Whether some of its work lies where this process does not see it."""
        return task.work_home not in (None, self._tools.reach.home)

    def leaves(self, task: Task, owner: Actor) -> bool:
        """Whether there is nothing for this process to look at."""
        reach = self._tools.reach
        if reach.worker:
            of_its_run = owner is Actor.MONITOR and task.stage in FINALISED_BY_WORKERS
            return task.work_home != reach.home and not (task.work_home is None and of_its_run)
        if task.work_home is None or not self.is_away(task):
            return False
        with self._tools.database.read() as tx:
            if mail.waiting_signals(tx, task.id):
                return False
        return not reach.lost(task.work_home)

    def look(self, at: Situation) -> Outcome:
        """Deal with what needs no look at the work; take it back where it is lost."""
        home = at.task.work_home
        lost = home is not None and self._tools.reach.lost(home)
        if at.unsettled:
            resolved = self._resolutions.handle(at)
            if resolved is not None:
                return resolved
            turned = self._signals.waiting_cancel(at)
            if turned is None and lost:
                turned = GivingUp(Cause.AGAIN, "what was to be pushed is lost with its worker")
            if turned is None:
                return Outcome.ELSEWHERE
            return self._acts.drive(at, at.unsettled[0], cancelled=turned)
        said = self._signals.handle(at)
        if said is not None:
            return said
        return self._take_back(at) if lost else Outcome.ELSEWHERE

    def hand_over(self, at: Situation) -> Outcome:
        """A job is queued or runs. Where no agents run in our folder, one that waits for it waits for everybody, if the
        forge has the work: so it is after an upgrade, and where agents have been left to workers since."""
        job, task = at.active, at.task
        waits = job is not None and job.status is JobStatus.QUEUED and job.kind.agent
        if self._tools.reach.agents or not waits or task.work_home is None or task.branch is None:
            return Outcome.WORKING
        tip = at.place.forge.tip(task.branch)
        if tip != task.head_sha and not (tip is None and task.head_sha == task.base_sha):
            return Outcome.WORKING
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            tasks.set_work_home(tx, task.id, None)
        return Outcome.WORKING

    def _take_back(self, at: Situation) -> Outcome:
        """What the forge has is where the task stands; what was written since is written anew."""
        if at.active is not None and at.active.status is JobStatus.RUNNING:
            return Outcome.ELSEWHERE  # first its run is given up: see the reaper
        head = self._head(at)
        step = next_step(at.task.stage, at.passed, at.has)
        kind = _written_by(at, step) if at.active is None and at.task.hold is not Hold.ESCALATED else None
        also = self._release(at, step, head)
        if kind is None:
            with self._tools.database.write() as tx:
                leases.check(tx, at.lease)
                also(tx)
            return Outcome.MOVED
        stands = replace(at, task=replace(at.task, head_sha=head))
        brief = "What was written last is lost with the machine it lay on. Do it again."
        return self._moves.enqueue(
            stands, kind, subject=self._work.subject(stands, kind), brief=brief, also=also
        )

    def _head(self, at: Situation) -> Sha | None:
        """The last head that is not lost."""
        head, clone = at.task.head_sha, at.place.clone
        if head is not None:
            clone.want(head)
            if clone.has(head):
                return head
        tip = at.place.forge.tip(at.task.branch) if at.task.branch is not None else None
        if tip is not None:
            clone.want(tip)
        return tip or at.task.base_sha

    def _release(self, at: Situation, step: Step | None, head: Sha | None) -> Callable[[Tx], None]:
        """Statements that make the task everybody's again, without the steps that rested on what is lost."""

        def release(tx: Tx) -> None:
            home = homes.get(tx, at.task.work_home) if at.task.work_home is not None else None
            if head is not None and head != at.task.head_sha:
                tasks.set_head(tx, at.task.id, head)
            for one in _since_the_agent(at.task.stage, step):
                if one.kind is not StepKind.JOB:
                    evidence.forget_step(tx, at.task, one.name)
            tasks.set_work_home(tx, at.task.id, None)
            data = {"lost": str(home) if home is not None else "a worker's home", "head": head}
            events.append(tx, EventType.NOTE, at.lease.owner, task=at.task, data=data)

        return release


def _written_by(at: Situation, step: Step | None) -> JobKind | None:
    """Whose work the step rests on; None where it has not been begun."""
    if step is None or step.kind is StepKind.JOB:
        return None
    agents = [one for one in _since_the_agent(at.task.stage, step) if one.kind is StepKind.JOB]
    return JobKind(agents[0].what) if agents else None


def _since_the_agent(stage: Stage, step: Step | None) -> list[Step]:
    """The steps of a stage before ``step``, from the last one on that an agent does."""
    steps = STAGE_STEPS[stage]
    before = list(steps[: steps.index(step)] if step in steps else steps)
    found = [n for n, one in enumerate(before) if one.kind is StepKind.JOB and JobKind(one.what).agent]
    return before[found[-1] :] if found else []
