"""Broken after the merge: the freeze, its loan to the fix, and how the broken task is closed (H16, N6, N8, N9, N10)."""

import pytest

from orchestrator.db import slots
from orchestrator.domain.errors import NotFound, RequestRefused
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import RepoName
from orchestrator.domain.job import JobKind
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_pipeline import ILL, Build, Pipeline, block
from tests.waiting import PATIENCE_S, wait_until


def _broken(line: Pipeline) -> str:
    """A first version that runs, and a second one whose production did not: undone, frozen, escalated."""
    line.start()
    line.done(line.add("Good"))
    line.deploys(production=ILL)
    item = line.add("Bad")
    line.held(item, Hold.ESCALATED)
    line.deploys()
    return item


def _lend(line: Pipeline, item: str) -> None:
    assert line.app.operations.lend("sample", item, person="Ann", reason="it mends it")


def _freeze(line: Pipeline) -> slots.Freeze:
    with line.app.database.read() as tx:
        found = slots.frozen(tx, RepoName("sample"))
    assert found is not None
    return found


def _merge_slot(line: Pipeline) -> str | None:
    """Who has it: a number, ``freeze``, or None where it is free."""
    with line.app.database.read() as tx:
        held = slots.get(tx, "merge:sample")
    return None if held is None else "freeze" if held.frozen else str(held.work_item)


def test_the_fix_passes_the_freeze_and_the_waiters_and_closes_what_was_broken(pipeline: Build) -> None:
    line = pipeline(staging=True, production=True)
    broken = _broken(line)
    other, fix = line.add("Other"), line.add("Fix")
    for waiting in (other, fix):
        assert line.held(waiting, Hold.FROZEN).stage is Stage.CREATED
    assert _merge_slot(line) == "freeze"
    _lend(line, fix)
    line.done(fix)
    line.stage(broken, Stage.DONE)  # by itself: its gate was judged again once the fix was done
    assert line.running("production") == line.merges()[-1]
    assert (
        len(line.deployed("production")) == 4
    )  # good, bad, its undo, the fix: nothing was started for closing
    line.done(other)  # the freeze is gone, and whom it held up was woken
    assert line.slots() == []
    told = [(e.type, e.data.get("slot")) for e in line.events(fix)]
    assert (EventType.REPO_LENT, None) in told
    assert told.index((EventType.REPO_LENT, None)) < told.index((EventType.SLOT_TAKEN, "merge:sample"))
    ends = {item: e.id for item in (broken, fix) for e in line.events(item) if e.to_stage is Stage.DONE}
    assert ends[fix] < ends[broken]


def test_nothing_is_lifted_or_lent_before_the_undo_has_settled(pipeline: Build) -> None:
    line = pipeline(production=True).start()
    line.done(line.add("Good"))
    there, go, hook = block()
    line.deploys(production=ILL)
    line.points.on("deploy_undo.before_probe", hook)
    broken = line.add("Bad")
    assert there.wait(PATIENCE_S)
    fix = line.add("Fix")
    assert line.held(fix, Hold.FROZEN).stage is Stage.CREATED
    assert _merge_slot(line) == broken
    with pytest.raises(RequestRefused, match="not settled"):
        line.app.operations.lend("sample", fix, person="Ann")
    with pytest.raises(RequestRefused, match="not settled"):
        line.app.operations.unfreeze("sample", person="Ann")
    go.set()
    wait_until(lambda: _merge_slot(line) == "freeze")
    _lend(line, fix)


