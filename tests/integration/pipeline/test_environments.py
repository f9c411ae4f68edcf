"""Staging and production: what counts is the version they say they run (case 20), and what happens when it is wrong."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import RequestRefused
from orchestrator.domain.job import JobKind, JobStatus
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_pipeline import ILL, Build, Pipeline, config_of, gone
from tests.waiting import wait_until

ONCE = "[budget]\nmax_rounds = 1\n"


@pytest.mark.long(but=["wrong-version"])
@pytest.mark.parametrize(
    ("do", "said"),
    [
        pytest.param({"runs": "1" * 40}, "1" * 40, id="wrong-version"),
        pytest.param({"runs": "ready"}, "ready", id="no-version"),
        pytest.param({"exit": 7}, "cannot reach the machine", id="command-fails"),
        pytest.param({"hang": True}, "4", id="command-hangs"),
    ],
)
def test_bad_staging_goes_back_to_development(pipeline: Build, do: dict[str, object], said: str) -> None:
    line = pipeline(staging=True, production=True, patience="4s").start()
    line.deploys(staging=do)
    item = line.add()
    line.wait_for(item, lambda _: line.roles(item).count("developer") == 2)
    assert said in line.agents(item)[4]["notes"]
    assert "staging" in line.agents(item)[4]["notes"]
    assert line.merges() == []
    assert line.deployed("production") == []
    assert ("deploy-staging", "development", "reject") in line.moves(item)
    line.deploys()
    line.done(item)
    assert line.running("production") == line.running("staging") == line.main
    if do.get("hang"):
        assert gone(line.deployed("staging")[0]["pid"])


@pytest.mark.long
def test_unhealthy_verdict_of_the_deployer_goes_back(pipeline: Build) -> None:
    line = pipeline(staging=True).start()
    line.agent({"role": "deployer", "round": 1, "verdict": "unhealthy"})
    item = line.add()
    line.done(item)
    assert line.roles(item).count("developer") == 2
    assert line.roles(item).count("deployer") == 2
    assert line.story(item).candidates[0].sha in [run["candidate_sha"] for run in line.agents(item)]


@pytest.mark.long
def test_build_that_fails_goes_back_with_its_last_words(pipeline: Build) -> None:
    line = pipeline(image=True, staging=True).start()
    line.agent({"role": "developer", "round": 1, "write": {"UNBUILDABLE": "", "src/new.py": "N = 1\n"}},
               {"role": "developer", "run": [["rm", "UNBUILDABLE"]]})  # fmt: skip
    item = line.add()
    line.done(item)
    assert "src cannot be built" in [r["notes"] for r in line.agents(item) if r["role"] == "developer"][1]
    assert len(line.deployed("staging")) == 1


def _broken(line: Pipeline, do: Mapping[str, object] = ILL) -> str:
    """A first version that runs, and a second one whose production stays broken."""
    line.start()
    line.done(line.add("Good"))
    line.deploys(production=do)
    return line.add("Bad")


def test_broken_production_is_undone_once_and_the_repository_frozen(pipeline: Build) -> None:
    line = pipeline(staging=True, production=True, patience="4s")
    item = _broken(line, {"runs": "2" * 40})
    good = line.main
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEPLOY
    bad = line.main
    assert bad != good
    starts = wait_until(lambda: len(found := line.deployed("production")) == 3 and found)
    assert [(start["sha"], start["undo"]) for start in starts] == [(good, False), (bad, False), (good, True)]
    assert len({start["token"] for start in starts}) == 3
    wait_until(lambda: line.running("production") == good)
    assert line.frozen()
    assert line.slots() == ["merge:sample"]
    assert any(item in alert and "rolled back" in alert for alert in line.alerts())
    assert "2" * 40 in str(line.told(item))

    later = line.add("Later")
    waiting = line.held(later, Hold.FROZEN)
    assert waiting.stage is Stage.CREATED
    assert item in str(waiting.hold_reason)
    receipt = line.app.operations.cancel(item, person="Ann")
    assert "refused" in line.outcome(receipt)
    assert line.roles(later) == []

    line.deploys()
    assert line.app.operations.unfreeze("sample", person="Ann")
    line.done(later)
    assert line.running("production") == line.main
    assert not line.frozen()
    assert len(line.deployed("production")) == 4

    line.stage(item, Stage.DONE)  # production now runs a descendant of what was broken: the task closes by it
    assert len(line.deployed("production")) == 4
    undos = [e for e in line.story(item).effects if e.name is EffectName.DEPLOY_UNDO]
    assert [undo.state for undo in undos] == [EffectState.APPLIED]


@pytest.mark.long
def test_broken_deploy_is_retried_as_a_new_start(pipeline: Build) -> None:
    line = pipeline(staging=True, production=True)
    item = _broken(line)
    line.held(item, Hold.ESCALATED)
    line.deploys()
    line.retry(item)
    line.done(item)
    assert line.running("production") == line.main
    bad, undo, again = line.deployed("production")[1:]
    assert (bad["sha"], again["sha"]) == (line.main, line.main)
    assert (undo["undo"], again["undo"]) == (True, False)
    assert len(line.merges()) == 2
    assert line.slots() == []


@pytest.mark.long
def test_a_look_that_a_persons_word_ends_is_over_at_once(pipeline: Build) -> None:
    """There is one place for checks: a look at a production that nobody wants any more does not keep the next one
    waiting until its time is over."""
    line = pipeline(production=True, patience="10m").start()
    line.done(line.add("Good"))
    line.deploys(production=ILL, undo={"runs": "3" * 40})
    item = line.add("Bad")
    task = line.held(item, Hold.ESCALATED)
    look = wait_until(lambda: next((job.id for job in line.story(item).jobs if job.undo is not None), None))
    wait_until(lambda: line.app.worker.handles(look))  # it waits for what the undo should have brought
    line.deploys()
    line.retry(item)
    line.done(item)
    looks = [job for job in line.story(item).jobs if job.kind is JobKind.PRODUCTION_HEALTH]
    assert sorted((job.round, job.status) for job in looks) == [
        (task.round, JobStatus.CANCELLED),
        (task.round, JobStatus.DONE),
        (task.round + 1, JobStatus.DONE),
    ]


@pytest.mark.long
def test_a_second_broken_version_is_undone_to_what_really_ran(pipeline: Build) -> None:
    line = pipeline(production=True)
    item = _broken(line)
    good = line.merges()[0]
    line.held(item, Hold.ESCALATED)
    assert line.app.operations.unfreeze("sample", person="Ann")
    second = line.add("Worse")
    line.held(second, Hold.ESCALATED)
    undo = wait_until(lambda: len(found := line.deployed("production")) == 5 and found[-1])
    assert (undo["undo"], undo["sha"]) == (True, good)
    wait_until(lambda: line.running("production") == good)


@pytest.mark.long
def test_retry_of_a_broken_task_whose_successor_is_broken_too_undoes_nothing(pipeline: Build) -> None:
    line = pipeline(production=True)
    item = _broken(line)
    line.held(item, Hold.ESCALATED)
    assert line.app.operations.unfreeze("sample", person="Ann")
    second = line.add("Worse")
    line.held(second, Hold.ESCALATED)
    wait_until(lambda: len(line.deployed("production")) == 5)
    assert "not done yet" in line.outcome(line.app.operations.retry(item, person="Ann"))
    assert line.task(item).hold is Hold.ESCALATED
    assert len(line.deployed("production")) == 5


@contextmanager
def _answers(line: Pipeline) -> Iterator[str]:
    """A real service whose answer is what ``answer`` holds, else the version that was deployed."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fixed = line.root / "answer"
            body = (
                fixed.read_bytes()
                if fixed.exists()
                else json.dumps({"sha": line.running("production")}).encode()
            )
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/version"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.long
def test_answer_over_http_without_a_version_is_no_health(pipeline: Build) -> None:
    line = pipeline()
    with _answers(line) as url:
        config = config_of(line.root, production=True, patience="4s")
        head, probe = config.split("[production.probe]")
        line.person.commit(
            "Ask over HTTP", {".orchestrator.toml": f'{head}[production.probe]\nurl = "{url}"\n'}
        )
        assert probe
        line.start()
        first = line.add("First")
        line.done(first)
        (line.root / "answer").write_text('{"status": "ok"}')
        second = line.add("Second")
        task = line.held(second, Hold.ESCALATED)
        assert task.stage is Stage.DEPLOY
        undo = wait_until(lambda: len(found := line.deployed("production")) == 3 and found[-1])
        assert (undo["undo"], undo["sha"]) == (True, line.merges()[0])
        line.stop()


