"""Real runners, real commands, real kills: a start runs once, or never, and its end is known."""

import dataclasses
import json
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.deploy.command import CommandDeployer, DeployBounds
from orchestrator.deploy.deployer import StartGivenUp
from orchestrator.deploy.records import (
    EXIT_FILE,
    LOG_FILE,
    MARKER_NAME,
    START_FILE,
    STARTED_FILE,
    Claimant,
    DeployStart,
    Ending,
    started,
    to_bytes,
)
from orchestrator.deploy.runner import LOG_LIMIT
from orchestrator.domain.errors import AuthorityUnreachable, ConfigError, OutsideError, RequestRefused
from orchestrator.domain.ids import Digest, Sha, WorkItem
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.process import (
    Completed,
    Liveness,
    Machine,
    ProcessIdentity,
    SystemProcesses,
    pid_alive,
)
from orchestrator.runtime.sessions import SystemSessions
from tests.waiting import wait_until

SHA = Sha("c0ffee" + "0" * 34)
LONG = 60.0
RUNNER_ENV = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
BOUNDS = DeployBounds(claim_s=60.0, grace_s=1.0, kill_s=20.0, poll_s=0.02)
IN_VAIN = DeployBounds(grace_s=0.05, kill_s=0.05)  # where nothing can be ended


