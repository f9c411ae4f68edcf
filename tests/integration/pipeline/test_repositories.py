"""Repositories as they are: without a configuration, with a broken one, unborn, depending on each other's tickets."""

import pytest

from orchestrator.domain.errors import ConfigError, NotFound
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_git import Hand, person_at
from tests.fixtures_pipeline import Build, config_of
from tests.waiting import wait_until


def test_dependency_is_done_first_and_its_end_starts_the_next(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "analyst", "title": "First", "until": str(line.root / "go")})
    first = line.add("First")
    second = line.add("Second", depends_on=(first,))
    task = line.held(second, Hold.BLOCKED)
    assert first in str(task.hold_reason)
    assert line.roles(second) == []
    (line.root / "go").touch()
    line.done(first)
    line.done(second)
    assert line.task(second).base_sha == line.merges()[0]


def test_dependency_that_does_not_exist_is_refused(pipeline: Build) -> None:
    line = pipeline().start()
    with pytest.raises(NotFound, match="S-99"):
        line.add(depends_on=("S-99",))
    assert line.app.operations.tasks() == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        pytest.param(None, "no .orchestrator.toml", id="missing"),
        pytest.param("default_branch = \n", ".orchestrator.toml", id="no-toml"),
        pytest.param('[agent]\nkind = "command"\n', "ci", id="no-checks"),
        pytest.param('[ci]\ncommand = ["true"]\n[agnet]\n', "Did you mean", id="typo"),
    ],
)
def test_unusable_configuration_blocks_until_it_is_mended(
    pipeline: Build, bad: str | None, said: str
) -> None:
    line = pipeline(config=False)
    if bad is not None:
        line.person.commit("Configure", {".orchestrator.toml": bad})
    line.start()
    item = line.add()
    task = line.held(item, Hold.BLOCKED)
    assert task.stage is Stage.CREATED
    assert said in str(task.hold_reason)
    assert "sample" in str(task.hold_reason)
    line.push_to_main({".orchestrator.toml": config_of(line.root)})
    line.retry(item)
    line.done(item)


@pytest.mark.long
def test_configuration_broken_meanwhile_blocks_without_holding_a_slot(pipeline: Build) -> None:
    line = pipeline(staging=True).start()
    good = line.show(".orchestrator.toml")
    line.agent({"role": "tester", "until": str(line.root / "go")})
    item = line.add()
    line.started(item, "tester")
    line.push_to_main({".orchestrator.toml": "[ci]\n"})
    (line.root / "go").touch()
    task = line.held(item, Hold.BLOCKED)
    assert task.stage is Stage.TESTING
    assert ".orchestrator.toml" in str(task.hold_reason)
    assert line.slots() == []
    line.push_to_main({".orchestrator.toml": good})
    line.retry(item)
    line.done(item)
    assert line.roles(item).count("tester") == 1


@pytest.mark.long
def test_configuration_broken_while_the_slots_are_held_frees_them(pipeline: Build) -> None:
    line = pipeline(staging=True).start()
    good = line.show(".orchestrator.toml")
    line.points.on(
        "transition.after_commit",
        lambda: line.push_to_main({".orchestrator.toml": "[ci]\n"}),
        target=Stage.DEPLOY_STAGING,
    )
    item = line.add()
    task = line.held(item, Hold.BLOCKED)
    assert task.stage is Stage.TESTING
    assert line.slots() == []
    line.push_to_main({".orchestrator.toml": good})
    said = line.outcome(line.app.operations.retry(item, person="Ann"))
    # Either this has it go on, or the slots that were freed have had it looked at again before.
    assert said in ("applied", "refused: the task does not wait for a decision")
    line.done(item)


@pytest.mark.long
def test_staging_that_main_has_got_meanwhile_is_held_before_it_is_used(pipeline: Build) -> None:
    line = pipeline().start()
    line.points.on(
        "transition.after_commit",
        lambda: line.push_to_main({".orchestrator.toml": config_of(line.root, staging=True)}),
        target=Stage.DEPLOY_STAGING,
    )
    seen: list[list[str]] = []
    line.points.on("deploy_init.intended", lambda: seen.append(line.slots()))
    item = line.add()
    line.done(item)
    assert seen == [["environment:staging", "merge:sample"]]
    assert line.running("staging") == line.main
    assert line.roles(item).count("tester") == 1


def test_another_repository_goes_on_beside_a_broken_one(pipeline: Build) -> None:
    line = pipeline(config=False).start()
    other = person_at(
        line.root / "other", {"src/app.py": "A = 1\n", ".orchestrator.toml": config_of(line.root)}
    )
    line.app.register_repository(other.folder, name="other", prefix="O")
    stuck, fine = line.add(), line.add(repo="other")
    line.held(stuck, Hold.BLOCKED)
    line.done(fine)
    assert fine.startswith("O-")
    assert (
        len(Hand(line.home / "forges" / "other.git").git("log", "--merges", "--format=%H", "main").split())
        == 1
    )


@pytest.mark.long
def test_main_that_has_vanished_holds_the_ticket_with_a_reason(pipeline: Build) -> None:
    line = pipeline().start()
    line.done(line.add("First"))
    tip = line.main
    line.forge.git("update-ref", "-d", "refs/heads/main")
    item = line.add()
    task = line.held(item, Hold.BLOCKED)
    assert "no commit on main" in str(task.hold_reason)
    line.forge.git("update-ref", "refs/heads/main", tip)
    line.retry(item)
    line.done(item)


def test_repository_without_a_commit_is_refused_clearly(pipeline: Build) -> None:
    line = pipeline()
    empty = line.root / "empty"
    empty.mkdir()
    Hand(empty).git("init", "-q", "-b", "main")
    app = line.open()
    with pytest.raises(ConfigError):
        app.register_repository(empty, name="empty", prefix="E")
    with pytest.raises(ConfigError):
        app.register_repository(line.root / "nothing", name="nothing", prefix="N")
    assert app.operations.repositories() == []


def test_dirty_checkout_is_neither_touched_nor_delivered(pipeline: Build) -> None:
    line = pipeline()
    line.person.write("src/app.py", "UNSAVED = 1\n")
    line.person.write("notes.txt", "mine\n")
    line.start()
    line.done(line.add())
    assert (line.person.folder / "src/app.py").read_text() == "UNSAVED = 1\n"
    assert "UNSAVED" not in line.show("src/app.py")
    assert line.person.git("status", "--porcelain").splitlines() == ["M src/app.py", "?? notes.txt"]


@pytest.mark.long(but=["production"])
@pytest.mark.parametrize("place", ["staging", "production"])
def test_shared_environment_is_used_by_one_repository_at_a_time(pipeline: Build, place: str) -> None:
    line = pipeline(settings={"ORCH_MAX_CHECKS": "2"}, **{place: True}).start()
    other = person_at(
        line.root / "other",
        {"src/app.py": "A = 1\n", ".orchestrator.toml": config_of(line.root, **{place: True})},
    )
    line.app.register_repository(other.folder, name="other", prefix="O")
    line.deploys(**{place: {"until": str(line.root / "go")}})
    items = [line.add(), line.add(repo="other")]
    waiter = wait_until(lambda: next((i for i in items if line.task(i).hold is Hold.SLOT), None))
    assert f"environment:{place}" in str(line.task(waiter).hold_reason)
    assert len(line.slots()) == 2
    (line.root / "go").touch()
    for item in items:
        line.done(item)
    assert len(line.deployed(place)) == 2
