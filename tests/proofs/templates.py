"""Installations that scenarios start from, made once by the product itself."""

from pathlib import Path

from orchestrator.db import slots
from orchestrator.domain.ids import RepoName
from orchestrator.domain.task import Ticket
from orchestrator.wiring import App
from tests.proofs.letters import ticket_of
from tests.proofs.lives import Ending, Life, Script, live
from tests.proofs.world import REPO, World
from tests.waiting import wait_until

DELIVERED = "delivered"  # one task is done, nothing else is there
TESTED = "tested"  # beside it two that were tested and will ask for the slots, their epochs far apart
TITLES = ("Second", "Third")


def make_templates(world: World, folder: Path) -> dict[str, Path]:
    """Make both in ``folder``, from nothing."""
    delivered = make_delivered(world, folder / DELIVERED)
    return {DELIVERED: delivered, TESTED: make_tested(world, delivered, folder / TESTED)}


def make_delivered(world: World, template: Path) -> Path:
    """One task is done."""
    world.make()
    _run(world, _first)
    world.forge.git("config", "core.logAllRefUpdates", "true")  # the outside's own journal of main
    world.keep_as(template)
    return template


def make_tested(world: World, delivered: Path, template: Path) -> Path:
    """The third task was rejected in review on its way."""
    world.come_from(delivered)
    entry = {"role": "reviewer", "title": "Third", "verdict": "rejected", "round": 1}
    world.instruct(entry)
    _run(world, _both_tested)
    world.instruct()
    give_the_slots_back(world)
    world.keep_as(template)
    return template


def file_two(app: App) -> None:
    """Two tickets, unless they are there."""
    known = {task.title for task in app.operations.tasks()}
    for title in TITLES:
        if title not in known:
            ticket = Ticket(title, labels=("fast",), tracker="plane", external_id=ticket_of(title))
            app.operations.add_task(REPO, ticket)


def _first(app: App) -> None:
    app.register_repository(app.settings.home.parent / "person", name=REPO, prefix="S")
    app.operations.add_task(REPO, Ticket("First", labels=("fast",)))


def _both_tested(app: App) -> None:
    file_two(app)
    keep_the_slots(app)


def keep_the_slots(app: App) -> None:
    """Whatever is tested waits, until the slots are given back."""
    wait_until(lambda: not any(task.stage == "created" for task in app.operations.tasks()))
    with app.database.write() as tx:
        slots.freeze(tx, RepoName(REPO), "until both are tested", None)


def give_the_slots_back(world: World) -> None:
    """While the service is dead."""
    world.change("DELETE FROM repo_freeze")
    world.change("DELETE FROM slots")


def _run(world: World, script: Script) -> None:
    lived = live(world, Life(script=script, polite=True))
    if lived.ending is not Ending.REST:
        raise AssertionError(f"the template was not made: {lived}; see {world.root}/lives.log")
