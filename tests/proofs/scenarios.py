"""The scenarios: who meets whom, and where the task stands when they do."""

from collections.abc import Callable
from dataclasses import replace

from orchestrator.db import tasks
from orchestrator.domain.errors import OutsideError, RequestRefused
from orchestrator.domain.ids import TaskId
from orchestrator.domain.job import JobKind
from orchestrator.domain.lease import Actor
from orchestrator.domain.task import Task
from orchestrator.rules.transitions import (
    CONFIRM_DEPLOY,
    MERGE,
    PROMOTE,
    PUSH_CANDIDATE,
    START_PRODUCTION,
    START_STAGING,
    StepKind,
)
from tests.proofs.interleaving import Budget
from tests.proofs.memory_ledgers import MemoryLedger
from tests.proofs.memory_world import (
    CONFIG,
    REPO,
    STAGING,
    Installation,
    StopAt,
    Template,
    installed,
    new_template,
)
from tests.proofs.play import ActorSpec, Scenario, Script

FIRST, SECOND = TaskId(1), TaskId(2)
PRODUCTION_HEALTH = f"{StepKind.JOB}:{JobKind.PRODUCTION_HEALTH}"
STAGING_HEALTH = f"{StepKind.JOB}:{JobKind.STAGING_HEALTH}"
CANDIDATE = f"{StepKind.CANDIDATE}:merge"
CONFIRM = f"{StepKind.APPROVAL}:{CONFIRM_DEPLOY}"
CONFIRMED = CONFIG + "[approvals]\ndeploy = true\n"
STAGED = CONFIG + STAGING

Made = Callable[[MemoryLedger], Template]


# --- where it begins --------------------------------------------------------------------------------------------------


def standing_before(
    step: str | None = None, *, config: str = CONFIG, count: int = 1, sick: tuple[str, ...] = (), moved: bool = False
) -> Made:  # fmt: skip
    """The first task stands before a step; the others are tested and have not gone on.

    ``sick``: the first task's version does not keep well there. ``moved``: somebody has pushed to main since.
    """

    def make(ledger: MemoryLedger) -> Template:
        template = new_template(ledger, config=config, count=count)
        if step is not None:
            with installed(template, waypoints=StopAt(step)) as app:
                app.drive(FIRST, Actor.MONITOR, looks=30)
        template.outside.sick |= {(environment, "SMP-1") for environment in sick}
        if moved:
            template.outside.push_to_main("earlier")
        return template

    return make


def broken_after_its_merge(
    *, sick: tuple[str, ...] = (), fix_before: str = "", honours_token: bool = False
) -> Made:  # fmt: skip
    """The first task's deploy was undone, the repository is frozen; the second is tested, and ``sick`` or not."""

    def make(ledger: MemoryLedger) -> Template:
        template = new_template(ledger, count=2)
        template.outside.sick.add(("production", "SMP-1"))
        template.outside.environments.honours_token = honours_token
        with installed(template) as app:
            app.drive(FIRST, Actor.MONITOR, looks=30)
        template.outside.sick |= {("production", item) for item in sick}
        if fix_before:
            with installed(template, 98, waypoints=StopAt(fix_before)) as app:
                lend(app)
                app.drive(SECOND, Actor.MONITOR, looks=30)
        return template

    return make


# --- who acts ---------------------------------------------------------------------------------------------------------


def drives(owner: Actor, task: TaskId = FIRST, *, looks: int = 12) -> Script:
    """Look at a task, as monitor, reaper, reconciler, webhook and recovery all do."""
    return lambda app: tried(lambda: app.drive(task, owner, looks=looks))


def says(what: Callable[[Installation, Task], object], task: TaskId = FIRST, *, drive: bool = True) -> Script:
    """A person's word, and whoever is woken by it."""

    def script(app: Installation) -> object:
        with app.database.read() as tx:
            seen = tasks.get(tx, task)
        tried(lambda: what(app, seen))
        return tried(lambda: app.drive(task, Actor.WEBHOOK)) if drive else None

    return script


def tried(act: Callable[[], object]) -> object:
    """What a person or a daemon survives: a refusal, a failure outside."""
    try:
        return act()
    except (RequestRefused, OutsideError) as error:
        return error