class Site:
    """One environment's state folder, a journal that commands write to, and a deployer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.processes = SystemProcesses()
        self.deployer = self.anew()

    def anew(
        self,
        processes: SystemProcesses | None = None,
        *,
        one_machine: bool = False,
        bounds: DeployBounds = BOUNDS,
    ) -> CommandDeployer:
        """A deployer that knows nothing, as after a restart."""
        return CommandDeployer(
            self.folder / "state" / "deploys",
            processes=processes or self.processes,
            sessions=SystemSessions(),
            clock=SystemClock(),
            environ={**os.environ, "SECRET_OF_OURS": "hunter2"},
            bounds=bounds,
            one_machine=one_machine,
        )

    def start(self, script: str, **changes: object) -> DeployStart:
        """A start whose command is a shell script; ``$J`` is the journal."""
        whole = DeployStart(
            environment="staging",
            sha=SHA,
            generation=1,
            digest=Digest("sha256:" + "0" * 64),
            artifact=None,
            token="7",
            argv=("sh", "-c", script),
            timeout_s=LONG,
            work_item=WorkItem("ORCH-1"),
            sequence=11,
            installation="inst",
            env={"J": str(self.journal)},
        )
        return dataclasses.replace(whole, **changes)  # type: ignore[arg-type]

    def lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []

    def of(self, start: DeployStart) -> Path:
        return self.folder / "state" / "deploys" / start.environment / f"{start.generation}-{start.sha}"

    def command(self, start: DeployStart) -> ProcessIdentity:
        claim = self.deployer.started(start)
        assert claim is not None
        assert claim.command is not None
        return claim.command

    def runner(self, start: DeployStart) -> ProcessIdentity:
        claim = self.deployer.started(start)
        assert claim is not None
        assert claim.runner is not None
        return claim.runner

    def kill_runner(self, start: DeployStart) -> None:
        """SIGKILL the runner alone, as the kernel does when memory is short."""
        runner = self.runner(start)
        os.kill(runner.pid, signal.SIGKILL)
        wait_until(lambda: self.processes.liveness(runner) is Liveness.DEAD)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    for claim_file in tmp_path.glob(f"state/deploys/*/*/{STARTED_FILE}"):
        try:
            claim = started(claim_file.parent)
        except AuthorityUnreachable:
            continue
        if claim and claim.command and claim.runner:
            site.processes.signal_group(claim.runner, signal.SIGKILL)
            SystemSessions().signal(
                claim.command, f"{MARKER_NAME}={claim.installation}-{claim.sequence}", signal.SIGKILL
            )


def never() -> threading.Event:
    return threading.Event()


def test_a_start_runs_and_leaves_its_exit_record(site: Site) -> None:
    start = site.start('echo "ran" >> "$J"; echo hello')
    site.deployer.start(start)
    claim = site.deployer.started(start)
    assert claim is not None
    assert (claim.by, claim.installation, claim.sequence, claim.token) == (Claimant.CHILD, "inst", 11, "7")
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert record.succeeded
    assert site.lines() == ["ran"]
    assert site.deployer.log_tail(start) == "hello\n"


def test_the_command_sees_what_it_was_promised_and_nothing_of_ours(site: Site) -> None:
    script = f"exec {sys.executable} -c 'import os,json; print(json.dumps(dict(os.environ)))'"
    start = site.start(script, env={"COLOUR": "blue", "ORCH_SHA": "forged", "PATH": os.environ["PATH"]})
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    env = json.loads(site.deployer.log_tail(start))
    expected = {
        "COLOUR": "blue",
        "ORCH_SHA": SHA,
        "ORCH_DIGEST": start.digest,
        "ORCH_ENVIRONMENT": "staging",
        "ORCH_GENERATION": "1",
        "ORCH_DEPLOY_TOKEN": "7",
        "ORCH_DEPLOY_KIND": "deploy",
        "ORCH_WORK_ITEM": "ORCH-1",
    }
    assert {name: env.get(name) for name in expected} == expected
    assert "SECRET_OF_OURS" not in env
    assert "PYTHONPATH" not in env


def test_arguments_are_not_shell_text(site: Site) -> None:
    hostile = "$(touch pwned); `id` && '\n--"
    start = site.start("", argv=("printf", "%s", hostile))
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    assert site.deployer.log_tail(start) == hostile


def test_the_same_start_twice_runs_once(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    site.deployer.start(start)
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    site.anew().start(start)
    assert site.lines() == ["ran"]


def test_many_at_once_run_once(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    barrier = threading.Barrier(4)

    def contend() -> None:
        barrier.wait()
        site.anew(SystemProcesses()).start(start)

    threads = [threading.Thread(target=contend) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.deployer.wait(start, never(), LONG)
    assert site.lines() == ["ran"]


def test_a_new_generation_of_the_same_sha_is_another_start(site: Site) -> None:
    first = site.start('echo "$ORCH_GENERATION" >> "$J"')
    second = dataclasses.replace(first, generation=2, sequence=12, token="8")
    for start in (first, second):
        site.deployer.start(start)
        assert site.deployer.wait(start, never(), LONG)
    assert site.lines() == ["1", "2"]


def test_what_was_revoked_never_runs(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    assert site.deployer.revoke(start).by is Claimant.REVOKER
    with pytest.raises(StartGivenUp):
        site.deployer.start(start)
    claim = site.deployer.started(start)
    assert claim is not None
    assert claim.by is Claimant.REVOKER
    assert site.deployer.wait(start, never(), LONG) is None
    assert site.deployer.exit(start) is None
    assert site.deployer.terminate(start) is None
    assert site.lines() == []


def test_a_revoke_that_comes_late_finds_the_child(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    site.deployer.start(start)
    assert site.deployer.revoke(start).by is Claimant.CHILD
    assert site.deployer.wait(start, never(), LONG)
    assert site.lines() == ["ran"]


def prepare(site: Site, start: DeployStart) -> Path:
    """The folder of a start as it is when the runner is about to be spawned."""
    site.deployer.revoke(start)  # makes the folder
    folder = site.of(start)
    (folder / STARTED_FILE).unlink()
    (folder / START_FILE).write_bytes(to_bytes(start))
    return folder


def freeze_before_claim(site: Site, start: DeployStart) -> ProcessIdentity:
    """A runner for ``start`` that is stopped right after it was spawned, before it can have claimed."""
    folder = prepare(site, start)
    pid_file = site.folder / "pid"
    # The stop comes from inside, before the runner's first line.
    code = (
        "import os, signal, sys, runpy\n"
        f"open({str(pid_file)!r}, 'w').write('x')\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        f"sys.argv = ['runner', {str(folder)!r}]\n"
        "runpy.run_module('orchestrator.deploy.runner', run_name='__main__')\n"
    )
    identity = site.processes.spawn(
        (sys.executable, "-c", code), cwd=folder, env=RUNNER_ENV, output=folder / LOG_FILE
    )
    wait_until(lambda: pid_file.exists() and stopped(identity.pid))
    return identity


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def test_a_frozen_runner_that_wakes_after_the_revoke_does_nothing(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    frozen = freeze_before_claim(site, start)
    assert site.deployer.revoke(start).by is Claimant.REVOKER
    os.kill(frozen.pid, signal.SIGCONT)
    wait_until(lambda: site.processes.liveness(frozen) is Liveness.DEAD)
    assert site.lines() == []
    assert not (site.of(start) / EXIT_FILE).exists()


def test_a_frozen_runner_that_wakes_after_another_has_run_does_nothing(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    frozen = freeze_before_claim(site, start)
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    os.kill(frozen.pid, signal.SIGCONT)
    wait_until(lambda: site.processes.liveness(frozen) is Liveness.DEAD)
    assert site.lines() == ["ran"]


def test_a_runner_killed_before_its_claim_has_not_started_and_may_be_repeated(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    frozen = freeze_before_claim(site, start)
    os.kill(frozen.pid, signal.SIGKILL)
    wait_until(lambda: site.processes.liveness(frozen) is Liveness.DEAD)
    assert site.deployer.started(start) is None
    assert site.deployer.exit(start) is None
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    assert site.lines() == ["ran"]


def test_a_runner_that_dies_before_its_claim_is_reported(site: Site) -> None:
    class Killing(SystemProcesses):
        def spawn(self, *args: object, **named: object) -> ProcessIdentity:
            identity = super().spawn(*args, **named)  # type: ignore[arg-type]
            self.signal_group(identity, signal.SIGKILL)
            return identity

    start = site.start('echo ran >> "$J"')
    with pytest.raises(OutsideError, match="died before it claimed"):
        site.anew(Killing()).start(start)
    assert site.deployer.started(start) is None
    assert site.lines() == []


def test_a_killed_runner_counts_as_a_killed_command(site: Site) -> None:
    start = site.start('echo began >> "$J"; sleep 600; echo survived >> "$J"')
    site.deployer.start(start)
    wait_until(lambda: site.lines() == ["began"])
    assert site.deployer.exit(start) is None  # it runs
    site.kill_runner(start)
    assert pid_alive(site.command(start).pid)
    record = site.anew().exit(start)
    assert record is not None
    assert record.ending is Ending.KILLED
    assert not record.succeeded
    assert not pid_alive(site.command(start).pid)
    assert site.anew().exit(start) == record
    site.anew().start(start)
    assert site.lines() == ["began"]


def test_what_a_dead_command_left_behind_is_ended_before_the_record(site: Site) -> None:
    start = site.start('sleep 600 & echo $! >> "$J"; timeout 600 sleep 600 & echo $! >> "$J"; wait')
    site.deployer.start(start)
    wait_until(lambda: len(site.lines()) == 2)
    left = [int(line) for line in site.lines()]
    site.kill_runner(start)
    os.kill(site.command(start).pid, signal.SIGKILL)
    wait_until(lambda: not pid_alive(site.command(start).pid))
    assert all(pid_alive(pid) for pid in left)
    record = site.deployer.exit(start)
    assert record is not None
    assert record.ending is Ending.KILLED
    assert not any(pid_alive(pid) for pid in left)


def run_with_clock(site: Site, start: DeployStart, clock: str) -> Completed:
    """Run a runner for ``start`` here and now; ``clock`` is the body of the clock it is given."""
    folder = prepare(site, start)
    code = (
        "import os, pathlib, signal\n"
        "from orchestrator.deploy.records import *\n"
        "from orchestrator.deploy.runner import Runner\n"
        "from orchestrator.runtime.clock import SystemClock\n"
        "from orchestrator.runtime.files import publish_exclusive\n"
        "from orchestrator.runtime.process import SystemProcesses\n"
        "from orchestrator.runtime.sessions import SystemSessions\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        f"class Told(SystemClock):\n{clock}\n"
        "outside = {'processes': SystemProcesses(), 'sessions': SystemSessions(), 'environ': os.environ}\n"
        "Runner(folder, clock=Told(), **outside).run()\n"
    )
    return site.processes.run((sys.executable, "-c", code), env=RUNNER_ENV, timeout=LONG)


def test_a_runner_killed_between_claim_and_command_leaves_nothing_running(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    # The runner first asks for a deadline when it has claimed.
    ended = run_with_clock(site, start, "    def boottime(self): os.kill(os.getpid(), signal.SIGKILL)")
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    command = site.command(start)
    wait_until(lambda: not pid_alive(command.pid))  # its gate has closed
    record = site.deployer.exit(start)
    assert record is not None
    assert record.ending is Ending.KILLED
    assert site.lines() == []


def test_a_revoke_between_the_runners_look_and_its_claim_wins(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    # The runner asks for the time of its claim when it has looked and found none.
    clock = (
        "    def utc(self):\n"
        "        claim = Started(Claimant.REVOKER, 'inst', 11, '7', 'now', 'host')\n"
        "        publish_exclusive(folder / STARTED_FILE, to_bytes(claim))\n"
        "        return super().utc()\n"
    )
    ended = run_with_clock(site, start, clock)
    assert (ended.returncode, ended.stderr) == (0, b"")
    claim = site.deployer.started(start)
    assert claim is not None
    assert claim.by is Claimant.REVOKER
    assert site.lines() == []
    assert not (site.of(start) / EXIT_FILE).exists()


def test_a_record_that_comes_while_the_runner_is_looked_at_is_believed(site: Site) -> None:
    start = site.start('sleep 600 & echo $! >> "$J"; exit 0')
    site.deployer.start(start)
    record = site.deployer.wait(start, never(), LONG)
    exit_file = site.of(start) / EXIT_FILE
    content = exit_file.read_bytes()
    exit_file.unlink()

    class Late(SystemProcesses):
        """The record is the runner's last act: it appears between two looks."""

        def liveness(self, identity: ProcessIdentity) -> Liveness:
            exit_file.write_bytes(content)
            return Liveness.DEAD

    assert site.anew(Late()).exit(start) == record
    assert pid_alive(int(site.lines()[0]))  # what a good command leaves behind is its service


