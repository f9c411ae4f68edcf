"""Developers that do not do as they should: nothing gets through, nothing is lost, the others go on (case 12)."""

import json
import os
from pathlib import Path

import pytest

from orchestrator.domain.job import RunOutcome
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from tests.fixtures_pipeline import Build, Pipeline, gone
from tests.waiting import wait_until

ONCE = "[budget]\nmax_rounds = 1\n"


def test_nothing_committed_is_no_change(pipeline: Build) -> None:
    line = pipeline(ONCE).start()
    line.agent({"role": "developer", "write": {}, "commit": False})
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEVELOPMENT
    assert line.roles(item)[1:] == ["developer", "developer"]
    assert "changes nothing but documents" in line.agents(item)[2]["notes"]
    assert line.pulls() == []


def test_only_ignored_files_are_no_change(pipeline: Build) -> None:
    line = pipeline(ONCE, files={".gitignore": "*.log\n"}).start()
    line.agent({"role": "developer", "write": {"work.log": "all the work"}})
    item = line.add()
    line.held(item, Hold.ESCALATED)
    assert line.pulls() == []


def test_uncommitted_work_is_committed_for_it(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "developer", "commit": False})
    item = line.add()
    line.done(item)
    assert line.show("src/change_S_1.py") == "CHANGE = 1"


@pytest.mark.long
def test_commit_on_another_branch_is_kept_and_asked_for_again(pipeline: Build) -> None:
    line = pipeline().start()
    aside = [["git", "checkout", "-q", "-b", "my-own-idea"]]
    line.agent({"role": "developer", "round": 1, "run": aside})
    item = line.add()
    line.done(item)
    assert line.roles(item)[1:3] == ["developer", "developer"]
    assert "my-own-idea" in line.agents(item)[2]["notes"]
    assert line.show("src/change_S_1.py") == "CHANGE = 2"
    assert "CHANGE = 1" in kept_work(line, "src/change_S_1.py")


def kept_work(line: Pipeline, path: str) -> str:
    clone = line.home / "repos" / "sample" / "clone.git"
    refs = line.forge.git("--git-dir", str(clone), "for-each-ref", "--format=%(refname)", "refs/orch/rescue")
    return "\n".join(
        line.forge.git("--git-dir", str(clone), "show", f"{ref}:{path}", check=False) for ref in refs.split()
    )


def test_protected_path_needs_the_tickets_leave(pipeline: Build) -> None:
    line = pipeline(ONCE).start()
    line.agent({"role": "developer", "write": {"setup.cfg": "[x]\n", "src/new.py": "NEW = 1\n"}})
    plain, allowed = line.add("Plain"), line.add("Allowed", labels=("fast", "allow-protected"))
    line.held(plain, Hold.ESCALATED)
    line.done(allowed)
    assert "setup.cfg" in line.agents(plain)[2]["notes"]
    assert line.show("setup.cfg") == "[x]"


def test_secret_in_the_change_never_leaves_the_house(pipeline: Build) -> None:
    line = pipeline(ONCE).start()
    key = "AKIA" + "Q7ZLM4RT2VXW9KPD"
    line.agent({"role": "developer", "write": {"src/key.py": f'AWS = "{key}"\n'}})
    item = line.add()
    line.held(item, Hold.ESCALATED)
    notes = line.agents(item)[2]["notes"]
    assert "src/key.py" in notes
    assert key not in notes
    assert key not in line.told(item)
    assert line.forge.git("log", "--all", "-S", key, "--format=%H") == ""


