"""The supervisor with real processes: whatever an agent does, the run ends, and nothing of it lives on."""

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.agents.run_folder import RunFolder
from orchestrator.agents.runs import Runs
from orchestrator.domain.job import RunOutcome
from orchestrator.repo_config.records import AgentConfig
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.process import SystemProcesses, pid_alive
from tests.integration.agents.running import Bench
from tests.waiting import wait_until

# Helpers: one that holds the pipe, one in a session of its own, one orphaned, one without our mark.
HELPERS = """
import os, subprocess, sys, time
tick = "import time\\nwhile True:\\n    open('ticks', 'a').write('x'); time.sleep(0.05)"
wait = "import time; time.sleep(300)"
subprocess.Popen([sys.executable, "-c", tick])
subprocess.Popen([sys.executable, "-c", wait], start_new_session=True)
subprocess.Popen(["sh", "-c", "nohup sleep DURATION >/dev/null 2>&1 &"]).wait()
subprocess.Popen(["env", "-i", "setsid", "sleep", "DURATION"])
print("ready", flush=True)
"""


def stat_of(handle_dir: Path) -> int:
    return RunFolder(handle_dir).output_log.stat().st_size


def test_agent_reads_its_prompt_and_ends_well(bench: Bench) -> None:
    handle = bench.start("cat")
    result = bench.wait(handle)
    assert (result.outcome, result.exit_code, result.summary) == (RunOutcome.DONE, 0, "the prompt")
    assert bench.output(handle) == "the prompt\n"


def test_exit_code_and_last_words_of_a_failure(bench: Bench) -> None:
    result = bench.wait(bench.start("sh", "-c", "echo working; echo it broke >&2; exit 7"))
    assert (result.outcome, result.exit_code) == (RunOutcome.CRASHED, 7)
    assert "it broke" in result.summary


@pytest.mark.parametrize("command", [("no-such-agent",), ("/etc/passwd",), ("",)])
def test_program_that_cannot_start_says_what_to_do(bench: Bench, command: tuple[str, ...]) -> None:
    result = bench.wait(bench.start(*command))
    assert result.outcome is RunOutcome.NOT_STARTED
    assert command[0] in result.summary
    assert ".orchestrator.toml" in result.summary


def test_timeout_kills_tree(bench: Bench) -> None:
    seconds = duration("timeout")
    handle = bench.python(HELPERS.replace("DURATION", seconds) + "time.sleep(300)", timeout_s=1.5)
    wait_until(lambda: len(sleepers(seconds)) == 2)
    result = bench.wait(handle)
    assert result.outcome is RunOutcome.LIMIT_TIME
    ticks = (bench.worktree / "ticks").stat().st_size
    assert ticks > 0
    assert not bench.left_of(handle)
    assert not sleepers(seconds)
    assert (bench.worktree / "ticks").stat().st_size == ticks


def duration(test: str) -> str:
    """A time that no other test lets anything sleep."""
    return f"300.{os.getpid()}{sum(test.encode())}"


def sleepers(seconds: str) -> list[str]:
    """Helpers of a test that still run, found without any mark of ours."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command, status = (place / "cmdline").read_bytes(), (place / "stat").read_text()
        except OSError:
            continue
        if command == f"sleep\0{seconds}\0".encode() and status.rpartition(")")[2].split()[0] != "Z":
            found.append(place.name)
    return found


def test_normal_end_leaves_nothing_running_either(bench: Bench) -> None:
    seconds = duration("normal")
    handle = bench.python(HELPERS.replace("DURATION", seconds))
    result = bench.wait(handle)
    assert result.outcome is RunOutcome.DONE
    assert not bench.left_of(handle)
    assert not sleepers(seconds)


def test_agent_that_ignores_signals_is_killed(bench: Bench) -> None:
    program = """
import signal, time
for number in (2, 15):
    signal.signal(number, signal.SIG_IGN)
print("up", flush=True)
time.sleep(300)
"""
    handle = bench.python(program)
    bench.until_said(handle, "up")
    bench.runs.stop(handle, "A person cancelled the task.")
    result = bench.wait(handle)
    assert (result.outcome, result.exit_code) == (RunOutcome.KILLED, -signal.SIGKILL)
    assert result.summary == "A person cancelled the task."


def test_success_after_a_stop_is_no_success(bench: Bench) -> None:
    program = """
