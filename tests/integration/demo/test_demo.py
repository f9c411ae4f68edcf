"""The demo whole: the first thing a person runs, with real git, real tests, real deploys."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from orchestrator.cli.demo import STACKS
from orchestrator.demo.agent_choice import choose_agent
from orchestrator.demo.run import Demo, run_demo
from orchestrator.demo.sample_repository import Environment
from orchestrator.demo.services import ask, running, stop
from orchestrator.demo.stack import StackDemo
from orchestrator.domain.errors import RequestRefused
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.http import SystemHttp
from orchestrator.runtime.process import SystemProcesses
from tests.waiting import wait_until


def places(lines: list[str]) -> dict[str, str]:
    """The answers that the demo printed, by environment."""
    found = {}
    for line in lines:
        for name in ("staging", "production"):
            if f"{name}: GET " in line:
                found[name] = line.split("GET ", 1)[1].split()[0]
    return found


def assert_delivered(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert "  NO   " not in text
    assert "GREET-1 'Greet by name' is done" in text
    assert "GREET-2 'Прощание на языке читателя' is done" in text
    assert "<== development (round 2): The reviewer rejected the change." in text
    assert text.count("merge_pr took place once") == 2
    assert "baseline before: none yet" in text
    assert "Merge GREET-2: Прощание на языке читателя" in text
    assert "GREET-2 done: owned by nobody" in text


def test_two_tickets_are_delivered_and_nothing_is_left_behind(tmp_path: Path) -> None:
    home, lines = tmp_path / "demo", []
    assert run_demo(home=home, echo=lines.append) == 0, "\n".join(lines)
    assert_delivered(lines)
    assert any("It is no AI." in line for line in lines)
    http = SystemHttp()
    for url in places(lines).values():
        name = "staging" if url == places(lines)["staging"] else "production"
        place = sample_of(home, url, name)
        assert running(place, SystemProcesses()) is None
        assert ask(place, http).sha is None
    assert not left_over(home)


@pytest.mark.long(but=["plane-gitea"])
@pytest.mark.parametrize("stack", STACKS)
def test_a_person_files_them_elsewhere_and_answers_there(stack: str, tmp_path: Path) -> None:
    home, lines = tmp_path / "demo", []
    assert run_demo(home=home, echo=lines.append, make=partial(StackDemo, stack=stack)) == 0, "\n".join(lines)
    text = "\n".join(lines)
    assert "  NO   " not in text
    place = "Plane" if stack.startswith("plane") else "GitHub"
    assert text.count(f"at {place}: Approved") == text.count(f"at {place}: Confirm Deploy") == 2
    assert "GREET-2 'Прощание на языке читателя' is done" in text
    assert "a change at each server is told of here at once" in text
    assert not left_over(home)


def test_a_service_that_is_killed_at_the_merge_and_at_the_deploy_delivers_them_all_the_same(
    tmp_path: Path,
) -> None:
    home, lines = tmp_path / "demo", []
    assert run_demo(home=home, echo=lines.append, kill=True) == 0, "\n".join(lines)
    assert_delivered(lines)
    text = "\n".join(lines)
    assert "*** SIGKILL at merge_pr.after_act" in text
    assert "*** SIGKILL at deploy_init.after_act" in text
    assert "yes  it was ended by SIGKILL twice while it worked" in text
    assert text.count("was started once, by its own records") == 4
    assert not left_over(home)


def test_the_real_claude_code_delivers_them_against_the_scripted_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("CLAUDE_CODE_OAUTH_TOKEN", "nobody-may-see-this")
    lines: list[str] = []
    assert run_demo("claude", home=tmp_path / "demo", echo=lines.append) == 0, "\n".join(lines)
    assert_delivered(lines)
    assert any("talking to a scripted model on this machine" in line for line in lines)
    assert not left_over(tmp_path / "demo")
    kept = [path for path in (tmp_path / "demo").rglob("*") if path.is_file()]
    assert not [path for path in kept if b"nobody-may-see-this" in path.read_bytes()]


@pytest.mark.long
def test_kept_services_go_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    home, lines = tmp_path / "demo", []
    assert run_demo(keep=True, home=home, echo=lines.append) == 0, "\n".join(lines)
    found = [sample_of(home, url, name) for name, url in places(lines).items()]
    try:
        answers = [ask(place, SystemHttp()).sha for place in found]
        assert len(answers) == 2
        assert answers[0] is not None
        assert answers[0] == answers[1]
        assert sum("goes on at" in line for line in lines) == 2
        assert any(f"ORCH_HOME={home / 'state'}" in line for line in lines)
        assert "recovered" in (home / "demo.log").read_text() and "logger=" not in capfd.readouterr().err
    finally:
        ended = [stop(place, SystemProcesses(), SystemClock()) for place in found]
        assert all(ended)


def test_tickets_that_are_not_done_in_time_fail_the_demo_and_end_its_agents(tmp_path: Path) -> None:
    processes, lines = SystemProcesses(), []
    demo = Demo(tmp_path, lines.append, processes, SystemClock())
    with choose_agent(
        "scripted", tmp_path, python=sys.executable, processes=processes, environ=os.environ
    ) as choice:
        hasty = type(choice)(choice.table, choice.environ, choice.said, choice.cost_note, patience_s=0.0)
        assert demo.run(hasty) is False
    demo.end(keep=False, good=False, own_home=True)
    text = "\n".join(lines)
    assert "gave up after 0 s" in text
    assert "claims do not hold" in text
    assert "GREET-1 has a tested candidate" in text
    assert tmp_path.exists()
    assert not left_over(tmp_path)


def test_a_home_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(RequestRefused, match="is not empty"):
        run_demo(home=tmp_path, echo=lambda line: None)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_an_unknown_agent_is_refused_with_a_guess(tmp_path: Path) -> None:
    with pytest.raises(RequestRefused, match="claude"):
        run_demo("cluade", home=tmp_path / "demo", echo=lambda line: None)


@pytest.mark.parametrize(
    ("signum", "word", "code"),
    [
        (signal.SIGINT, "==> analysis", 130),
        (signal.SIGTERM, "GREET-1     image: applied", 128 + signal.SIGTERM),
    ],
    ids=["Ctrl-C while agents work", "SIGTERM while staging is deployed"],
)
def test_an_interrupted_demo_leaves_nothing_running(
    tmp_path: Path, signum: signal.Signals, word: str, code: int
) -> None:
    home = tmp_path / "demo"
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "demo", "--home", str(home)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        seen = next((line for line in demo.stdout if word in line), None)
        assert seen is not None
        demo.send_signal(signum)
        rest = demo.stdout.read()
    assert demo.returncode == code, rest
    assert wait_until(lambda: not left_over(home))


def sample_of(home: Path, url: str, name: str) -> Environment:
    return Environment(name, int(url.rsplit(":", 1)[1].split("/")[0]), home / name)


def left_over(home: Path) -> list[str]:
    """Processes that know the home by their arguments or their folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or entry.name == str(os.getpid()):
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            folder = os.readlink(entry / "cwd")
        except OSError:
            continue
        if str(home) in words or folder.startswith(str(home)):
            found.append(words)
    return found


def test_a_life_whose_parent_has_ended_before_it_looked_ends_too(tmp_path: Path) -> None:
    nobody = "-1"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator.demo.lives", nobody, str(tmp_path / "note"), ""],
        env={**os.environ, "ORCH_HOME": str(tmp_path / "state")},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0