@pytest.mark.long
def test_secret_that_is_taken_out_again_does_not_leave_with_the_history(pipeline: Build) -> None:
    line = pipeline().start()
    key = "AKIA" + "Q7ZLM4RT2VXW9KPD"
    both = [
        [
            "sh",
            "-c",
            f"echo 'K = \"{key}\"' > src/once.py; git add -A; git commit -qm one; echo 'K = 1' > src/once.py",
        ]
    ]
    line.agent(
        {"role": "developer", "title": "Told", "round": 1, "write": {"src/key.py": f'AWS = "{key}"\n'}},
        {"role": "developer", "title": "Told", "write": {"src/key.py": "AWS = None\n"}},
        {"role": "developer", "title": "At once", "run": both},
    )
    told, at_once = line.add("Told"), line.add("At once")
    line.done(told)
    line.done(at_once)
    assert line.roles(told).count("developer") == 2
    assert line.roles(at_once).count("developer") == 1
    assert (line.show("src/key.py"), line.show("src/once.py")) == ("AWS = None", "K = 1")
    assert line.forge.git("log", "--all", "-S", key, "--format=%H") == ""
    objects = line.forge.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
    blobs = [row.split()[0] for row in objects.splitlines() if row.endswith(" blob")]
    assert not any(key in line.forge.git("cat-file", "blob", blob) for blob in blobs)


@pytest.mark.long
def test_change_beyond_every_bound_is_sent_back(pipeline: Build) -> None:
    line = pipeline(ONCE).start()
    flood = [
        [
            "sh",
            "-c",
            "mkdir -p big; for n in 1 2 3 4; do head -c 9000000 /dev/zero | tr '\\0' a > big/$n; done",
        ]
    ]
    line.agent({"role": "developer", "run": flood})
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert "larger" in str(task.hold_reason) or "bytes" in str(task.hold_reason)
    assert line.pulls() == []


def test_trailer_of_ours_in_a_message_is_refused(pipeline: Build) -> None:
    line = pipeline(ONCE).start()
    line.agent({"role": "developer", "message": "Work\n\nOrch-Nonce: 0123456789abcdef"})
    item = line.add()
    line.held(item, Hold.ESCALATED)
    assert "Orch-" in line.agents(item)[2]["notes"]
    assert line.pulls() == []


@pytest.mark.long
def test_failing_agent_gets_three_attempts_then_a_person_is_called(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "developer", "title": "Fails", "exit": 3})
    item, other = line.add("Fails"), line.add("Works")
    task = line.held(item, Hold.ESCALATED)
    assert [run["attempt"] for run in line.agents(item)] == [1, 1, 2, 3]
    assert "developer failed 3 times" in str(task.hold_reason)
    assert "exit code 3" in str(task.hold_reason)
    assert [run.outcome for _, run in line.story(item).runs][1:] == [RunOutcome.CRASHED] * 3
    assert "exit code 3" in line.agents(item)[2]["notes"]
    line.done(other)
    line.agent()
    line.retry(item)
    line.done(item)
    assert len(line.merges()) == 2


def test_missing_program_calls_a_person_at_once(pipeline: Build) -> None:
    line = pipeline('[agents.developer]\nkind = "command"\ncommand = ["no-such-agent"]\n').start()
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert "no-such-agent" in str(task.hold_reason)
    assert line.roles(item) == ["analyst"]
    assert any("no-such-agent" in alert for alert in line.alerts())


def test_usage_limit_costs_no_attempt(pipeline: Build) -> None:
    line = pipeline().start()
    limit = {"role": "developer", "attempt": 1, "exit": 1, "usage": {"retry_after_s": 0.2}}
    line.agent(limit)
    item = line.add()
    line.wait_for(item, lambda _: line.roles(item).count("developer") >= 5)
    line.agent()
    line.done(item)
    developers = [run for run in line.agents(item) if run["role"] == "developer"]
    assert {run["attempt"] for run in developers} == {1}
    outcomes = [run.outcome for kind, run in line.story(item).runs if kind == "developer"]
    assert outcomes[-1] is RunOutcome.DONE
    assert set(outcomes[:-1]) == {RunOutcome.RATE_LIMITED}


def test_agent_that_never_ends_is_ended_with_all_its_helpers(pipeline: Build) -> None:
    bounds = '[budget]\nmax_attempts = 1\n[agents.developer]\nkind = "command"\ntimeout = "1.5s"\n'
    root = pipeline().root
    line = pipeline(bounds + f"command = {json.dumps([*_agent(root)])}\n")
    _move_agent(root, line)
    line.start()
    line.agent({"role": "developer", "helpers": 3, "stay": True})
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert "1.5" in str(task.hold_reason)
    [_, run] = line.agents(item)
    assert len(line.helpers()) == 3
    wait_until(lambda: all(gone(pid) for pid in [run["pid"], *line.helpers()]))
    assert line.story(item).runs[-1][1].outcome is RunOutcome.LIMIT_TIME