import signal, sys, time
signal.signal(15, lambda *_: sys.exit(0))
print("up", flush=True)
time.sleep(300)
"""
    handle = bench.python(program)
    bench.until_said(handle, "up")
    bench.runs.stop(handle, "cancelled")
    assert bench.wait(handle).outcome is RunOutcome.KILLED


def test_silence_ends_it_and_words_do_not(bench: Bench) -> None:
    talk = "import time\nfor n in range(8):\n    print(n, flush=True); time.sleep(0.25)\n"
    result = bench.wait(bench.python(talk, stall_s=1.0))
    assert result.outcome is RunOutcome.DONE
    result = bench.wait(bench.python(talk + "time.sleep(300)", stall_s=1.0))
    assert result.outcome is RunOutcome.STALLED


def test_closed_output_is_silence_too(bench: Bench) -> None:
    handle = bench.python("import os, time\nos.close(1); os.close(2)\ntime.sleep(300)", stall_s=1.0)
    assert bench.wait(handle).outcome is RunOutcome.STALLED


def test_output_is_bounded_on_disk_and_in_memory(bench: Bench) -> None:
    program = (
        "import sys\nfor n in range(200):\n    sys.stdout.write(('%06d ' % n + 'x' * 1016 + '\\n') * 1024)"
    )
    handle = bench.python(program, log_cap_bytes=4 * 1024 * 1024)
    peak = 0
    folder = RunFolder(handle.run_dir)

    def ended() -> bool:
        nonlocal peak
        started = folder.started()
        if started is not None and started.identity is not None:
            peak = max(peak, rss(started.identity.pid))
        used = sum(path.stat().st_size for path in folder.path.glob("output.*") if path.exists())
        assert used < 9 * 1024 * 1024
        return bench.runs.result(handle.run_dir) is not None

    wait_until(ended, deadline=60, every=0.05)
    text = bench.output(handle)
    assert text.startswith("000000 ")
    assert text.rstrip().splitlines()[-1].startswith("000199 ")
    assert "bytes left out" in text
    assert len(text) < 5 * 1024 * 1024
    assert 0 < peak < 150 * 1024 * 1024


def rss(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * resource.getpagesize()


def test_line_without_end_is_bounded_too(bench: Bench) -> None:
    program = (
        "import sys\nfor n in range(40): sys.stdout.write('x' * 1024 * 1024)\nprint(); print('last words')"
    )
    handle = bench.python(program, log_cap_bytes=1024 * 1024)
    result = bench.wait(handle)
    assert (result.outcome, result.summary) == (RunOutcome.DONE, "last words")
    assert stat_of(handle.run_dir) < 1.1 * 1024 * 1024


def test_run_that_nobody_adopts_is_ended(bench: Bench) -> None:
    handle = bench.start("sleep", "300", orphan_ttl_s=1.5)
    wait_until(lambda: bench.runs.result(handle.run_dir))
    result = bench.runs.result(handle.run_dir)
    assert result is not None
    assert result.outcome is RunOutcome.KILLED
    assert "No orchestrator" in result.summary
    assert not bench.left_of(handle)


def test_who_may_not_adopt_watches_its_run_end(bench: Bench) -> None:
    """As a worker that is not heard of: before others take its run for lost, it is over."""
    handle = bench.start("sleep", "300", orphan_ttl_s=1.5)
    bench.runs = Runs(SystemProcesses(), SystemClock(), SystemEntropy(), may_adopt=lambda: False)
    assert "No orchestrator" in bench.wait(handle).summary


def test_adoption_keeps_it_alive(bench: Bench) -> None:
    handle = bench.start("sleep", "4", orphan_ttl_s=2)
    assert bench.wait(handle).outcome is RunOutcome.DONE


def test_environment_is_a_list_of_names(tmp_path: Path) -> None:
    hidden = {"ORCH_GITEA_TOKEN": "canary-1", "AWS_SECRET": "canary-2", "ANTHROPIC_API_KEY": "canary-3"}
    bench = Bench(tmp_path, {**os.environ, **hidden, "MY_KEY": "canary-shown-4", "LANG": "C.UTF-8"})
    program = (
        "import os, json; json.dump(dict(os.environ), open('env.json', 'w')); print(os.environ['MY_KEY'])"
    )
    config = AgentConfig(
        kind="command", command=(sys.executable, "-c", program), env=("MY_KEY", "ORCH_GITEA_TOKEN")
    )
    handle = bench.start(config=config)
    result = bench.wait(handle)
    seen = json.loads((bench.worktree / "env.json").read_text())
    assert result.outcome is RunOutcome.DONE
    assert seen["MY_KEY"] == "canary-shown-4"
    assert seen["HOME"] == str(handle.run_dir / "home")
    assert seen["GIT_CONFIG_GLOBAL"] == os.devnull
    assert seen["GIT_AUTHOR_NAME"]
    assert {name for name in seen if name.startswith("ORCH_")} == {
        "ORCH_RUN_ID",
        "ORCH_BRIEF",
        "ORCH_PROMPT",
        "ORCH_USAGE",
    }
    assert not [name for name, value in seen.items() if value in hidden.values()]
    assert any("ORCH_GITEA_TOKEN" in warning for warning in result.warnings)
    # The agent printed its key: it is in no file of the run folder, and neither are the others.
    for path in handle.run_dir.rglob("*"):
        if path.is_file() and path.name != "prompt.md":
            assert b"canary" not in path.read_bytes(), path
            assert path.stat().st_mode & 0o077 == 0, path


def test_tmp_is_private_and_gone_afterwards(bench: Bench) -> None:
    handle = bench.start("sh", "-c", 'echo x > "$TMPDIR/f"; echo "$TMPDIR"; test -d "$HOME"')
    assert bench.wait(handle).outcome is RunOutcome.DONE
    assert bench.output(handle).strip() == str(handle.run_dir / "tmp")
    assert not (handle.run_dir / "tmp").exists()


def test_usage_it_leaves_is_read_and_a_link_is_not(bench: Bench) -> None:
    result = bench.wait(
        bench.start("sh", "-c", """echo '{"input_tokens": 5, "cost_usd": 0.1}' > "$ORCH_USAGE" """)
    )
    assert (result.usage.input_tokens, result.usage.cost_usd) == (5, 0.1)
    (bench.root / "elsewhere").write_text('{"input_tokens": 9}')
    result = bench.wait(bench.start("sh", "-c", f'ln -s {bench.root / "elsewhere"} "$ORCH_USAGE"'))
    assert result.usage.input_tokens == 0
    result = bench.wait(bench.start("sh", "-c", 'mkfifo "$ORCH_USAGE"'))
    assert result.outcome is RunOutcome.DONE


def test_forged_exit_record_is_not_believed(bench: Bench) -> None:
    forge = """echo '{"outcome": "done", "summary": "forged"}' > "$HOME/../exit.json"; exit 3"""
    result = bench.wait(bench.start("sh", "-c", forge))
    assert (result.outcome, result.exit_code) == (RunOutcome.CRASHED, 3)


@pytest.mark.parametrize(
    "harm",
    [
        'rm -rf -- "$HOME/.."',
        'ln -sf /etc/passwd "$HOME/../.exit.reserve"',
        'rm "$HOME/../launch.json" "$HOME/../adopted"',
        'mkdir "$HOME/../progress.part" "$HOME/../heartbeat"',
    ],
)
def test_agent_that_harms_its_run_folder_is_reported_all_the_same(bench: Bench, harm: str) -> None:
    result = bench.wait(bench.start("sh", "-c", f"{harm}; sleep 1.2; exit 3"))
    assert (result.outcome, result.exit_code) == (RunOutcome.CRASHED, 3)


def test_log_that_cannot_grow_does_not_end_the_run(bench: Bench) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # as a full disk would, for the supervisor too
    try:
        handle = bench.python("print('x' * 1_000_000); print('last words')")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    result = bench.wait(handle)
    assert (result.outcome, result.summary) == (RunOutcome.DONE, "last words")
    assert any("could not be kept" in warning for warning in result.warnings)


def test_supervisor_starts_quickly_with_light_imports() -> None:
    heavy = """
import sys
import orchestrator.agents.supervisor
print([name for name in ("jinja2", "yaml", "pydantic", "httpx", "asyncio", "ssl") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-P", "-c", heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unreadable_launch_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "launch.json").write_text('{"agent": "command"}')
    done = subprocess.run(
        [sys.executable, "-P", "-m", "orchestrator.agents.supervisor", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "launch.json" in done.stderr
    assert not (tmp_path / "STARTED").exists()


def test_helper_pids_are_gone_for_real(bench: Bench) -> None:
    handle = bench.start("sh", "-c", "setsid sleep 299 & echo $! > pid; wait", timeout_s=1)
    assert bench.wait(handle).outcome is RunOutcome.LIMIT_TIME
    assert not pid_alive(int((bench.worktree / "pid").read_text()))
