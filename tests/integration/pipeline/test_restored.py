"""A database or a forge that was restored or copied: nothing happens until a person accepts it, and then nothing
happens twice (DESIGN §6, case "restored")."""

import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.db import installation, repositories
from orchestrator.domain.errors import OrchestratorError, RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import RepoName
from orchestrator.domain.installation import Cause, InstallationMark
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Ticket
from orchestrator.installation.claims import Claims
from orchestrator.installation.closings import Closings
from orchestrator.installation.guard import InstallationGuard
from orchestrator.installation.survey import Survey, Surveyor
from orchestrator.main import Service
from orchestrator.runtime.waypoints import NoWaypoints
from orchestrator.stage_engine.situation import Outcome
from tests.fixtures_db import shell
from tests.fixtures_pipeline import ILL, Build, Pipeline, gone
from tests.postgres_server import dump, put_back
from tests.waiting import wait_until

DATABASE = "orchestrator.db"
POINTS = ("before_begin", "begun", "before_claim", "claimed", "noted")
JOURNALS = ("agents", "checks", "builds", "deploys")


def backup(line: Pipeline, to: Path) -> Path:
    """A copy of the database as its own means make it, whether the service runs or not."""
    if line.database_url is not None:
        dump(line.database_url, to)
        return to
    with closing(sqlite3.connect(line.home / DATABASE)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to


def restore(line: Pipeline, kept: Path) -> None:
    """Stop the service and put the copy in the database's place."""
    line.stop()
    if line.database_url is not None:
        put_back(line.database_url, kept)
        shell(line.database_url, "DELETE FROM processes")  # the copy's is this very one, which has not ended
        return
    for file in line.home.glob(f"{DATABASE}-*"):
        file.unlink()
    shutil.copy(kept, line.home / DATABASE)


def mark(line: Pipeline) -> InstallationMark:
    found = line.app.places.of(line.repo).forge.installation()
    assert found is not None
    return found


def causes(line: Pipeline) -> dict[str, Cause | None]:
    with line.app.database.read() as tx:
        return {one.repo: one.closed.cause if one.closed else None for one in installation.states(tx)}


def outside(line: Pipeline) -> tuple[object, ...]:
    """Everything that anybody outside has seen of the service."""
    return (line.main, line.merges(), line.pulls(), *(line.journal(name) for name in JOURNALS))


def assert_nothing_happens(line: Pipeline, before: tuple[object, ...], *items: str) -> None:
    """Every way in is tried; none leads anywhere."""
    app = line.app
    assert not app.guard.open_repositories()
    assert app.worker.run_once() == {"started": 0}
    app.reconciler.run_once()
    app.guard_watch.run_once()
    app.reaper.run_once()
    app.cleaner.run_once()
    for item in items:
        epoch = line.task(item).epoch
        for actor in Actor:
            assert app.engine.advance_stage(line.task(item).id, actor) is Outcome.HELD
        assert line.task(item).epoch == epoch
        assert "orch restore status" in line.why(item)
    assert outside(line) == before
    assert len([alert for alert in line.alerts() if "Nothing is done" in alert]) == 1


def accept(line: Pipeline) -> dict[str, Any]:
    return line.app.restore.accept(person="Ann", reason="the disk was lost")


def lost_and_found(line: Pipeline, kept: Path) -> tuple[str, str]:
    """A database with the first ticket at work; after the backup that one is delivered, and a second one is filed,
    delivered, found broken and undone. Then the backup comes back."""
    line.agent({"role": "analyst", "until": str(line.root / "go")})
    line.start()
    first = line.add("First")
    run = line.started(first, "analyst")
    line.restart()
    backup(line, kept)
    (line.root / "go").touch()
    line.done(first)
    assert gone(run["pid"])
    line.deploys(production=ILL)
    second = line.add("Second")
    line.held(second, Hold.ESCALATED)
    assert line.frozen()
    wait_until(lambda: [start["undo"] for start in line.deployed("production")] == [False, False, True])
    wait_until(lambda: line.exits() == 5)
    line.deploys()
    restore(line, kept)
    return first, second


# -- the plain case, and every crash in it -----------------------------------------------------------------------


def test_every_start_raises_the_mark(pipeline: Build) -> None:
    line = pipeline().start()
    first = mark(line)
    line.restart()
    second = mark(line)
    assert second.generation == first.generation + 1
    assert second.installation == first.installation
    assert second.start_id != first.start_id
    with line.app.database.read() as tx:
        known = installation.known(tx)[RepoName("sample")]
    assert (known.generation, known.start_id, known.main) == (second.generation, second.start_id, line.main)
    with pytest.raises(RequestRefused, match="belong together"):
        accept(line)
    assert line.app.restore.status() == {"closed": False, "repositories": [], "starts": [], "runs": []}


@pytest.mark.parametrize("point", POINTS)
def test_killed_between_the_commit_and_the_claim_it_is_recognised_as_ours(
    pipeline: Build, point: str
) -> None:
    line = pipeline().start()
    line.stop()
    child = line.child(f"installation.{point}")
    assert child.wait(60) == -9
    line.start()
    assert causes(line) == {"sample": None}
    assert line.app.guard.open_repositories() == {"sample"}
    assert line.alerts() == []


def test_another_process_of_the_same_database_that_claims_in_between_is_joined(pipeline: Build) -> None:
    line = pipeline().start()
    line.stop()
    app = line.open()
    claims = Claims(app.database, app.comparison, entropy=app.entropy, waypoints=NoWaypoints())
    other = InstallationGuard(app.comparison, claims, Closings(app.database))
    before = mark(line).generation
    line.points.on("installation.claimed", other.start)
    line.start()
    assert causes(line) == {"sample": None}
    assert line.app.guard.open_repositories() == {"sample"}
    with line.app.database.read() as tx:
        known = installation.known(tx)[RepoName("sample")]
    assert (mark(line).generation, known.generation) == (before + 3, before + 3)


# -- the schedules ---------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("home", ["kept", "lost"])
def test_a_backup_of_after_the_last_start_is_noticed_by_what_was_done_since(
    pipeline: Build, tmp_path: Path, home: str
) -> None:
    line = pipeline()
    line.agent({"role": "analyst", "until": str(line.root / "go")})
    item = line.start().add()
    line.started(item, "analyst")
    kept = backup(line, tmp_path / "kept.db")
    (line.root / "go").touch()
    line.done(item)
    restore(line, kept)
    if home == "lost":  # only main can tell
        for folder in line.home.glob("runs/*"):
            if "-analyst" not in (folder / "brief.json").read_text():
                shutil.rmtree(folder)
        shutil.rmtree(line.home / "deploys", ignore_errors=True)
    before = outside(line)
    line.start()
    assert causes(line) == {"sample": Cause.DATABASE}
    assert_nothing_happens(line, before, item)


@pytest.mark.long
def test_of_a_database_and_its_copy_only_one_acts(pipeline: Build, tmp_path: Path) -> None:
    line = pipeline()
    line.agent({"role": "tester", "until": str(line.root / "go")})
    item = line.start().add()
    line.started(item, "tester")
    copy = pipeline()
    copy.home.mkdir(parents=True)
    kept = backup(line, tmp_path / "kept.db")
    restore(copy, kept)
    copy.open()
    copy._service = copy._open.enter_context(_service(copy))
    assert copy.app.guard.open_repositories() == {"sample"}
    main, theirs = line.main, mark(line)
    copy.stop()
    (line.root / "go").touch()
    wait_until(lambda: causes(line) == {"sample": Cause.DATABASE})
    assert (line.main, line.merges(), mark(line)) == (main, [], theirs)
    unsettled = [e for e in line.story(item).effects if not e.state.settled]
    assert len(unsettled) == 1  # held, not given up
    assert_nothing_happens(line, outside(line), item)
    line.restart()
    assert causes(line) == {"sample": Cause.DATABASE}
    assert accept(line)["opened"] == {"sample": True}
    line.held(item, Hold.ESCALATED)
    line.retry(item)
    line.done(item)
    assert len(line.merges()) == 1


@pytest.mark.long
def test_a_forge_that_was_restored_closes_itself_alone(pipeline: Build, tmp_path: Path) -> None:
    line = pipeline().start()
    other = pipeline()
    line.app.register_repository(other.person.folder, name="other", prefix="O")
    kept = shutil.copytree(line.forge.folder, tmp_path / "forge")
    item = line.add()
    line.done(item)
    line.stop()
    shutil.rmtree(line.forge.folder)
    shutil.copytree(kept, line.forge.folder)
    line.start()
    assert causes(line) == {"sample": Cause.FORGE, "other": None}
    waiting = line.add()
    assert line.app.engine.advance_stage(line.task(waiting).id, Actor.MONITOR) is Outcome.HELD
    going = line.add(repo="other")
    line.done(going)
    [found] = line.app.restore.status()["repositories"]  # type: ignore[misc]
    assert found["lost"] is not None
    accept(line)
    line.held(waiting, Hold.ESCALATED)
    line.restart()
    assert causes(line) == {"sample": None, "other": None}
    line.retry(waiting)
    line.done(waiting)


def test_a_forge_that_lost_its_mark_was_restored(pipeline: Build) -> None:
    line = pipeline().start()
    line.stop()
    line.forge.git("update-ref", "-d", "refs/orch/installation")
    line.start()
    assert causes(line) == {"sample": Cause.FORGE}


def test_two_databases_on_one_forge(pipeline: Build) -> None:
    line = pipeline().start()
    second = pipeline()
    known = repositories.Repository(RepoName("sample"), "local", str(line.forge.folder), "S")
    with second.open().database.write() as tx:
        assert repositories.add(tx, known)
    second._service = second._open.enter_context(_service(second))
    assert causes(second) == {"sample": Cause.STRANGER}
    item = second.add()
    before = line.main
    assert second.app.engine.advance_stage(second.task(item).id, Actor.MONITOR) is Outcome.HELD
    assert second.agents() == []
    mine = line.add()
    line.done(mine)
    [merged] = line.merges()
    assert line.main == merged != before
    accept(second)
    assert second.app.guard.open_repositories() == {"sample"}
    line.app.guard_watch.run_once()
    assert causes(line) == {"sample": Cause.STRANGER}


# -- the sentence --------------------------------------------------------------------------------------


def test_a_restored_database_does_nothing_until_accepted_and_nothing_twice(
    pipeline: Build, tmp_path: Path
) -> None:
    line = pipeline(coverage=True, staging=True, production=True)
    first, second = lost_and_found(line, tmp_path / "kept.db")
    before = outside(line)
    line.start()
    assert line.task(first).stage is Stage.ANALYSIS
    assert_nothing_happens(line, before, first)

    told = line.app.restore.status()
    [found] = told["repositories"]  # type: ignore[misc]
    assert [merge["work_item"] for merge in found["merges"]] == [first, second]
    assert [start["kind"] for start in told["starts"]].count("undo") == 1  # type: ignore[attr-defined]
    assert outside(line) == before

    assert accept(line)["opened"] == {"sample": True}
    for item in (first, second):
        task = line.held(item, Hold.ESCALATED)
        assert task.stage is Stage.DEPLOY
        assert "restored: the disk was lost" in str(task.hold_reason)
    assert "was undone in production" in str(line.task(second).hold_reason)
    assert line.frozen()
    line.restart()
    assert causes(line) == {"sample": None}
    assert outside(line) == before

    line.retry(first)  # production is looked at, not started
    line.done(first)
    assert outside(line)[1] == before[1]
    assert line.journal("deploys") == before[-1]
    assert line.task(second).stage is Stage.DEPLOY
    assert EventType.SIGNAL_APPLIED in [event.type for event in line.events(second)]

    assert line.app.operations.unfreeze("sample", person="Ann")
    third = line.add("Third")
    assert third == "S-3"
    line.done(third)
    assert len(line.merges()) == 3
    tokens = [int(start["token"]) for start in line.deployed("production")]
    assert tokens == sorted(set(tokens))


@pytest.mark.long
def test_what_was_started_for_a_repository_is_found_once_that_is_registered_again(
    pipeline: Build, tmp_path: Path
) -> None:
    """The backup is older than the repository, and another one has the restore accepted first."""
    line = pipeline(production=True)
    line.open()
    kept = backup(line, tmp_path / "kept.db")
    item = line.start().add()
    line.done(item)
    before = outside(line)
    restore(line, kept)
    line.open().register_repository(pipeline().person.folder, name="other", prefix="O")
    assert accept(line)["opened"] == {"other": True}
    line.restart()  # registers it
    assert causes(line) == {"sample": Cause.DATABASE, "other": Cause.DATABASE}
    assert accept(line)["opened"] == {"sample": True, "other": True}
    task = line.held(item, Hold.ESCALATED)
    assert "production was started with it" in str(task.hold_reason)
    line.retry(item)
    line.done(item)
    assert outside(line) == before
    assert line.add("Another one") == "S-2"


def test_accepted_by_two_at_once_it_is_accepted_once(
    pipeline: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person whose command got no answer in time says it again, and the service is still at the first."""
    line = pipeline()
    line.start().stop()
    line.open()
    kept = backup(line, tmp_path / "kept.db")
    line.start()
    lost = line.add("Lost and delivered")
    line.done(lost)
    restore(line, kept)
    line.start()
    both, looked = threading.Event(), []
    look = Surveyor.look

    def slowly(surveyor: Surveyor) -> Survey:
        seen = look(surveyor)
        looked.append(seen)
        if len(looked) == 2:
            both.set()
        both.wait(2)  # for the other one, who has to wait until this one has done it
        return seen

    monkeypatch.setattr(Surveyor, "look", slowly)
    ends: list[object] = []

    def say() -> None:
        try:
            ends.append(accept(line)["opened"])
        except OrchestratorError as error:
            ends.append(type(error))

    saying = [threading.Thread(target=say) for _ in range(2)]
    for one in saying:
        one.start()
    for one in saying:
        one.join(60)
    assert sorted(map(str, ends)) == sorted(map(str, [RequestRefused, {"sample": True}]))
    line.held(lost, Hold.ESCALATED)
    assert [event.type for event in line.events(lost)].count(EventType.SIGNAL_APPLIED) == 1


@pytest.mark.long
def test_a_merge_that_the_backup_only_intended_is_found_and_its_deploy_not_repeated(
    pipeline: Build, tmp_path: Path
) -> None:
    line = pipeline(production=True)
    line.register()
    item = line.add()
    line.stop()
    assert line.child("merge_pr.before_act").wait(90) == -9
    kept = backup(line, tmp_path / "kept.db")
    assert line.merges() == []
    line.start()
    line.done(item)
    restore(line, kept)
    before = outside(line)
    line.start()
    assert_nothing_happens(line, before, item)
    assert accept(line)["opened"] == {"sample": True}
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEPLOY
    assert "production was started with it" in str(task.hold_reason)
    line.retry(item)
    line.done(item)
    assert line.merges() == before[1]
    assert line.journal("deploys") == before[-1]


@pytest.mark.long
@pytest.mark.parametrize("noticed", [True, False], ids=["by the service", "by nobody yet"])
def test_no_ticket_is_filed_under_the_number_of_one_that_the_copy_does_not_know(
    pipeline: Build, tmp_path: Path, noticed: bool
) -> None:
    """It would come back as that one: merged, and never worked on."""
    line = pipeline().start()
    kept = backup(line, tmp_path / "kept.db")
    lost = line.add("Lost")
    line.done(lost)
    restore(line, kept)
    app = line.start().app if noticed else line.open()
    with pytest.raises(RequestRefused, match="restored from a backup"):
        app.operations.add_task("sample", Ticket("New", labels=("fast",)))
    if not noticed:
        line.start()
    accept(line)
    line.held(lost, Hold.ESCALATED)
    new = line.add("New")
    assert (lost, new) == ("S-1", "S-2")
    line.done(new)


def test_a_person_is_called_though_the_time_that_is_lost_has_called_by_the_same_number(
    pipeline: Build, tmp_path: Path
) -> None:
    """The same copy is put back twice: what is numbered goes the same way, and each time somebody has to hear of it."""
    line = pipeline()
    line.agent({"role": "analyst", "until": str(line.root / "go")})
    item = line.start().add()
    line.started(item, "analyst")
    kept = backup(line, tmp_path / "kept.db")
    line.restart()
    for reason in ("the first time", "the second time"):
        restore(line, kept)
        line.start()
        line.app.restore.accept(person="Ann", reason=reason)
        line.held(item, Hold.ESCALATED)
        wait_until(lambda reason=reason: [alert for alert in line.alerts() if reason in alert])


def _service(line: Pipeline) -> Service:
    return Service(line.app)