@pytest.mark.long
def test_production_without_an_undo_freezes_and_calls(pipeline: Build) -> None:
    line = pipeline()
    config = config_of(line.root, production=True)
    config = "\n".join(row for row in config.splitlines() if not row.startswith("undo"))
    line.person.commit("No undo", {".orchestrator.toml": config})
    line.deploys(production={"exit": 1})
    line.start()
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEPLOY
    assert line.frozen()
    assert "exit code 1" in str(task.hold_reason)
    assert line.slots() == ["merge:sample"]


@pytest.mark.long
def test_rebuild_that_fails_after_the_merge_freezes_and_calls(pipeline: Build) -> None:
    line = pipeline()
    config = config_of(line.root, image=True, production=True).replace(
        'artifact = "dist"\n', 'artifact = "dist"\nrebuild = true\n'
    )
    line.person.commit("Rebuild", {".orchestrator.toml": config})
    line.start()
    line.points.on("transition.after_commit", lambda: _break_the_build(line), target=Stage.DEPLOY)
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEPLOY
    assert line.frozen()
    assert "cannot be built" in str(task.hold_reason)
    assert line.deployed("production") == []
    with pytest.raises(RequestRefused):
        line.app.operations.approve(item, person="Ann")


def _break_the_build(line: Pipeline) -> None:
    (line.root / "build.py").write_text("raise SystemExit('it cannot be built any more')\n")