@pytest.mark.parametrize(
    ("script", "ending", "code"),
    [
        ("exit 0", Ending.EXITED, 0),
        ("exit 3", Ending.EXITED, 3),
        ("kill -9 $$", Ending.KILLED, None),
    ],
)
def test_ends_are_recorded_as_they_were(site: Site, script: str, ending: Ending, code: int | None) -> None:
    start = site.start(script)
    site.deployer.start(start)
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert (record.ending, record.code) == (ending, code)


@pytest.mark.parametrize(("program", "code"), [("/no/such/program", 127), ("/etc/passwd", 126)])
def test_a_command_that_cannot_be_run_has_failed_and_says_why(site: Site, program: str, code: int) -> None:
    start = site.start("", argv=(program,))
    site.deployer.start(start)
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert (record.ending, record.code) == (Ending.EXITED, code)
    assert program in site.deployer.log_tail(start)


def test_the_time_out_ends_the_command_and_spares_its_service(site: Site) -> None:
    script = (
        'setsid sh -c \'echo "service $$" >> "$J"; exec sleep 600\' </dev/null >/dev/null 2>&1 &'
        'trap "" TERM; sleep 600 & echo "child $!" >> "$J"; echo "stubborn $$" >> "$J"; while :; do wait; done'
    )
    start = site.start(script, timeout_s=1.5)
    site.deployer.start(start)
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert record.ending is Ending.TIMED_OUT
    assert not record.succeeded
    pids = {line.split()[0]: int(line.split()[1]) for line in site.lines()}
    try:
        assert set(pids) == {"service", "child", "stubborn"}
        assert not pid_alive(pids["child"])
        assert not pid_alive(pids["stubborn"])
        assert pid_alive(pids["service"])
    finally:
        os.kill(pids["service"], signal.SIGKILL)