def cancel(app: Installation, seen: Task) -> object:
    return app.operations.cancel(seen.work_item, person="Ann", reason="no longer wanted")


def approve(app: Installation, seen: Task) -> object:
    return app.operations.approve(seen.work_item, person="Ann")


def retry(app: Installation, seen: Task) -> object:
    return app.operations.retry(seen.work_item, person="Ann")


def lend(app: Installation) -> object:
    return tried(lambda: app.operations.lend(REPO, "SMP-2", person="Ann", reason="it mends it"))


def unfreeze(app: Installation) -> object:
    return tried(lambda: app.operations.unfreeze(REPO, person="Ann", reason="looked at"))


def pushes_to_main(app: Installation) -> object:
    return app.around.wire.act("outsider.push", lambda: app.around.outside.push_to_main("outsider"))


def pushes_to_branch(app: Installation) -> object:
    return app.around.wire.act(
        "outsider.push", lambda: app.around.outside.push_to_branch("orch/SMP-1", "outsider")
    )


def reaps(app: Installation) -> object:
    return tried(app.reaper.run_once)


def both(*scripts: Script) -> Script:
    """One after the other."""

    def script(app: Installation) -> object:
        return [each(app) for each in scripts]

    return script


MONITOR = ActorSpec("monitor", 1, drives(Actor.MONITOR))
RECONCILER = ActorSpec("reconciler", 4, drives(Actor.RECONCILER))
RECOVERY = ActorSpec("recovery", 3, drives(Actor.RECOVERY))
OUTSIDER = ActorSpec("outsider", 0, pushes_to_main)

BEFORE_THE_MERGE = standing_before(MERGE.name)
UNHEALTHY = standing_before(PRODUCTION_HEALTH, sick=("production",))

