"""Between tested and merged: main moves, branches move, conflicts, and the one place in which a repository merges."""

from datetime import timedelta

import pytest

from orchestrator.db import tasks
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_pipeline import NEVER, Build, block
from tests.waiting import PATIENCE_S, wait_until


def test_conflict_goes_back_with_the_files_named(pipeline: Build) -> None:
    line = pipeline(files={"src/shared.py": "X = 0\n"}).start()
    both = {"src/shared.py": "X = 1\n", "src/new.py": "NEW = 1\n"}
    line.agent(
        {"role": "developer", "round": 1, "write": both},
        {"role": "developer", "round": 2, "run": [["sh", "-c", f"git merge -q $(cat {line.root}/theirs) || true"]],
         "write": {"src/shared.py": "X = 3\n"}},
    )  # fmt: skip
    line.points.on("check_testing.judged", lambda: _note(line, {"src/shared.py": "X = 2\n"}))
    item = line.add()
    line.done(item)
    notes = [run["notes"] for run in line.agents(item) if run["role"] == "developer"][1]
    assert "src/shared.py" in notes
    assert (line.root / "theirs").read_text() in notes
    assert line.show("src/shared.py") == "X = 3"
    assert ("deploy-staging", "development", "reject") in line.moves(item)
    assert line.slots() == []


