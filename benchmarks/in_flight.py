"""What a dead process has left in the middle of things, for ``./dev bench recovery``: running jobs, leases, intended
effects. Repository, forge, run folders and rows are real, and written as the product writes them; what cannot be had
ten thousand times is a supervisor: all agents that live are told to be watched by the same living process.

Of a thousand tasks in flight nearly all have an agent at work, for that is where a task spends its time.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from orchestrator.agents.agent import Launch, Limits
from orchestrator.agents.run_folder import RunFolder
from orchestrator.agents.run_records import StartedRecord, Starter
from orchestrator.db import effects, evidence, jobs, leases, repositories, tasks
from orchestrator.db.database import Tx
from orchestrator.db.jobs import NewJob
from orchestrator.domain.effect import EffectName
from orchestrator.domain.ids import BootId, RepoName, Sha
from orchestrator.domain.job import JobKind, RunOutcome, RunResult, Usage
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task, Ticket
from orchestrator.rules.names import branch_name
from orchestrator.rules.transitions import OPEN_PR, PUSH_BRANCH, STAGE_STEPS
from orchestrator.runtime.clock import stamp
from orchestrator.runtime.process import ProcessIdentity
from orchestrator.wiring import App

REPO = RepoName("sample")
DEAD = BootId("the-process-that-was-killed")
BATCH = 500
COMMIT = """\
commit refs/bench/{number}
mark :{number}
committer Agent <agent@example.org> 1767225600 +0000
data 6
Change
from {base}
M 100644 inline change-{number}.txt
data 6
change
"""


class Kind(StrEnum):
    """What was going on for a task."""

    AGENT = "an agent at work"
    ENDED = "an agent that ended meanwhile"
    CHECK = "a check at work"
    PUSH = "a push not made yet"
    PUSHED = "a push made and not settled"


SHARES: Mapping[Kind, int] = {  # of a thousand
    Kind.AGENT: 950,
    Kind.CHECK: 30,
    Kind.PUSH: 10,
    Kind.PUSHED: 10,
}


@dataclass(frozen=True)
class Lives:
    """Processes: the one that was killed, a supervisor that lives, one that has ended."""

    killed: ProcessIdentity
    supervisor: ProcessIdentity


def mixed(count: int) -> Sequence[Kind]:
    """So many tasks in realistic shares, spread evenly."""
    thousand = [kind for kind, share in SHARES.items() for _ in range(share)]
    return [thousand[(number * 619) % 1000] for number in range(count)]  # 619 and 1000 have no common factor


def leave(app: App, lives: Lives, kinds: Sequence[Kind]) -> None:
    """Write one task of each kind."""
    place = app.places.of(REPO)
    base = place.forge.tip(place.forge.default_branch)
    assert base is not None
    place.clone.fetch()
    heads = _commits(place.clone.path, base, range(len(kinds)))
    with app.database.write() as tx:
        leases.register_process(tx, DEAD, app.outside.host, lives.killed, "serve", app.registration.switches)
    pushed: dict[str, int] = {}
    numbered = list(enumerate(kinds))
    for start in range(0, len(numbered), BATCH):
        with app.database.write() as tx:
            for number, kind in numbered[start : start + BATCH]:
                task = _task(tx, base)
                if kind in (Kind.AGENT, Kind.ENDED):
                    _agent(app, tx, task, lives, ended=kind is Kind.ENDED)
                elif kind is Kind.CHECK:
                    _check(tx, task, heads[number])
                else:
                    _intended(tx, task, heads[number], lives)
                    if kind is Kind.PUSHED:
                        pushed[str(task.branch)] = number
    _push(Path(place.forge.fetch_url()), place.clone.path, pushed)


def _task(tx: Tx, base: Sha) -> Task:
    work_item = repositories.next_work_item(tx, REPO)
    added = tasks.add(tx, REPO, work_item, Ticket("Change something"))
    assert added is not None
    assert tasks.update_task_stage_cas(tx, added.id, Stage.CREATED, Stage.DEVELOPMENT, epoch=added.epoch)
    tasks.set_branch(tx, added.id, branch_name(work_item, added.title), base)
    return tasks.get(tx, added.id)


def _agent(app: App, tx: Tx, task: Task, lives: Lives, *, ended: bool) -> None:
    jobs.enqueue(tx, task, NewJob(JobKind.DEVELOPER))
    job = jobs.claim_next_job(tx, DEAD)
    assert job is not None and job.task_id == task.id
    folder = app.folders.runs / f"{task.work_item}-{job.id}-1-bench"
    first = app.folders.home / f"first-{ended}"  # of thousands: each file of the first one was synced
    if not first.exists():
        _run_folder(app, RunFolder(first), lives, ended=ended)
    shutil.copytree(first, folder)
    jobs.add_run(tx, job, agent="command", model=None, run_dir=str(folder))


def _run_folder(app: App, folder: RunFolder, lives: Lives, *, ended: bool) -> None:
    folder.create()
    folder.write_launch("bench", Launch("command", ("sleep", "600"), {}, folder.path), Limits())
    supervisor = lives.killed if ended else lives.supervisor
    now = stamp(app.clock.utc())
    folder.write_spawned(supervisor)
    assert folder.claim(StartedRecord(Starter.CHILD, now, app.outside.host, supervisor))
    folder.beat(now)
    folder.adopted_file.touch()
    if ended:
        folder.write_result(RunResult(RunOutcome.DONE, 0, Usage(), "Done."))


def _check(tx: Tx, task: Task, head: Sha) -> None:
    _passed(tx, task, JobKind.CI)
    tasks.set_head(tx, task.id, head)
    jobs.enqueue(tx, tasks.get(tx, task.id), NewJob(JobKind.CI))
    job = jobs.claim_next_job(tx, DEAD)
    assert job is not None and job.task_id == task.id


def _intended(tx: Tx, task: Task, head: Sha, lives: Lives) -> None:
    """The dead process had the task's lease, and was about to set its branch at the forge."""
    _passed(tx, task, PUSH_BRANCH.what)
    tasks.set_head(tx, task.id, head)
    lease = Lease(task.id, Actor.MONITOR, DEAD, task.epoch + 1, task.stage)
    assert leases.acquire(tx, lease, lives.killed.pid, None)
    judged = {
        "repo": REPO,
        "branch": task.branch,
        "sha": head,
        "expected": None,
        "step": PUSH_BRANCH.name,
    }
    effects.intend(
        tx, lease, EffectName.PUSH, f"{task.branch}:absent..{head}", task.round, token="t", judged=judged
    )