SCENARIOS = (
    Scenario(
        "merge: two owners, a late call", BEFORE_THE_MERGE, (MONITOR, RECONCILER), CONFIG,
        Budget(1, late=1), takeover=True, until=PROMOTE.name, late=("forge.merge",),
    ),
    Scenario(
        "merge: a cancel, a late call", BEFORE_THE_MERGE, (MONITOR, ActorSpec("person", 2, says(cancel))), CONFIG,
        Budget(1, late=1), takeover=True, until=PROMOTE.name, late=("forge.merge",),
    ),
    Scenario(
        "merge: main moves, two owners, a late call", BEFORE_THE_MERGE, (MONITOR, RECONCILER, OUTSIDER), CONFIG,
        Budget(1, late=1), takeover=True, until=CANDIDATE, late=("forge.merge",),
    ),
    Scenario(
        "merge: main has moved, two give up", standing_before(MERGE.name, moved=True), (MONITOR, RECONCILER), CONFIG,
        Budget(2, late=1), takeover=True, until=CANDIDATE, late=("forge.merge", "forge.revoke_merge"),
    ),
    Scenario(
        "merge: the branch moves", BEFORE_THE_MERGE,
        (MONITOR, RECONCILER, ActorSpec("outsider", 0, pushes_to_branch)), CONFIG,
        Budget(1, late=1), takeover=True, until=PROMOTE.name, late=("forge.merge",),
    ),
    Scenario(
        "merge: crash, lost answers, living owners", BEFORE_THE_MERGE, (MONITOR, RECONCILER), CONFIG,
        Budget(1, crashes=1, lost=1), until=PROMOTE.name,
    ),
    Scenario(
        "merge: one process, monitor and reconciler", BEFORE_THE_MERGE,
        (MONITOR, replace(RECONCILER, process=MONITOR.process)), CONFIG, Budget(1, crashes=1), until=PROMOTE.name,
    ),
    Scenario(
        "candidate: pushed by two, a cancel", standing_before(PUSH_CANDIDATE.name),
        (MONITOR, ActorSpec("person", 2, says(cancel))), CONFIG,
        Budget(1, late=1, coins=1), takeover=True, until=MERGE.name, late=("forge.prepare_merge", "store.publish"),
    ),
    Scenario(
        "production: two owners, slow and late starts", standing_before(START_PRODUCTION.name), (MONITOR, RECONCILER),
        CONFIG, Budget(1, late=1, slow=1), takeover=True, late=("deploy.start",),
    ),
    Scenario(
        "production unhealthy: two undo", UNHEALTHY, (MONITOR, RECONCILER), CONFIG,
        Budget(1, late=1, slow=1), takeover=True, late=("deploy.start",),
    ),
    Scenario(
        "production unhealthy: crash and lost answers", UNHEALTHY, (MONITOR, RECONCILER), CONFIG,
        Budget(1, crashes=1, lost=1),
    ),
    Scenario(
        "production: the gate changes its mind", standing_before(PRODUCTION_HEALTH), (MONITOR, RECONCILER), CONFIG,
        Budget(1, coins=1), takeover=True,
    ),
    Scenario(
        "unhealthy: unfrozen and started again", UNHEALTHY,
        (MONITOR, ActorSpec("person", 2, both(unfreeze, says(retry)))), CONFIG, Budget(2), takeover=True,
    ),
    Scenario(
        "two tasks: one unhealthy, one waits, unfrozen",
        standing_before(PRODUCTION_HEALTH, count=2, sick=("production",)),
        (MONITOR, ActorSpec("reconciler", 2, drives(Actor.RECONCILER, SECOND)), ActorSpec("person", 0, unfreeze)),
        CONFIG, Budget(1),
    ),
    Scenario(
        "two tasks: one unhealthy, the slot lent too early",
        standing_before(PRODUCTION_HEALTH, count=2, sick=("production",)),
        (MONITOR, ActorSpec("person", 2, both(lend, drives(Actor.WEBHOOK, SECOND)))), CONFIG, Budget(1, slow=1),
    ),
    Scenario(
        "the fix: lent, delivered, closes what was broken", broken_after_its_merge(),
        (ActorSpec("person", 2, both(lend, drives(Actor.WEBHOOK, SECOND, looks=20))), MONITOR, RECONCILER),
        CONFIG, Budget(1),
    ),
    Scenario(
        "the fix: a target that compares tokens",
        broken_after_its_merge(fix_before=START_PRODUCTION.name, honours_token=True),
        (ActorSpec("reconciler", 2, drives(Actor.RECONCILER, SECOND)), MONITOR), CONFIG, Budget(1, slow=1),
    ),
    Scenario(
        "the fix: on trial", broken_after_its_merge(fix_before=PRODUCTION_HEALTH),
        (MONITOR, ActorSpec("reconciler", 2, drives(Actor.RECONCILER, SECOND))), CONFIG, Budget(1, coins=1),
    ),
    Scenario(
        "the fix: unhealthy as well", broken_after_its_merge(sick=("SMP-2",)),
        (ActorSpec("person", 2, both(lend, drives(Actor.WEBHOOK, SECOND, looks=20))), MONITOR),
        CONFIG, Budget(2), takeover=True,
    ),
    Scenario(
        "the fix: cancelled", broken_after_its_merge(),
        (
            ActorSpec("person", 2, both(lend, says(cancel, SECOND))),
            ActorSpec("reconciler", 3, drives(Actor.RECONCILER, SECOND)), MONITOR,
        ), CONFIG, Budget(1), takeover=True, until=MERGE.name,
    ),
    Scenario(
        "two tasks: both want the slots", standing_before(count=2),
        (MONITOR, ActorSpec("reconciler", 2, drives(Actor.RECONCILER, SECOND))), CONFIG, Budget(1), until=MERGE.name,
    ),
    Scenario(
        "confirmed: main moves under the confirmation", standing_before(CONFIRM, config=CONFIRMED),
        (
            ActorSpec("person", 2, says(approve)), ActorSpec("another person", 0, says(approve, drive=False)),
            OUTSIDER, RECONCILER,
        ), CONFIRMED, Budget(1),
    ),
    Scenario(
        "staging: late start, a cancel", standing_before(START_STAGING.name, config=STAGED),
        (MONITOR, ActorSpec("person", 2, says(cancel))), STAGED,
        Budget(1, late=1, slow=1), takeover=True, until=MERGE.name, late=("deploy.start",),
    ),
    Scenario(
        "a job's owner dies: reaper and recovery", standing_before(PRODUCTION_HEALTH),
        (MONITOR, ActorSpec("reaper", 2, both(reaps, drives(Actor.REAPER))), RECOVERY), CONFIG,
        Budget(1, crashes=1),
    ),
)  # fmt: skip