def test_a_service_survives_the_command_that_started_it(site: Site) -> None:
    script = (
        'setsid sh -c \'echo $$ >> "$J"; echo service; exec sleep 600\' & while [ ! -s "$J" ]; do :; done'
    )
    start = site.start(script)
    site.deployer.start(start)
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert record.succeeded
    service = int(site.lines()[0])
    try:
        assert (
            site.deployer.terminate(start) == record
        )  # it has ended already; what it started is none of our business
        wait_until(lambda: site.processes.liveness(site.runner(start)) is Liveness.DEAD)
        assert pid_alive(service)
    finally:
        os.kill(service, signal.SIGKILL)


def test_a_failed_command_leaves_nothing_at_work(site: Site) -> None:
    start = site.start('sleep 600 & echo $! >> "$J"; exit 1')
    site.deployer.start(start)
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert record.code == 1
    assert not pid_alive(int(site.lines()[0]))


@pytest.mark.parametrize("trap", ["", 'trap "exit 0" TERM; ', 'trap "" TERM; '])
def test_terminate_ends_the_command_and_counts_as_failure(site: Site, trap: str) -> None:
    start = site.start(trap + 'echo began >> "$J"; while :; do sleep 0.05; done')
    site.deployer.start(start)
    wait_until(lambda: site.lines() == ["began"])
    record = site.deployer.terminate(start)
    assert record is not None
    assert record.ending is Ending.KILLED
    assert not pid_alive(site.command(start).pid)
    assert site.deployer.terminate(start) == record
    wait_until(lambda: site.processes.liveness(site.runner(start)) is Liveness.DEAD)
    assert site.deployer.exit(start) == record


