"""The repository's checks and its coverage: measured by us, on the exact commit, never told by the change (case 18)."""

import pytest

from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_pipeline import Build, config_of, gone
from tests.waiting import wait_until

ONCE = "[budget]\nmax_rounds = 1\n"


@pytest.mark.long
def test_red_checks_come_back_with_their_last_words(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "developer", "round": 1, "write": {"BROKEN": "", "src/new.py": "NEW = 1\n"}},
               {"role": "developer", "run": [["rm", "BROKEN"]]})  # fmt: skip
    item = line.add()
    task = line.done(item)
    assert line.roles(item)[1:4] == ["developer", "developer", "reviewer"]
    assert "test_everything FAILED" in line.agents(item)[2]["notes"]
    assert line.journal("checks")[1]["sha"] == task.gated_sha


def test_checks_that_are_not_installed_call_a_person_and_blame_no_agent(pipeline: Build) -> None:
    line = pipeline().start()
    broken = config_of(line.root).split("[agent]")[1]
    line.push_to_main(
        {
            ".orchestrator.toml": f'default_branch = "main"\n[ci]\ncommand = ["no-such-checks"]\n[agent]{broken}'
        }
    )
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEVELOPMENT
    assert "no-such-checks" in str(task.hold_reason)
    assert line.roles(item) == ["analyst", "developer"]


def test_checks_run_in_a_clean_checkout_and_leave_nobody_behind(pipeline: Build) -> None:
    line = pipeline().start()
    line.checks(helper=True)
    item = line.add()
    line.done(item)
    assert len(line.helpers()) == 2
    wait_until(lambda: all(gone(pid) for pid in line.helpers()))
    for run in line.journal("checks"):
        assert run["cwd"].startswith(str(line.home / "checkouts"))
    assert list((line.home / "checkouts").glob("*/*")) == []


def test_coverage_only_rises(pipeline: Build) -> None:
    line = pipeline(coverage=True, files={"covered.txt": "80"}).start()
    first = line.add("Raise")
    line.agent({"title": "Raise", "role": "developer", "write": {"covered.txt": "85", "src/a.py": "A = 1\n"}})
    line.done(first)
    assert line.baseline() == 85.0
    line.agent(
        {
            "title": "Lower",
            "role": "developer",
            "round": 1,
            "write": {"covered.txt": "70", "src/b.py": "B = 1\n"},
        },
        {"title": "Lower", "role": "developer", "write": {"covered.txt": "90", "src/b.py": "B = 2\n"}},
    )
    second = line.add("Lower")
    line.done(second)
    assert ("deploy-staging", "development", "reject") in line.moves(second)
    notes = [run["notes"] for run in line.agents(second) if run["role"] == "developer"][1]
    assert "70.00 %" in notes
    assert "85.00 %" in notes
    assert line.baseline() == 90.0
    assert len(line.merges()) == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("do", "said"),
    [
        pytest.param({"report": None}, "lcov.info", id="missing"),
        pytest.param({"report": ""}, "lcov.info", id="empty"),
        pytest.param({"report": "SF:src/app.py\nDA:1,1\n"}, "lcov.info", id="cut-off"),
        pytest.param({"stale": True}, "lcov.info", id="stale"),
    ],
)
def test_coverage_that_was_not_measured_is_no_pass(pipeline: Build, do: dict[str, object], said: str) -> None:
    line = pipeline(ONCE, coverage=True).start()
    line.checks(**do)
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert said in str(task.hold_reason)
    assert line.merges() == []
    assert line.baseline() is None
    assert line.slots() == []
    assert "lcov.info" in [run["notes"] for run in line.agents(item) if run["role"] == "developer"][1]


def test_report_and_baseline_that_the_change_brings_along_count_for_nothing(pipeline: Build) -> None:
    line = pipeline(ONCE, coverage=True, files={"covered.txt": "80", "coverage-baseline.txt": "80"}).start()
    line.done(line.add("First"))
    full = {"lcov.info": "TN:\nSF:src/app.py\nDA:1,1\nend_of_record\n", "src/more.py": "MORE = 1\n"}
    lowered = {**full, "covered.txt": "60", "coverage-baseline.txt": "60"}
    line.agent({"role": "developer", "title": "Lower", "write": lowered},
               {"role": "developer", "title": "Bring", "write": full})  # fmt: skip
    lower = line.add("Lower")
    assert "60.00 %" in str(line.held(lower, Hold.ESCALATED).hold_reason)
    line.checks(report=None)
    bring = line.add("Bring")
    assert "lcov.info" in str(line.held(bring, Hold.ESCALATED).hold_reason)
    assert len(line.merges()) == 1
    assert line.baseline() == 80.0


def test_configuration_on_the_branch_is_refused_and_not_used(pipeline: Build) -> None:
    line = pipeline().start()
    easy = config_of(line.root).replace("checks.py", "probe.py")
    restore = [["git", "checkout", "-q", "{base}", "--", ".orchestrator.toml"]]
    line.agent({"role": "developer", "round": 1, "write": {".orchestrator.toml": easy, "src/new.py": "NEW = 1\n"}},
               {"role": "developer", "run": restore})  # fmt: skip
    item = line.add()
    line.done(item)
    assert line.roles(item).count("developer") == 2
    assert ".orchestrator.toml" in line.agents(item)[2]["notes"]
    assert line.show(".orchestrator.toml") == config_of(line.root).strip()
    assert len(line.journal("checks")) == 2


def test_configuration_that_a_ticket_may_change_is_not_used_for_itself(pipeline: Build) -> None:
    line = pipeline(ONCE).start()
    easy = config_of(line.root).replace("checks.py", "probe.py")
    line.agent({"role": "developer", "write": {".orchestrator.toml": easy, "BROKEN": ""}})
    item = line.add(labels=("fast", "allow-protected"))
    line.held(item, Hold.ESCALATED)
    assert "test_everything FAILED" in line.agents(item)[2]["notes"]
    assert len(line.journal("checks")) == 2
    assert line.merges() == []