def test_escalation_in_staging_lets_go_of_the_slots(pipeline: Build) -> None:
    """Nobody waits for a person with the slots in hand: the next task in line is delivered meanwhile."""
    line = pipeline("[budget]\nmax_attempts = 1\n", staging=True).start()
    line.agent({"role": "deployer", "work_item": "S-1", "exit": 3})
    one = line.add("One")
    line.held(one, Hold.ESCALATED)
    assert (line.task(one).stage, line.slots()) == (Stage.TESTING, [])
    two = line.add("Two")
    line.done(two)
    assert len(line.merges()) == 1
    assert line.roles(one).count("tester") == 1


@pytest.mark.long
def test_task_whose_deploy_command_failed_closes_by_its_successor(pipeline: Build) -> None:
    """What became of an earlier start is no evidence any more once a later one has come."""
    line = pipeline(production=True).start()
    line.done(line.add("Good"))
    line.deploys(production={"exit": 1})
    item = line.add("Bad")
    line.held(item, Hold.ESCALATED)
    line.deploys()
    assert line.app.operations.unfreeze("sample", person="Ann")
    line.done(line.add("Better"))
    line.stage(item, Stage.DONE)
    assert line.running("production") == line.main


@pytest.mark.long
def test_broken_deploy_is_retried_though_a_stranger_has_pushed_since(pipeline: Build) -> None:
    """Only a later merge of ours, which will be deployed, stands against starting M again."""
    line = pipeline(production=True)
    item = _broken(line)
    line.held(item, Hold.ESCALATED)
    merge = line.main
    line.deploys()
    line.push_to_main({"notes.txt": "By hand\n"})
    line.retry(item)
    line.done(item)
    assert line.running("production") == merge