@pytest.mark.long
def test_an_undo_that_fails_is_told_as_failed_and_only_at_its_end(pipeline: Build) -> None:
    """Production may not run what it should: nobody is told that it was rolled back, and nothing is lent before."""
    line = pipeline(production=True).start()
    line.done(line.add("Good"))
    good, go = line.running("production"), line.root / "go"
    line.deploys(production=ILL, undo={"until": str(go), "exit": 3})
    broken = line.add("Bad")
    wait_until(lambda: len(line.deployed("production")) == 3, 60)
    fix = line.add("Fix")
    with pytest.raises(RequestRefused, match="not settled"):
        line.app.operations.lend("sample", fix, person="Ann")
    assert _merge_slot(line) == broken
    assert line.task(broken).hold is not Hold.ESCALATED
    wait_until(lambda: any("its undo goes on" in alert for alert in line.alerts()))
    asked = len(line.journal("probes"))
    go.touch()
    task = line.held(broken, Hold.ESCALATED)
    assert "the undo FAILED" in str(task.hold_reason)
    assert "exit code 3" in str(task.hold_reason)
    assert _merge_slot(line) == "freeze"
    wait_until(lambda: len(line.journal("probes")) > asked)
    line.clock.up += 60.0  # the time in which production had to be well again is over
    task = line.wait_for(broken, lambda t: "after the undo" in str(t.hold_reason))
    assert f"expected {good}, saw {'2' * 40}" in str(task.hold_reason)
    assert not any("was rolled back" in alert for alert in line.alerts())
    assert sum("may not run what it should" in alert for alert in line.alerts()) == 2

    line.app.drift_watch.run_once()  # a person was called; what should run there nobody can say
    [watched] = line.app.drift_watch.snapshot()
    assert (watched["state"], watched["expected"]) == ("waits", None)

    _lend(line, fix)
    line.wait_for(fix, lambda _: len(line.deployed("production")) == 5)
    undo = line.deployed("production")[-1]  # the fix is ill too: back to what last ran well, as before
    assert (undo["undo"], undo["sha"]) == (True, good)


@pytest.mark.long
def test_an_undo_is_done_by_the_script_of_the_version_that_it_brings_back(pipeline: Build) -> None:
    line = pipeline(image=True, production=True)
    broken = _broken(line)
    good, bad, undo = line.deployed("production")
    assert undo["undo"]
    assert good["digest"] != bad["digest"]
    assert (undo["digest"], undo["files"]) == (good["digest"], good["files"])
    task = line.wait_for(broken, lambda t: "after the undo" in str(t.hold_reason))
    assert f"production runs {good['sha']}: " in str(task.hold_reason)


@pytest.mark.long
def test_before_the_fix_is_done_nothing_is_closed_by_it(pipeline: Build) -> None:
    """N8: production runs the fix already, healthy, but its trial is not over."""
    line = pipeline(production=True)
    broken = _broken(line)
    good = line.running("production")
    fix = line.add("Fix")
    _lend(line, fix)
    there, go, hook = block()
    line.points.on("check_production.judged", hook)
    assert there.wait(PATIENCE_S)
    assert line.running("production") == line.main
    assert "not done yet" in line.outcome(line.app.operations.retry(broken, person="Ann"))
    assert line.task(broken).hold is Hold.ESCALATED
    go.set()
    line.done(fix)
    line.stage(broken, Stage.DONE)
    assert line.running("production") != good


@pytest.mark.long
def test_a_fix_that_is_sent_back_returns_the_slot_and_takes_it_again(pipeline: Build) -> None:
    line = pipeline(staging=True, production=True)
    broken = _broken(line)
    again = line.root / "again"
    line.agent({"role": "developer", "round": 2, "until": str(again)})
    line.deploys(staging={"exit": 7})
    fix = line.add("Fix")
    _lend(line, fix)
    line.wait_for(fix, lambda _: line.roles(fix).count("developer") == 2)
    assert ("deploy-staging", "development", "reject") in line.moves(fix)
    assert (_merge_slot(line), line.slots()) == ("freeze", ["merge:sample"])
    assert _freeze(line).lent_item == fix
    line.deploys()
    again.touch()
    line.done(fix)
    line.stage(broken, Stage.DONE)
    assert line.slots() == []