def _agent(root: Path) -> list[str]:
    return ["python3", "-I", "-S", str(root / "elsewhere" / "agent.py")]


def _move_agent(root: Path, line: Pipeline) -> None:
    (root / "elsewhere").symlink_to(line.root)


def test_helpers_that_outlive_an_agent_are_ended(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "developer", "helpers": 2})
    item = line.add()
    line.done(item)
    assert len(line.helpers()) == 2
    wait_until(lambda: all(gone(pid) for pid in line.helpers()))


def test_deleted_git_folder_is_made_anew(pipeline: Build) -> None:
    line = pipeline().start()
    line.agent({"role": "developer", "round": 1, "at_last": [["rm", "-rf", ".git"]]})
    item = line.add()
    line.done(item)
    assert line.roles(item)[1:3] == ["developer", "developer"]
    assert line.agents(item)[2]["round"] == 2
    assert "made anew" in line.agents(item)[2]["notes"]
    assert line.show("src/change_S_1.py") == "CHANGE = 2"


def test_workspace_replaced_by_a_link_is_made_anew(pipeline: Build, tmp_path: Path) -> None:
    line = pipeline().start()
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "precious").write_text("mine")
    swap = [["sh", "-c", f'd="$PWD"; cd /; mv "$d" "$d.gone"; ln -s {trap} "$d"']]
    line.agent({"role": "developer", "round": 1, "at_last": swap})
    item = line.add()
    line.done(item)
    assert os.listdir(trap) == ["precious"]
    assert line.agents(item)[2]["round"] == 2
    assert line.show("src/change_S_1.py") == "CHANGE = 2"


def test_hung_agent_is_ended_at_the_backstop_before_the_next_begins(pipeline: Build) -> None:
    """Never two agents in one workspace (case 11), not even when the first does not want to go."""
    line = pipeline().start()
    line.agent({"role": "developer", "attempt": 1, "ignore_term": True, "stay": True})
    item = line.add()
    first = line.started(item, "developer")
    line.clock.up = 5 * 3600.0

    def second() -> dict[str, object] | None:
        line.app.reaper.run_once()
        return next(
            (run for run in line.agents(item) if run["role"] == "developer" and run["attempt"] == 2), None
        )

    wait_until(second)
    assert gone(first["pid"])
    line.done(item)
    assert line.roles(item).count("developer") == 2
    outcomes = [run.outcome for kind, run in line.story(item).runs if kind == "developer"]
    assert outcomes == [RunOutcome.KILLED, RunOutcome.DONE]


def test_spent_budget_calls_a_person(pipeline: Build) -> None:
    line = pipeline("[budget]\nmax_cost_usd = 1\n").start()
    line.agent({"role": "analyst", "usage": {"cost_usd": 1.5, "input_tokens": 10}})
    item = line.add()
    task = line.held(item, Hold.ESCALATED)
    assert task.stage is Stage.DEVELOPMENT
    assert "1.50 USD" in str(task.hold_reason)
    assert line.roles(item) == ["analyst"]


def test_what_a_person_corrected_on_main_counts_from_the_retry_on(pipeline: Build) -> None:
    """A ticket is judged by its base commit, until a person corrects main's configuration and says "go on"."""
    wrong = '[agents.developer]\nkind = "command"\ncommand = ["no-such-agent"]\n'
    line = pipeline(wrong).start()
    item = line.add()
    line.held(item, Hold.ESCALATED)
    good = line.show(".orchestrator.toml").replace(wrong.strip(), "").rstrip() + "\n"
    assert "no-such-agent" not in good
    line.push_to_main({".orchestrator.toml": "nonsense ="})
    assert "refused" in line.outcome(line.app.operations.retry(item, person="Ann"))
    corrected = line.push_to_main({".orchestrator.toml": good})
    line.retry(item)
    line.done(item)
    assert line.task(item).config_sha == corrected