def test_terminate_does_not_wait_for_a_frozen_runner(site: Site) -> None:
    start = site.start('echo began >> "$J"; sleep 600')
    site.deployer.start(start)
    wait_until(lambda: site.lines() == ["began"])
    runner = site.runner(start)
    os.kill(runner.pid, signal.SIGSTOP)
    record = site.deployer.terminate(start)
    assert record is not None
    assert record.ending is Ending.KILLED
    os.kill(runner.pid, signal.SIGCONT)
    wait_until(lambda: site.processes.liveness(runner) is Liveness.DEAD)
    assert site.deployer.exit(start) == record  # the first record stands


def test_terminate_before_anything_started_says_there_is_nothing(site: Site) -> None:
    assert site.deployer.terminate(site.start("exit 0")) is None


def test_the_runner_is_not_stopped_by_polite_signals(site: Site) -> None:
    start = site.start('echo began >> "$J"; while [ ! -e "$J.go" ]; do sleep 0.02; done')
    site.deployer.start(start)
    wait_until(lambda: site.lines() == ["began"])
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(site.runner(start).pid, signum)
    Path(f"{site.journal}.go").touch()
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert record.succeeded


def test_waiting_ends_when_told_to_or_at_the_deadline(site: Site) -> None:
    start = site.start("sleep 600")
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), 0.1) is None
    stop = threading.Event()
    stop.set()
    assert site.deployer.wait(start, stop, LONG) is None
    assert pid_alive(site.command(start).pid)


class Known(SystemProcesses):
    """On a machine with a name and an id."""

    def __init__(self, id: str, host: str = "orch") -> None:
        super().__init__()
        self._machine = Machine(host, id)

    def machine(self) -> Machine:
        return self._machine


def _ran_before_a_boot(site: Site, start: DeployStart, machine: str) -> None:
    """On a machine that is called like ours, before it was booted."""
    site.anew(Known(machine)).revoke(start)
    claim = site.deployer.started(start)
    assert claim is not None
    before = ProcessIdentity("an-earlier-boot", "pid:[1]", os.getpid(), 1)
    ran = dataclasses.replace(claim, by=Claimant.CHILD, host="orch", runner=before, command=before)
    ran = dataclasses.replace(ran, machine=machine) if machine else ran
    (site.of(start) / STARTED_FILE).write_bytes(to_bytes(ran))


@pytest.mark.parametrize(("then", "now"), [("ours", "ours"), ("", "ours"), ("ours", ""), ("", "")])
def test_a_reboot_ends_whatever_ran(site: Site, then: str, now: str) -> None:
    """Where no other machine uses the state folder its name is enough, should its id not be known."""
    start = site.start("sleep 600")
    _ran_before_a_boot(site, start, then)
    record = site.anew(Known(now), one_machine=not (then and now)).exit(start)
    assert record is not None
    assert record.ending is Ending.KILLED


