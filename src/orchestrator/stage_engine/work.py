"""Steps that gather: base and branch, an agent's commits, verdict documents, the candidate M, and the jobs."""

from dataclasses import replace

from orchestrator.db import effects, evidence, jobs, leases, slots, tasks
from orchestrator.db.database import Tx
from orchestrator.domain.errors import ConfigError, OutsideError
from orchestrator.domain.event import EventType
from orchestrator.domain.gate import Finding, GateResult
from orchestrator.domain.ids import Sha
from orchestrator.domain.job import JobKind, JobStatus
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Candidate, Hold, Holding
from orchestrator.gates.evidence import Evidence, gather
from orchestrator.gates.gated_sha import why_not_gated
from orchestrator.gates.quality_gates import QG_CHECKS
from orchestrator.rules.names import branch_name
from orchestrator.rules.transitions import WRITTEN_BY, Step
from orchestrator.stage_engine.acts import Acts
from orchestrator.stage_engine.broken import UNDO_WAITS
from orchestrator.stage_engine.clean_history import without_secret_history
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.plans import candidate_of
from orchestrator.stage_engine.serial_gate import slots_needed
from orchestrator.stage_engine.situation import Outcome, Situation, Tools
from orchestrator.stage_engine.ways_back import WaysBack
from orchestrator.work_items.documents import folder
from orchestrator.work_items.reading import DocumentError
from orchestrator.work_items.verdict_documents import (
    parse_review_verdict,
    parse_staging_log,
    parse_test_report,
)
from orchestrator.workspace.candidate import Conflict, build_candidate, candidate_message

MAX_DOCUMENT_BYTES = 1024 * 1024