@pytest.mark.long
def test_a_fix_that_is_cancelled_returns_the_slot(pipeline: Build) -> None:
    line = pipeline(staging=True, production=True)
    _broken(line)
    there, go, hook = block()
    line.points.on("check_staging.judged", hook)
    first = line.add("First try")
    _lend(line, first)
    assert there.wait(PATIENCE_S)
    assert _merge_slot(line) == first
    with pytest.raises(RequestRefused, match=f"with {first}"):
        line.app.operations.lend("sample", line.add("Another"), person="Ann")
    receipt = line.app.operations.cancel(first, person="Ann")
    go.set()
    line.stage(first, Stage.CANCELLED)
    assert line.outcome(receipt) == "applied"
    assert (_merge_slot(line), _freeze(line).lent_to) == ("freeze", None)


@pytest.mark.long
def test_a_fix_that_is_escalated_returns_the_slot_and_the_loan_can_move(pipeline: Build) -> None:
    line = pipeline("[budget]\nmax_attempts = 1\n", staging=True, production=True)
    broken = _broken(line)
    line.agent({"role": "deployer", "title": "Second try", "exit": 3})
    second = line.add("Second try")
    _lend(line, second)
    assert line.held(second, Hold.ESCALATED).stage is Stage.TESTING
    assert (_merge_slot(line), _freeze(line).lent_item) == ("freeze", second)

    third = line.add("Third try")  # the slot is not in use: the loan moves
    _lend(line, third)
    line.done(third)
    line.stage(broken, Stage.DONE)
    assert line.task(second).hold is Hold.ESCALATED
    assert not line.frozen()


@pytest.mark.long
def test_a_fix_that_breaks_too_stays_under_the_freeze_until_a_third_mends_both(pipeline: Build) -> None:
    line = pipeline(production=True)
    one = _broken(line)
    good = line.running("production")
    line.deploys(production=ILL)
    two = line.add("Worse")
    _lend(line, two)
    line.held(two, Hold.ESCALATED)
    wait_until(lambda: line.running("production") == good)
    assert (_merge_slot(line), _freeze(line).work_item, _freeze(line).lent_to) == ("freeze", one, None)
    assert "not done yet" in line.outcome(line.app.operations.retry(one, person="Ann"))
    line.deploys()
    three = line.add("Mends both")
    _lend(line, three)
    line.done(three)
    line.stage(one, Stage.DONE)
    line.stage(two, Stage.DONE)
    assert line.running("production") == line.main
    assert (line.frozen(), line.slots()) == (False, [])


@pytest.mark.long
def test_the_retry_of_a_broken_fix_takes_the_slot_from_the_first_ones_freeze(pipeline: Build) -> None:
    line = pipeline(production=True)
    one = _broken(line)
    line.deploys(production=ILL)
    two = line.add("Worse")
    _lend(line, two)
    line.held(two, Hold.ESCALATED)
    wait_until(lambda: _merge_slot(line) == "freeze")
    line.deploys()
    line.retry(two)
    line.stage(two, Stage.DONE)
    line.stage(one, Stage.DONE)
    assert len(line.merges()) == 3
    assert (line.frozen(), line.slots()) == (False, [])


@pytest.mark.long
def test_a_plain_unfreeze_in_between_leaves_the_closing_to_whoever_is_done_first(pipeline: Build) -> None:
    line = pipeline(production=True)
    broken = _broken(line)
    fix = line.add("Fix")
    _lend(line, fix)
    line.wait_for(fix, lambda t: t.stage is not Stage.CREATED)
    assert line.app.operations.unfreeze("sample", person="Ann")
    line.done(fix)
    line.stage(broken, Stage.DONE)
    assert line.slots() == []