@pytest.mark.parametrize(("then", "now"), [("", "ours"), ("theirs", ""), ("", ""), ("theirs", "ours")])
def test_a_machine_that_is_called_like_ours_is_not_taken_for_ours(site: Site, then: str, now: str) -> None:
    """Two of one name may share a state folder: what runs on the other one is not ended by our boot."""
    start = site.start("sleep 600")
    _ran_before_a_boot(site, start, then)
    ours = site.anew(Known(now), one_machine=bool(then and now), bounds=IN_VAIN)
    assert ours.exit(start) is None
    with pytest.raises(AuthorityUnreachable, match="could not be ended"):
        ours.terminate(start)
    assert not (site.of(start) / EXIT_FILE).exists()


def test_a_clone_of_our_machine_with_a_name_of_its_own_is_not_taken_for_ours(site: Site) -> None:
    start = site.start("sleep 600")
    _ran_before_a_boot(site, start, "one image")
    assert site.anew(Known("one image", "another name")).exit(start) is None


def test_a_claim_says_on_which_machine_the_command_runs(site: Site) -> None:
    start = site.start("exit 0")
    site.deployer.start(start)
    claim = site.deployer.started(start)
    assert claim is not None
    assert Machine(claim.host, claim.machine) == site.processes.machine()


def test_another_machines_runner_is_never_taken_for_dead(site: Site) -> None:
    start = site.start("sleep 600")
    site.deployer.revoke(start)
    claim = site.deployer.started(start)
    assert claim is not None
    there = ProcessIdentity("another-boot", "pid:[1]", os.getpid(), 1)
    remote = dataclasses.replace(claim, by=Claimant.CHILD, runner=there, command=there, host="elsewhere")
    (site.of(start) / STARTED_FILE).write_bytes(to_bytes(remote))
    assert site.deployer.exit(start) is None
    with pytest.raises(AuthorityUnreachable, match="could not be ended"):
        site.anew(bounds=IN_VAIN).terminate(start)
    assert not (site.of(start) / EXIT_FILE).exists()


def test_a_person_may_declare_the_end_of_what_ran_on_another_machine(site: Site) -> None:
    start = site.start("sleep 600")
    site.deployer.revoke(start)
    claim = site.deployer.started(start)
    assert claim is not None
    there = ProcessIdentity("another-boot", "pid:[1]", os.getpid(), 1)
    remote = dataclasses.replace(claim, by=Claimant.CHILD, runner=there, command=there, host="elsewhere")
    (site.of(start) / STARTED_FILE).write_bytes(to_bytes(remote))
    assert site.deployer.exit(start) is None
    ended = site.deployer.declare_ended(start, "Ann: that machine was scrapped")
    assert (ended.ending, ended.succeeded) == (Ending.DECLARED, False)
    assert "scrapped" in ended.detail
    assert site.anew().exit(start) == site.deployer.declare_ended(start, "Bob: again") == ended


@pytest.mark.parametrize("file", [STARTED_FILE, EXIT_FILE])
def test_a_person_may_declare_an_end_whose_record_cannot_be_read(site: Site, file: str) -> None:
    start = site.start("exit 0")
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    claim = site.deployer.started(start)
    assert claim is not None
    assert claim.runner is not None
    runner = claim.runner
    wait_until(lambda: site.processes.liveness(runner) is Liveness.DEAD, LONG)
    (site.of(start) / EXIT_FILE).unlink()
    (site.of(start) / file).write_bytes(b"{")
    with pytest.raises(AuthorityUnreachable):
        site.deployer.exit(start)
    assert site.deployer.declare_ended(start, "Ann: I looked").ending is Ending.DECLARED
    ended = site.anew().wait(start, never(), LONG)
    assert ended is not None
    assert ended.ending is Ending.DECLARED


def test_what_is_seen_to_be_at_work_has_not_ended_whatever_is_said(site: Site) -> None:
    start = site.start('echo ran >> "$J"; sleep 600')
    site.deployer.start(start)
    wait_until(site.lines)
    with pytest.raises(RequestRefused, match="is at work"):
        site.deployer.declare_ended(start, "Ann: it is gone")
    assert site.deployer.exit(start) is None
    ended = site.deployer.terminate(start)
    assert ended is not None
    assert site.deployer.declare_ended(start, "Ann: it is gone") == ended