class Work:
    """Handlers of the gathering steps; each ends in one commit or in a hold."""

    def __init__(self, tools: Tools, moves: Moves, back: WaysBack, acts: Acts) -> None:
        self._tools = tools
        self._moves = moves
        self._back = back
        self._acts = acts

    def branch(self, at: Situation, step: Step) -> Outcome:
        """Fix the commit the task starts from, its branch, and with it the configuration that will judge it."""
        forge, clone, task = at.place.forge, at.place.clone, at.task
        clone.fetch()
        base = forge.tip(forge.default_branch)
        if base is None:
            reason = f"{task.repo} has no commit on {forge.default_branch} yet: push a first one"
            return self._moves.hold(at, Hold.BLOCKED, reason)
        try:
            self._tools.configs.of(task.repo, base)
        except ConfigError as error:
            return self._moves.hold(at, Hold.BLOCKED, str(error))
        name = branch_name(task.work_item, task.title)

        def also(tx: Tx) -> None:
            tasks.set_branch(tx, task.id, name, base)

        return self._moves.mark(at, step, {"base": base, "branch": name}, also=also)

    def job(self, at: Situation, step: Step) -> Outcome:
        """See to it that the step's job exists; a finished one is marked by whoever finished it."""
        kind = JobKind(step.what)
        with self._tools.database.read() as tx:
            found = jobs.of_step(tx, at.task, kind)
        if found is not None and found.status is JobStatus.DONE:
            return Outcome.MOVED  # it ended after this look had begun: the next one sees its mark
        if found is not None and found.status is JobStatus.FAILED:
            reason = f"{kind} failed {found.attempts} times: {found.error or 'no reason was given'}"
            return self._moves.hold(at, Hold.ESCALATED, reason)
        return self._moves.enqueue(at, kind, subject=self.subject(at, kind))

    def harvest(self, at: Situation, step: Step) -> Outcome:
        """Take the agent's commits over into the ledger. What is wrong with them is the gate's business."""
        task = at.task
        expected = _head(at)
        lost = self._lost_workspace(at)
        harvest = at.place.workspaces.harvest(task.work_item, task.base_sha or expected, expected)
        findings = [str(finding) for finding in (*lost, *harvest.problems)]
        head = without_secret_history(at, harvest.head, self._tools.secrets)

        def also(tx: Tx) -> None:
            tasks.set_head(tx, task.id, head)
            if harvest.leftover is not None:
                evidence.add_own_commit(tx, task, harvest.leftover)

        facts: dict[str, object] = {"head": head, "findings": findings, "leftover": harvest.leftover}
        return self._moves.mark(at, step, facts, also=also)

    def record(self, at: Situation, step: Step) -> Outcome:
        """Take a verdict document over. One that is missing, unreadable or about another commit is asked for again."""
        name, task = step.what, at.task
        wanted = self._judged_sha(at, name)
        path = f"{folder(task.work_item)}/{name}"
        try:
            if lost := self._lost_workspace(at):
                raise DocumentError(lost)
            data = at.place.workspaces.read_file(task.work_item, path, MAX_DOCUMENT_BYTES)
            if data is None:
                raise DocumentError([Finding("the document was not written", file=path)])
            _check_subject(name, path, data, wanted)
        except DocumentError as error:
            return self._again(at, name, error.findings)
        except OutsideError as error:
            return self._again(at, name, (Finding(str(error), file=path),))
        outcome = self._take_over(at, step, name, path, data, wanted)
        # Only now: it was the one copy, and an agent is not paid twice for what a crash here would lose.
        at.place.workspaces.reset_to(task.work_item, _head(at))
        return outcome

    def _take_over(
        self, at: Situation, step: Step, name: str, path: str, data: bytes, wanted: str
    ) -> Outcome:
        task = at.task
        if name == "14-staging-log.md":

            def keep(tx: Tx) -> None:
                evidence.keep_document(tx, task, name, wanted, data)
                tasks.set_work_home(tx, task.id, None)

            outcome = self._moves.mark(at, step, {"subject": wanted}, also=keep)
            self._tools.hand_on(task.id)
            return outcome
        message = f"{task.work_item}: {name} of round {task.round}\n"
        sha = at.place.clone.commit_files(_head(at), {path: data}, message)

        def also(tx: Tx) -> None:
            evidence.add_own_commit(tx, task, sha)
            tasks.set_head(tx, task.id, sha)

        return self._moves.mark(at, step, {"commit": sha, "subject": wanted}, also=also)

    def candidate(self, at: Situation, step: Step) -> Outcome:
        """Build M on main's tip as it is now (DESIGN §3)."""
        forge, clone, task = at.place.forge, at.place.clone, at.task
        clone.fetch()
        main = forge.tip(forge.default_branch)
        head = _head(at)
        void = self._why_void(at, head)
        if void is not None or main is None:
            reason = "the verdicts are void: the branch has changed since" if void else "main has vanished"
            return self._back.reject(at, reason, brief=str(void or reason))
        if (changed := self._why_queue_again(at, main)) is not None:
            return changed
        with self._tools.database.write() as tx:
            leases.check(tx, at.lease)
            sequence, installation = effects.next_sequence(tx)
        nonce = self._tools.entropy.token(16)
        message = candidate_message(task.work_item, task.title, nonce, installation, sequence)
        built = build_candidate(clone, main=main, head=head, message=message)
        if isinstance(built, Conflict):
            files = ", ".join(built.files)
            brief = (
                f"The branch conflicts with {forge.default_branch} at {main} in: {files}. "
                f"Merge that commit into your branch (git merge {main}) and resolve the conflicts."
            )
            return self._back.reject(at, f"conflicts with {forge.default_branch} in {files}", brief=brief)
        fence = self._tools.entropy.token(16)
        new = Candidate(task.id, task.round, built.sha, built.tree, main, head, nonce, sequence, fence)

        def also(tx: Tx) -> None:
            evidence.add_candidate(tx, new)

        facts: dict[str, object] = {"candidate": new.sha, "main": main, "head": head}
        return self._moves.mark(at, step, facts, event=EventType.CANDIDATE_BUILT, also=also)

    def gate(self, at: Situation, step: Step) -> Outcome:
        """Judge, and pass, send back or wait."""
        seen = self.evidence(at)
        result = QG_CHECKS[step.what](seen)
        self._tools.waypoints.reach(f"{step.what}.judged", task=at.task.id, verdict=result.verdict)
        if result.passed:
            facts = {**result.evidence, "verdict": result.verdict.value, "reason": result.reason}
            return self._moves.mark(at, step, facts, event=EventType.GATE_JUDGED)
        if result.verdict == "wait":
            why = Hold.FROZEN if result.evidence.get("frozen") else Hold.BLOCKED
            return self._moves.hold(at, why, result.reason)
        if UNDO_WAITS not in at.passed:  # told already: a look that waits adds nothing to the task's story
            self._moves.judged(at, step.what, result)
        if at.task.stage is Stage.DEPLOY:
            return self._acts.broken(at, result.reason)
        target = result.evidence.get("target")
        return self._back.reject(
            at,
            _first_line(result),
            brief=result.brief(),
            target=target if isinstance(target, Stage) else None,
        )

    def evidence(self, at: Situation) -> Evidence:
        """What a gate may look at, read now."""
        if (head := at.task.head_sha or at.task.base_sha) is not None:
            at.place.clone.want(head)
        with self._tools.database.read() as tx:
            fresh = tasks.get(tx, at.task.id)
            seen = gather(tx, fresh, config=at.config, clone=at.place.clone, secrets=self._tools.secrets)
        if fresh.stage is not Stage.DEPLOY or seen.candidate is None:
            return seen
        return replace(seen, landed=at.place.forge.landed([seen.candidate]))

    def _lost_workspace(self, at: Situation) -> list[Finding]:
        """Make the task's workspace anew where it is gone (a restore brings back a task that had been tidied up after):
        what the agent has left there is lost, and is asked for again."""
        workspaces, task = at.place.workspaces, at.task
        if workspaces.path(task.work_item) is not None or task.branch is None:
            return []
        workspaces.prepare(task.work_item, task.title, task.branch, _head(at))
        return [Finding("The workspace was gone, and with it what was written there last. It was made anew.")]

    def _again(self, at: Situation, name: str, findings: tuple[Finding, ...]) -> Outcome:
        kind = WRITTEN_BY[name]
        with self._tools.database.read() as tx:
            done = [
                job
                for job in jobs.of_task(tx, at.task.id)
                if (job.stage, job.round) == (at.task.stage, at.task.round)
            ]
        times = sum(job.kind is kind for job in done)
        brief = "\n".join([f"{name} was not accepted:", *(f"- {finding}" for finding in findings)])
        if times >= at.settings.budget.max_attempts:
            return self._moves.hold(
                at, Hold.ESCALATED, f"{kind} did not deliver a usable {name} in {times} runs: {brief}"
            )
        return self._moves.enqueue(at, kind, subject=self.subject(at, kind), brief=brief)

    def subject(self, at: Situation, kind: JobKind) -> str | None:
        """What a job of this kind is about now."""
        if kind in (JobKind.REVIEWER, JobKind.TESTER):
            return at.task.gated_sha
        if at.task.stage in (Stage.DEPLOY_STAGING, Stage.DEPLOY):
            with self._tools.database.read() as tx:
                return candidate_of(tx, at).sha
        return at.task.head_sha

    def _judged_sha(self, at: Situation, name: str) -> str:
        return self.subject(at, WRITTEN_BY[name]) or ""

    def _why_queue_again(self, at: Situation, main: Sha) -> Outcome | None:
        """Main's configuration has changed since the slots were taken: it is broken, or asks for other places."""
        try:
            config = self._tools.configs.of(at.task.repo, main)
        except ConfigError as error:
            return self._back.requeue(at, str(error), hold=Holding(Hold.BLOCKED, str(error)))
        with self._tools.database.read() as tx:
            held = slots.held_by(tx, at.task.id)
        if sorted(held) != sorted(slots_needed(at.task, config)):
            return self._back.requeue(at, "main's configuration names another staging now")
        return None

    def _why_void(self, at: Situation, head: Sha) -> Finding | None:
        tip = at.place.forge.tip(at.task.branch or "")
        if tip != head:
            return Finding(
                f"the branch was moved to {tip} by somebody else; it was judged at {head}. Merge {tip}."
            )
        with self._tools.database.read() as tx:
            own = evidence.own_commits(tx, at.task.id)
        return why_not_gated(
            at.place.clone, gated=at.task.gated_sha or head, head=head, own=own, work_item=at.task.work_item
        )


def _check_subject(name: str, path: str, data: bytes, wanted: str) -> None:
    if name == "12-review.md":
        key, named = "gated_sha", parse_review_verdict(data, path).gated_sha
    elif name == "13-test-report.md":
        key, named = "gated_sha", parse_test_report(data, path).gated_sha
    else:
        key, named = "candidate_sha", parse_staging_log(data, path).candidate_sha
    if named != wanted:
        raise DocumentError(
            [Finding(f"{key} is {named}; expected {wanted}, the commit to be judged", file=path)]
        )


def _head(at: Situation) -> Sha:
    head = at.task.head_sha or at.task.base_sha
    if head is None:
        raise OutsideError(f"{at.task.work_item} has no branch yet.")
    return head


def _first_line(result: GateResult) -> str:
    return f"{result.reason} {result.findings[0]}" if result.findings else result.reason