@pytest.mark.long
def test_what_the_fix_does_not_mend_stays_escalated_and_is_told(pipeline: Build) -> None:
    """The fix is done, and then production runs something that contains neither: the freeze stays."""
    line = pipeline(production=True, patience="4s")
    broken = _broken(line)
    fix = line.add("Fix")

    def by_hand() -> None:
        (line.root / "running-production").write_text("3" * 40)

    line.points.on("transition.after_commit", by_hand, task=line.task(fix).id, target=Stage.DONE)
    _lend(line, fix)
    line.done(fix)
    task = line.wait_for(broken, lambda t: t.hold is Hold.ESCALATED and "3" * 40 in str(t.hold_reason))
    assert "Nothing is undone" in str(task.hold_reason)
    assert (line.frozen(), _merge_slot(line)) == (True, "freeze")
    assert any(broken in alert and "3" * 40 in alert for alert in line.alerts())
    assert len(line.deployed("production")) == 4
    (line.root / "running-production").write_text(line.main)
    line.retry(broken)
    line.stage(broken, Stage.DONE)
    assert not line.frozen()


@pytest.mark.long
def test_what_was_never_started_is_closed_by_the_fix_too(pipeline: Build) -> None:
    line = pipeline(image=True, production=True)
    config = line.person.folder / ".orchestrator.toml"
    line.person.commit(
        "Rebuild",
        {".orchestrator.toml": config.read_text().replace('"dist"\n', '"dist"\nrebuild = true\n')},
    )
    line.start()
    line.done(line.add("Good"))
    build = (line.root / "build.py").read_text()
    line.points.on(
        "transition.after_commit",
        lambda: (line.root / "build.py").write_text("raise SystemExit('no')\n"),
        target=Stage.DEPLOY,
    )
    broken = line.add("Bad")
    line.held(broken, Hold.ESCALATED)
    (line.root / "build.py").write_text(build)
    fix = line.add("Fix")
    _lend(line, fix)
    line.done(fix)
    line.stage(broken, Stage.DONE)
    assert [start["sha"] for start in line.deployed("production")] == [line.merges()[0], line.merges()[2]]


def test_a_wake_that_was_lost_is_made_good_at_the_next_start(pipeline: Build) -> None:
    """Killed between the fix's end and the look at what it mends."""
    line = pipeline(production=True)
    broken = _broken(line)
    fix = line.add("Fix")
    with line.app.database.read() as tx:
        assert slots.frozen(tx, RepoName("sample")) is not None
    line.stop()
    line.open()
    _lend(line, fix)
    line.stop()
    child = line.child("transition.after_commit", 1)
    while child.wait(60) == -9 and not _is_done(line, fix):
        child = line.child("transition.after_commit", 1)
    line.start()
    line.stage(broken, Stage.DONE)
    assert line.slots() == []


def _is_done(line: Pipeline, item: str) -> bool:
    line.open()
    done = line.task(item).stage is Stage.DONE
    line.stop()
    return done


@pytest.mark.long
def test_unfit_loans_are_refused(pipeline: Build) -> None:
    line = pipeline(production=True)
    line.start()
    operations = line.app.operations
    first = line.add("First")
    line.done(first)
    with pytest.raises(RequestRefused, match="not frozen"):
        operations.lend("sample", first, person="Ann")
    line.deploys(production=ILL)
    broken = line.add("Bad")
    line.held(broken, Hold.ESCALATED)
    wait_until(lambda: _merge_slot(line) == "freeze")
    waits = line.add("Depends", depends_on=(broken,))
    for item, why in ((first, "has ended"), (broken, "what broke"), (waits, "depends on")):
        with pytest.raises(RequestRefused, match=why):
            operations.lend("sample", item, person="Ann")
    with pytest.raises(NotFound):
        operations.lend("sample", "S-99", person="Ann")
    with pytest.raises(NotFound):
        operations.lend("nowhere", broken, person="Ann")
    assert _freeze(line).lent_to is None
    fix = line.add("Fix")
    line.held(fix, Hold.FROZEN)
    assert operations.lend("sample", fix, person="Ann")
    assert not operations.lend("sample", fix, person="Ann")
    assert line.check(broken, JobKind.PRODUCTION_HEALTH) is not None
