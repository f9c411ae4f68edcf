"""A person's "go on": bounds begin anew, and what had failed is done once more.

After the merge this means a new start of the same M, with a generation of its own; where a later M is on main nothing
older is started any more, and production is looked at again instead (DESIGN §3, "Broken after the merge").
"""

from collections.abc import Callable

from orchestrator.db import effects, jobs, lanes, leases, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.effect import EffectName, Intent
from orchestrator.domain.errors import ConfigError
from orchestrator.domain.ids import Sha
from orchestrator.domain.job import Job, JobKind, JobStatus
from orchestrator.domain.stage import Stage
from orchestrator.effects import judged
from orchestrator.effects.merge import why_not_as_tested
from orchestrator.rules.transitions import WRITTEN_BY, EdgeKind, Step, StepKind, next_step
from orchestrator.stage_engine import serial_gate
from orchestrator.stage_engine.closing import Closing
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.not_now import NotNow
from orchestrator.stage_engine.situation import Outcome, Situation, Tools, program_of


class Retries:
    """Lets held tasks go on."""

    def __init__(self, tools: Tools, moves: Moves) -> None:
        self._tools = tools
        self._moves = moves
        self._closing = Closing(tools, moves)

    def go_on(self, at: Situation, answered: Callable[[Tx], None]) -> Outcome:
        """Release the task in one commit with the answer to the person.

        :raises NotNow: it cannot go on; nothing was written.
        """
        # Before the merge main's present configuration takes the place of one that is not usable any more.
        renewed = at.unusable is not None and at.task.stage is not Stage.DEPLOY
        step = next_step(at.task.stage, at.passed, frozenset[str]() if renewed else at.has)
        with self._tools.database.read() as tx:
            failed = self._failed_job(tx, at, step)
            undone = self._is_undone(tx, at)
        to_be_looked_at = (
            step is not None and step.kind is StepKind.JOB
        )  # as after a restore: nothing has failed
        if at.task.stage is Stage.DEPLOY and (undone or (failed is None and not to_be_looked_at)):
            return self._after_the_merge(at, answered)
        try:
            judged_by = self._present_configuration(at)
        except ConfigError as error:
            raise NotNow(str(error)) from error
        config = at.config if judged_by is None else self._tools.configs.of(at.task.repo, judged_by)
        with self._tools.database.write() as tx:
            self._release(tx, at, answered)
            if at.task.stage is Stage.DEPLOY and effects.merged_since(tx, at.task.id) is None:
                # A restore has left it none; what is ill is to be undone, and frozen.
                self._take_places(tx, at)
            if judged_by is not None:
                tasks.set_config(tx, at.task.id, judged_by)
            if failed is not None:
                again = jobs.NewJob(
                    failed.kind,
                    failed.subject,
                    failed.brief,
                    failed.max_attempts,
                    agent=program_of(failed.kind, config),
                )
                jobs.enqueue(tx, at.task, again)
            elif (waiting := at.active) is not None and waiting.status is JobStatus.QUEUED:
                program = program_of(waiting.kind, config)
                lanes.enter(tx, at.task.id, waiting.id, waiting.stage, program)
        return Outcome.MOVED

    def _present_configuration(self, at: Situation) -> Sha | None:
        """Main's tip, if the task is judged by a configuration: what a person corrected there counts from now on.

        :raises ConfigError: it is not usable as it stands.
        """
        if at.task.base_sha is None or at.task.stage in (Stage.DEPLOY_STAGING, Stage.DEPLOY):
            return None
        at.place.clone.fetch()
        main = at.place.forge.tip(at.place.forge.default_branch)
        if main is not None:
            self._tools.configs.of(at.task.repo, main)
        return main

    def _after_the_merge(self, at: Situation, answered: Callable[[Tx], None]) -> Outcome:
        with self._tools.database.read() as tx:
            superseded, fix = effects.merged_since(tx, at.task.id), effects.done_since(tx, at.task.id)
            merge = effects.applied(tx, at.task.id, EffectName.MERGE_PR)
        if not superseded:
            objection = _objection(merge) if merge is not None else None
            if objection is not None:
                raise NotNow(f"{objection}: that is never deployed; a fix is another ticket")
            return self._start_again(at, answered)
        if fix is None:
            raise NotNow(
                "what was merged since is not done yet; once it is, this is looked at again by itself"
            )

        def go(tx: Tx) -> None:
            answered(tx)
            tasks.forgive(tx, at.task.id)

        return self._closing.look_again(at, fix, go)

    def _start_again(self, at: Situation, answered: Callable[[Tx], None]) -> Outcome:
        def take(tx: Tx) -> None:
            self._take_places(tx, at)
            answered(tx)
            tasks.forgive(tx, at.task.id)

        reason = "a person had it started again"
        return self._moves.move(at, Stage.DEPLOY, EdgeKind.RENEW, reason=reason, before=take)

    def _take_places(self, tx: Tx, at: Situation) -> None:
        names = serial_gate.slots_of_deploy(at.task, at.settings)
        serial_gate.take_again(tx, at.task, names, at.lease.owner)

    def _release(self, tx: Tx, at: Situation, answered: Callable[[Tx], None]) -> None:
        leases.check(tx, at.lease)
        answered(tx)
        tasks.forgive(tx, at.task.id)
        tasks.release_hold(tx, at.task.id)

    def _is_undone(self, tx: Tx, at: Situation) -> bool:
        """Whether the last thing done in production was to undo this round's start: nothing is left to look at."""
        undo = effects.applied(tx, at.task.id, EffectName.DEPLOY_UNDO)
        if undo is None or undo.round != at.task.round:
            return False
        last = effects.last_start(tx, str(undo.judged["environment"]))
        return last is not None and last.sequence == undo.sequence

    def _failed_job(self, tx: Tx, at: Situation, step: Step | None) -> Job | None:
        """The job to be done once more: the one that failed, or whose document was not usable."""
        if step is None:
            return None
        if step.kind is StepKind.RECORD:
            return jobs.of_step(tx, at.task, WRITTEN_BY[step.what])
        if step.kind is not StepKind.JOB:
            return None
        last = jobs.of_step(tx, at.task, JobKind(step.what))
        return last if last is not None and last.status is JobStatus.FAILED else None


def _objection(merge: Intent) -> str | None:
    """What is wrong with what main shows of a settled merge."""
    return why_not_as_tested(judged.candidate(merge), merge.fact or {})
