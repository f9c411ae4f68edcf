"""What the tests fork is, seen from outside, what would have been started."""

import os
import signal
import sys
from pathlib import Path

import pytest

from orchestrator.runtime.process import Liveness, SystemProcesses
from orchestrator.runtime.sweep import ProcTable, marked, sweep
from tests.forked import ROOM, ForkedChild, ForkedProcesses
from tests.waiting import wait_until

MARK = "ORCH_TEST_ID=forked"


def child(folder: Path, script: str, **env: str) -> ForkedChild:
    program = folder / "program.py"
    program.write_text(script)
    argv = [sys.executable, str(program), "an argument"]
    return ForkedChild(argv, cwd=folder, env={"PATH": os.environ["PATH"], **env}, output=folder / "log")


def test_it_shows_its_own_environment_command_line_session_and_folder(tmp_path: Path) -> None:
    forked = child(tmp_path, "import signal\nsignal.pause()\n", ORCH_TEST_ID="forked")
    proc = Path(f"/proc/{forked.pid}")
    environ = ProcTable().environ(forked.pid)
    assert environ is not None
    assert {word for word in environ if word} == {f"PATH={os.environ['PATH']}".encode(), MARK.encode()}
    words = proc.joinpath("cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert words == [os.fsencode(each) for each in (sys.executable, tmp_path / "program.py", "an argument")]
    assert os.getsid(forked.pid) == os.getpgid(forked.pid) == forked.pid
    assert Path(os.readlink(proc / "cwd")) == tmp_path
    assert marked(MARK) == (forked.pid,)
    assert sweep(MARK) == ()
    assert forked.wait() == -signal.SIGKILL


@pytest.mark.parametrize(("script", "code"), [("", 0), ("raise SystemExit(7)", 7), ("1 / 0", 1)])
def test_it_ends_as_it_says(tmp_path: Path, script: str, code: int) -> None:
    said = "import os, sys\nprint(sys.argv[1:], sorted(os.environ))\n"
    assert child(tmp_path, said + script, ONLY="this").wait() == code
    log = (tmp_path / "log").read_text()
    assert "['an argument'] ['ONLY', 'PATH']" in log
    assert ("ZeroDivisionError" in log) == (code == 1)


def test_it_hears_signals_as_any_python_program(tmp_path: Path) -> None:
    forked = child(tmp_path, "import time\nprint('there', flush=True)\ntime.sleep(600)\n")
    wait_until(lambda: "there" in (tmp_path / "log").read_text())
    forked.send_signal(signal.SIGTERM)
    assert forked.wait() == -signal.SIGTERM


def test_a_supervisor_runs_as_the_program_that_it_is(tmp_path: Path) -> None:
    argv = [sys.executable, "-P", "-m", "orchestrator.agents.supervisor", str(tmp_path)]
    processes = ForkedProcesses()
    identity = processes.spawn(argv, cwd=tmp_path, env={}, output=tmp_path / "log")
    wait_until(lambda: processes.liveness(identity) is Liveness.DEAD)
    forked = (tmp_path / "log").read_text()
    real = SystemProcesses()
    identity = real.spawn(
        argv, cwd=tmp_path, env={"PYTHONPATH": os.pathsep.join(sys.path)}, output=tmp_path / "real"
    )
    wait_until(lambda: real.liveness(identity) is Liveness.DEAD)
    assert forked == (tmp_path / "real").read_text() != ""


def test_what_does_not_fit_is_refused_and_not_cut_off(tmp_path: Path) -> None:
    assert child(tmp_path, "", LONG="x" * ROOM * 2).wait() == 1
    assert "do not fit" in (tmp_path / "log").read_text()