def _passed(tx: Tx, task: Task, until: str) -> None:
    """Every step of the stage before this one is behind the task."""
    for step in STAGE_STEPS[task.stage]:
        if step.what == until:
            return
        evidence.mark_step(tx, task, step.name, {"head": task.base_sha})
        if step == OPEN_PR:
            tasks.set_pr(tx, task.id, int(task.id))


def _commits(clone: Path, base: Sha, numbers: range) -> Mapping[int, Sha]:
    """A commit for each number, in the clone alone."""
    marks = clone / "bench-marks"
    text = "".join(COMMIT.format(number=number + 1, base=base) for number in numbers)
    _git(clone, "fast-import", "--quiet", f"--export-marks={marks}", said=text)
    return dict(_marked(marks))


def _marked(marks: Path) -> Iterator[tuple[int, Sha]]:
    for line in marks.read_text().splitlines():
        mark, sha = line.split()
        yield int(mark.removeprefix(":")) - 1, Sha(sha)


def _push(forge: Path, clone: Path, pushed: Mapping[str, int]) -> None:
    specs = "".join(f"refs/bench/{number + 1}:refs/heads/{branch}\n" for branch, number in pushed.items())
    if specs:
        _git(forge, "fetch", "--quiet", "--stdin", str(clone), said=specs)


def _git(folder: Path, *args: str, said: str) -> None:
    done = subprocess.run(
        ["git", "--git-dir", folder, *args], input=said.encode(), check=False, capture_output=True
    )
    if done.returncode:
        raise SystemExit(f"git {args[0]} failed: {done.stderr.decode(errors='replace')}")