def _note(line, files: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    (line.root / "theirs").write_text(line.push_to_main(files))


@pytest.mark.long
def test_main_moved_while_a_candidate_waited(pipeline: Build) -> None:
    line = pipeline("[approvals]\ndeploy = true\n", staging=True, coverage=True).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    first = line.story(item).candidates[0]
    theirs = line.push_to_main({"src/theirs.py": "T = 1\n"})
    assert line.outcome(line.app.operations.approve(item, person="Ann")) == "applied"

    line.wait_for(item, lambda task: task.hold is Hold.PERSON and task.round == 2)
    second = line.story(item).candidates[1]
    assert (second.base_sha, second.head_sha) == (theirs, first.head_sha)
    assert second.nonce != first.nonce
    assert ("deploy-staging", "deploy-staging", "renew") in line.moves(item)
    assert sorted(line.slots()) == ["environment:staging", "merge:sample"]
    roles = line.roles(item)
    assert (roles.count("reviewer"), roles.count("tester"), roles.count("deployer")) == (1, 1, 2)
    assert [start["sha"] for start in line.deployed("staging")] == [first.sha, second.sha]

    assert line.outcome(line.app.operations.approve(item, person="Ann")) == "applied"
    line.done(item)
    assert line.merges() == [second.sha]
    assert line.forge.git("rev-parse", "main^1") == theirs
    merges = [e for e in line.story(item).effects if e.name is EffectName.MERGE_PR]
    assert [(e.key, e.state) for e in merges] == [
        (first.sha, EffectState.REVOKED),
        (second.sha, EffectState.APPLIED),
    ]
    assert not any(kind == "reject" for _, _, kind in line.moves(item))


@pytest.mark.long
def test_main_that_never_rests_calls_a_person_and_frees_the_slots(pipeline: Build) -> None:
    line = pipeline("[budget]\nmax_candidates = 2\n").start()
    pushed = iter(range(10))

    def push() -> None:
        number = next(pushed)
        line.push_to_main({f"src/theirs_{number}.py": "T = 1\n"})
        if number < 1:
            line.points.on("merge_pr.intended", push, task=line.task(item).id)

    item, other = line.add("Unlucky"), line.add("Other")
    line.points.on("merge_pr.intended", push, task=line.task(item).id)
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.TESTING
    assert "main moved 2 times" in str(task.hold_reason)
    line.done(other)
    assert len(line.merges()) == 1
    line.retry(item)
    line.done(item)
    assert len(line.merges()) == 2
    assert line.roles(item).count("tester") == 1


@pytest.mark.long
def test_stranger_on_the_branch_voids_the_verdicts(pipeline: Build) -> None:
    line = pipeline().start()
    there, go, hook = block()
    line.points.on("check_testing.judged", hook)
    item = line.add()
    assert there.wait(PATIENCE_S)
    branch = str(line.task(item).branch)
    stranger = line.push_to_branch(branch, {"src/stranger.py": "S = 1\n"})
    line.agent({"role": "developer", "round": 2, "run": [["git", "merge", "-q", "--no-edit", stranger]]})
    go.set()
    line.done(item)
    roles = line.roles(item)
    assert roles[1:] == ["developer", "reviewer", "tester", "developer", "reviewer", "tester"]
    assert stranger in line.agents(item)[4]["notes"]
    assert line.show("src/stranger.py") == "S = 1"
    assert len(line.merges()) == 1


def test_stranger_after_the_last_gate_is_seen_before_the_merge(pipeline: Build) -> None:
    line = pipeline().start()
    item = line.add()
    pushed: list[str] = []
    line.points.on(
        "merge_pr.intended",
        lambda: pushed.append(line.push_to_branch(str(line.task(item).branch), {"src/late.py": "L = 1\n"})),
    )
    line.wait_for(item, lambda _: line.roles(item).count("developer") == 2)
    assert pushed[0] in line.agents(item)[4]["notes"]
    assert line.merges() == []
    [merge] = [e for e in line.story(item).effects if e.name is EffectName.MERGE_PR]
    assert merge.state is EffectState.REVOKED


def test_two_tasks_merge_one_after_the_other_woken_without_any_timer(pipeline: Build) -> None:
    line = pipeline(staging=True, settings={"ORCH_QUEUE_INTERVAL_S": NEVER, "ORCH_MAX_CHECKS": "2"}).start()
    seen: list[list[str]] = []
    there, go, hook = block()
    line.points.on("merge_pr.intended", hook)
    one, two = line.add("One"), line.add("Two")
    assert there.wait(PATIENCE_S)
    waiter = wait_until(lambda: next((i for i in (one, two) if line.task(i).hold is Hold.SLOT), None))
    first = two if waiter == one else one
    seen.append(line.slots())
    assert f"held by {first}" in line.why(waiter)
    assert line.task(waiter).stage is Stage.TESTING
    go.set()
    line.done(first)
    line.done(waiter)
    assert seen == [["environment:staging", "merge:sample"]]
    merged = line.merges()
    assert merged == [line.story(first).candidates[-1].sha, line.story(waiter).candidates[-1].sha]
    assert line.forge.git("rev-parse", f"{merged[1]}^1") == merged[0]
    assert len(line.story(waiter).candidates) == 1
    assert [start["sha"] for start in line.deployed("staging")] == merged
    assert line.slots() == []


@pytest.mark.long
def test_waiter_is_woken_when_the_one_before_it_gives_up(pipeline: Build) -> None:
    line = pipeline(settings={"ORCH_MAX_CHECKS": "2", "ORCH_MAX_AGENTS": "3"}).start()
    there, go, hook = block()
    line.points.on("merge_pr.intended", hook)
    items = [line.add(f"Number {n}") for n in range(3)]
    assert there.wait(PATIENCE_S)
    wait_until(lambda: sum(line.task(item).hold is Hold.SLOT for item in items) == 2)
    waiting = sorted(
        (i for i in items if line.task(i).hold is Hold.SLOT), key=lambda i: line.task(i).hold_since or ""
    )
    first, second = waiting
    since = line.task(second).hold_since
    cancelling, cancel, hold_it = block()
    line.points.on("transition.before_commit", hold_it, target=Stage.CANCELLED)
    line.app.operations.cancel(first, person="Ann")
    assert cancelling.wait(PATIENCE_S)
    go.set()
    line.done(next(item for item in items if item not in waiting))
    wait_until(lambda: line.app.worker.snapshot()["checks"] == 0)
    wait_until(lambda: line.app.driver.snapshot() == {"busy": 1, "due": 0})
    task = line.task(second)  # it has been looked at: its turn has not come
    assert "others have waited longer" in str(task.hold_reason)
    assert task.hold_since == since
    cancel.set()
    line.stage(first, Stage.CANCELLED)
    line.done(second)
    assert len(line.merges()) == 2


@pytest.mark.long
def test_place_in_the_queue_is_kept_when_the_reason_changes(pipeline: Build) -> None:
    line = pipeline(settings={"ORCH_MAX_CHECKS": "2", "ORCH_MAX_AGENTS": "3"}).start()
    there, go, hook = block()
    line.points.on("merge_pr.intended", hook)
    items = [line.add(f"Number {n}") for n in range(2)]
    assert there.wait(PATIENCE_S)
    waiter = wait_until(lambda: next((i for i in items if line.task(i).hold is Hold.SLOT), None))
    before = line.task(waiter)
    with line.app.database.write() as tx:
        assert tasks.hold(tx, before.id, Hold.SLOT, "another reason to wait")
    assert line.task(waiter).hold_since == before.hold_since
    go.set()
    for item in items:
        line.done(item)


@pytest.mark.long
def test_forge_that_cannot_be_read_leaves_the_merge_in_doubt_and_guesses_nothing(pipeline: Build) -> None:
    line = pipeline(settings={"ORCH_IN_DOUBT_ALERT_S": "1m"}).start()
    forge, away = line.forge.folder, line.root / "away"
    line.points.on("merge_pr.intended", lambda: forge.rename(away))
    item = line.add()
    wait_until(lambda: any(e.state is EffectState.IN_DOUBT for e in line.story(item).effects))
    assert "drives merge_pr (in_doubt)" in line.why(item)
    line.clock.ahead = timedelta(minutes=2)
    assert line.app.reconciler.run_once()["alerts"] == 1
    line.app.reconciler.run_once()
    assert len([alert for alert in line.alerts() if "merge_pr" in alert]) == 1
    assert line.task(item).stage is Stage.DEPLOY_STAGING
    away.rename(forge)
    line.app.reconciler.run_once()
    line.done(item)
    assert len(line.merges()) == 1
    assert line.task(item).round == 1