@pytest.mark.parametrize("change", [{"token": "8"}, {"sequence": 12}, {"installation": "clone"}])
def test_another_intents_start_is_in_doubt(site: Site, change: dict[str, object]) -> None:
    start = site.start('echo ran >> "$J"')
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    other = dataclasses.replace(start, **change)  # type: ignore[arg-type]
    acts: list[Callable[[DeployStart], object]] = [
        site.deployer.start, site.deployer.started, site.deployer.revoke, site.deployer.terminate,
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(AuthorityUnreachable, match="another intent"):
            act(other)
    assert site.lines() == ["ran"]


def test_an_unreadable_claim_is_in_doubt_and_starts_nothing(site: Site) -> None:
    start = site.start('echo ran >> "$J"')
    site.deployer.revoke(start)
    (site.of(start) / STARTED_FILE).write_bytes(b"")
    for act in (site.deployer.start, site.deployer.started, site.deployer.revoke, site.deployer.exit):
        with pytest.raises(AuthorityUnreachable):
            act(start)
    assert site.lines() == []


def test_a_state_folder_that_cannot_be_written_is_an_unreachable_authority(site: Site) -> None:
    (site.folder / "state").write_text("a file where the folder should be")
    start = site.start("exit 0")
    for act in (site.deployer.start, site.deployer.revoke):
        with pytest.raises(AuthorityUnreachable, match="cannot be written"):
            act(start)


def test_an_environment_name_cannot_leave_the_state_folder(site: Site) -> None:
    with pytest.raises(ConfigError):
        site.deployer.start(site.start("exit 0", environment="../../etc"))


def test_the_log_of_a_flood_is_bounded_and_keeps_the_end(site: Site) -> None:
    start = site.start("head -c 30000000 /dev/zero | tr '\\0' x; sleep 1; echo THE END")
    site.deployer.start(start)
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert record.succeeded
    log = site.of(start) / LOG_FILE
    assert log.stat().st_size <= LOG_LIMIT
    assert site.deployer.log_tail(start, 20).endswith("THE END\n")


def test_records_and_log_are_private(site: Site) -> None:
    start = site.start("exit 0")
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    folder = site.of(start)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("start.json", STARTED_FILE, EXIT_FILE, LOG_FILE):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_the_command_gets_a_copy_of_the_artefact_it_may_change(site: Site) -> None:
    store = site.folder / "object"
    (store / "bin").mkdir(parents=True)
    (store / "bin" / "run").write_text("#!/bin/sh\necho from the artefact\n")
    (store / "bin" / "run").chmod(0o555)
    (store / "data").write_text("kept")
    (store / "data").chmod(0o444)
    (store / "link").symlink_to("data")
    (store / "bin").chmod(0o555)
    store.chmod(0o555)
    script = 'cd "$ORCH_ARTIFACT" && ./bin/run && echo more >> data && cat link && rm -r bin && pwd'
    start = site.start(script, artifact=store)
    site.deployer.start(start)
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert record.succeeded, site.deployer.log_tail(start)
    assert site.deployer.log_tail(start).startswith("from the artefact\nkeptmore\n")
    assert (store / "data").read_text() == "kept"
    assert (store / "bin" / "run").exists()
    for folder in (store, store / "bin"):
        folder.chmod(0o755)


def test_a_file_artefact_keeps_its_name(site: Site) -> None:
    artefact = site.folder / "app-1.0.whl"
    artefact.write_text("wheel")
    start = site.start(
        'echo "${ORCH_ARTIFACT##*/}"; cat "$ORCH_ARTIFACT"; cat app-1.0.whl', artifact=artefact
    )
    site.deployer.start(start)
    assert site.deployer.wait(start, never(), LONG)
    assert site.deployer.log_tail(start) == "app-1.0.whl\nwheelwheel"


def test_a_missing_artefact_is_a_failed_start_and_the_command_never_runs(site: Site) -> None:
    start = site.start('echo ran >> "$J"', artifact=site.folder / "gone")
    site.deployer.start(start)
    record = site.deployer.wait(start, never(), LONG)
    assert record is not None
    assert not record.succeeded
    assert "artefact" in record.detail
    assert site.lines() == []
