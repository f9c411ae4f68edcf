"""``orch demo``: a sample service, two tickets, the whole pipeline, and what can be proved at the end.

The demo has a home of its own and ends what it started: the services by pid and start time, agent runs through their
supervisors. It never touches another installation. A claim that does not hold, or a ticket that is not done, makes
the exit code 1 and keeps the home for a look.
"""

import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import yaml

from orchestrator.agents.runs import Runs
from orchestrator.config import Settings, load_settings
from orchestrator.coverage.reader import read_coverage
from orchestrator.demo.agent_choice import AgentChoice, choose_agent
from orchestrator.demo.lives import POINTS, Lives
from orchestrator.demo.progress import line_of
from orchestrator.demo.proof import Proof, prove_delivery, prove_lives, show_costs, show_coverage
from orchestrator.demo.sample_repository import DATA, Sample, write_sample
from orchestrator.demo.services import log_of, running, stop
from orchestrator.deploy.command import CommandDeployer
from orchestrator.deploy.records import read_start
from orchestrator.domain.errors import OutsideError, RequestRefused
from orchestrator.domain.ids import EventId
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task, Ticket
from orchestrator.main import Service
from orchestrator.observability.log import configure_logging
from orchestrator.runtime.clock import Clock, SystemClock
from orchestrator.runtime.entropy import SystemEntropy
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Children, SystemProcesses
from orchestrator.runtime.sessions import SystemSessions
from orchestrator.wiring import App, open_app, open_readonly

Echo = Callable[[str], None]

NAME, PREFIX = "greeter", "GREET"
LOG = "demo.log"
POLL_SECONDS = 0.2
CHECK_SECONDS = 60.0
RUN_END_SECONDS = 10.0
STUCK = frozenset({Hold.ESCALATED, Hold.BLOCKED, Hold.PERSON})
SETTINGS = {  # two tickets at once on a small machine; nothing of the demo outlives it for long
    "ORCH_MAX_AGENTS": "2",
    "ORCH_MAX_CHECKS": "2",
    "ORCH_PORT": "0",
    "ORCH_RUN_ORPHAN_TTL_S": "60",
    "ORCH_RECONCILER_INTERVAL_S": "5",
}


def run_demo(
    agent: str = "scripted",
    keep: bool = False,
    home: Path | None = None,
    echo: Echo = print,
    *,
    kill: bool = False,
    make: "Callable[..., Demo] | None" = None,
) -> int:
    """Run the demo and print it; 0 iff both tickets are done and every claim at the end holds.

    ``keep`` leaves the services running and the home in place. ``home`` must be new or empty; by default it is a
    temporary folder. ``kill`` runs the service as processes that end themselves by SIGKILL at the merge and at the
    deploy to production. ``make`` is another kind of demo.

    :raises RequestRefused: the home is not empty, or there is no such agent.
    :raises OutsideError: git or the disk failed.
    """
    processes, clock = SystemProcesses(), SystemClock()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ORCH_")}
    place = _make_home(home)
    demo = (make or Demo)(place, echo, processes, clock, kill)
    good = False
    try:
        with (
            _polite_end(),
            choose_agent(agent, place, python=sys.executable, processes=processes, environ=environ) as choice,
        ):
            good = demo.run(choice)
    finally:
        demo.end(keep=keep, good=good, own_home=home is None)
    return 0 if good else 1


@dataclass(slots=True)
class Demo:
    """One demo from the first file to the last process."""

    home: Path
    echo: Echo
    processes: Children
    clock: Clock
    kill: bool = False
    began: float = 0.0
    sample: Sample | None = None
    _seen: dict[str, int] = field(default_factory=dict)

    def run(self, choice: AgentChoice) -> bool:
        """Deliver both tickets and prove it."""
        self.began = self.clock.boottime()
        self.echo(f"orchestrator demo, in {self.home}")
        self.echo(choice.said)
        git = Git(self.processes, name="A. Person", email="person@example.org")
        sample = self.sample = write_sample(self.home, git, python=sys.executable, agent=choice.table)
        first = self._measure_first(sample, choice.environ)
        variables = {"ORCH_HOME": str(self.home / "state"), **SETTINGS}
        settings = load_settings(variables)
        with ExitStack() as stack:
            with open_app(settings, choice.environ, role="demo") as app:
                # Here and not before: to open the application sets its log up anew.
                stack.enter_context(_log_to(self.home / LOG, settings, self.clock))
                repository = app.register_repository(sample.repository, name=NAME, prefix=PREFIX)
                before = app.operations.baseline(NAME)
                self._note(f"registered {NAME} ({sample.first_commit[:12]}) and filed two tickets")
                filed = [app.operations.add_task(NAME, ticket).work_item for ticket in tickets()]
                if not self.kill:
                    with Service(app):
                        self._watch(app, filed, choice.patience_s)
            lives = Lives({**choice.environ, **variables}, self.home / LOG, self.processes, self.clock)
            if self.kill:
                self._watch_lives(lives, settings, choice, filed)
            with open_app(settings, choice.environ, role="demo") as app:
                stories = [app.operations.story(work_item) for work_item in filed]
                proof = Proof(self.echo)
                proof.head("tickets")
                for story in stories:
                    text = f"{story.task.work_item} {story.task.title!r} is {story.task.stage}"
                    proof.claim(story.task.stage is Stage.DONE, text)
                if self.kill:
                    prove_lives(proof, lives.ended, len(POINTS), deploys=app.folders.deploys)
                prove_delivery(proof, stories, sample, git=git, forge=repository.location, http=app.http)
                after = app.operations.baseline(NAME)
                show_coverage(
                    proof,
                    stories,
                    first=first,
                    before=before.percent if before else None,
                    after=after.percent if after else None,
                )
                show_costs(proof, stories, choice.cost_note)
                proof.head("orch why")
                for work_item in filed:
                    self.echo(f"  {app.operations.why(work_item).line()}")
        return self._verdict(proof)

    def end(self, *, keep: bool, good: bool, own_home: bool) -> None:
        """End what the demo started, unless it is to be kept; say what is left and how to be rid of it."""
        self._end_runs()
        if not keep:
            self._end_deploys()
        if self.sample is not None:
            for environment in (self.sample.staging, self.sample.production):
                identity = running(environment, self.processes)
                if identity is None:
                    continue
                if keep:
                    self.echo(
                        f"{environment.name} goes on at {environment.url}; end it with: kill {identity.pid}"
                    )
                elif not stop(environment, self.processes, self.clock):
                    self.echo(f"{environment.name} could not be ended: kill {identity.pid}")
        if keep and self.sample is not None:
            state = shlex.quote(str(self.home / "state"))
            self.echo(
                f"Its board: start `orch serve` with ORCH_HOME={state}, and open the address it prints."
            )
        if keep or not own_home or (self.sample is not None and not good):
            self.echo(f"Everything is in {self.home}; remove the folder when you have seen enough.")
        else:
            shutil.rmtree(self.home, ignore_errors=True)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _watch_lives(
        self, lives: Lives, settings: Settings, choice: AgentChoice, filed: Sequence[str]
    ) -> None:
        """Watch from beside, as ``orch task list`` does, what several lives of the service come to."""

        def look() -> None:
            told = lives.go_on()
            if told is not None:
                self._note(f"*** {told}")

        try:
            with open_readonly(settings, choice.environ) as app:
                self._watch(app, filed, choice.patience_s, look)
        finally:
            lives.end()

    def _watch(
        self, app: App, filed: Sequence[str], patience_s: float, look: Callable[[], None] = lambda: None
    ) -> None:
        """Print what happens until every ticket has come to rest; ``look`` goes with every round."""
        never = threading.Event()
        deadline = self.clock.boottime() + patience_s
        while True:
            look()
            tasks = [self._tell(app, work_item) for work_item in filed]
            if all(task.stage.terminal or task.hold in STUCK for task in tasks):
                break
            if self.clock.boottime() > deadline:
                self._note(f"gave up after {patience_s:g} s")
                break
            self.clock.wait(never, POLL_SECONDS)
        for task in tasks:
            if not task.stage.terminal:
                self._note(app.operations.why(task.work_item).line())

    def _tell(self, app: App, work_item: str) -> Task:
        story = app.operations.story(work_item, events_after=self._seen.get(work_item, 0))
        for event in story.events:
            self._seen[work_item] = EventId(event.id)
            line = line_of(work_item, event)
            if line is not None:
                self._note(line)
        return story.task

    def _measure_first(self, sample: Sample, environ: Mapping[str, str]) -> float | None:
        """The first commit's coverage, so that there is something to compare with."""
        done = self.processes.run(
            [sys.executable, "ci/check.py"], cwd=sample.repository, env=environ, timeout=CHECK_SECONDS
        )
        try:
            report = read_coverage(
                Path("coverage.json"), "coverage.py", root=sample.repository, newer_than=None
            )
        except OutsideError:
            report = None
        if done.returncode != 0 or report is None:
            words = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise OutsideError(
                f"The sample's own tests do not pass here: {words[-1] if words else 'they said nothing'}.",
                hint="The demo wants coverage.py beside this Python; `./dev demo` installs it.",
            )
        return report.percent

    def _end_runs(self) -> None:
        """Ask supervisors that still run to end their agents, and wait a little for it."""
        runs = Runs(self.processes, self.clock, SystemEntropy())
        folder = self.home / "state" / "runs"
        places = [place for place in folder.glob("*") if place.is_dir()] if folder.is_dir() else []
        open_runs = []
        for place in places:
            with suppress(OSError, OutsideError):
                handle = runs.adopt(place) if runs.result(place) is None else None
                if handle is not None:
                    runs.stop(handle, "the demo has ended")
                    open_runs.append(place)
        deadline = self.clock.boottime() + RUN_END_SECONDS
        never = threading.Event()
        while open_runs and self.clock.boottime() < deadline:
            open_runs = [place for place in open_runs if runs.result(place) is None]
            self.clock.wait(never, POLL_SECONDS)

    def _end_deploys(self) -> None:
        """Let no deploy that is under way start a service behind our back."""
        root = self.home / "state" / "deploys"
        deployer = CommandDeployer(
            root, processes=self.processes, sessions=SystemSessions(), clock=self.clock, environ={}
        )
        for place in root.glob("*/*") if root.is_dir() else ():
            with suppress(OSError, OutsideError):
                start = read_start(place)
                if start is not None and deployer.exit(start) is None:
                    deployer.revoke(start)
                    deployer.terminate(start)

    def _verdict(self, proof: Proof) -> bool:
        self.echo("")
        took = self.clock.boottime() - self.began
        if proof.holds:
            self.echo(f"Both tickets are delivered, and every claim above holds. It took {took:.0f} s.")
            return True
        self.echo(f"{len(proof.failures)} claims do not hold (after {took:.0f} s):")
        for failure in proof.failures:
            self.echo(f"  - {failure}")
        self.echo(f"The log is {self.home / LOG}.")
        if self.sample is not None:
            logs = ", ".join(str(log_of(e)) for e in (self.sample.staging, self.sample.production))
            self.echo(f"The services wrote to {logs}.")
        return False

    def _note(self, text: str) -> None:
        self.echo(f"[{self.clock.boottime() - self.began:5.1f} s] {text}")


def tickets() -> list[Ticket]:
    """The demo's tickets, from the package's data."""
    data = yaml.safe_load((DATA / "tickets.yaml").read_text(encoding="utf-8"))
    return [Ticket(title=entry["title"], body=entry["body"]) for entry in data]


@contextmanager
def _polite_end() -> Iterator[None]:
    """SIGTERM ends the demo as an error would: what was started is ended too."""

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _make_home(home: Path | None) -> Path:
    if home is None:
        return Path(tempfile.mkdtemp(prefix="orch-demo-")).resolve()
    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise RequestRefused(
            f"{home} is not empty; the demo was not started.", hint="Name a new or an empty folder."
        )
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return home.resolve()


@contextmanager
def _log_to(place: Path, settings: Settings, clock: Clock) -> Iterator[None]:
    """The service's log goes to a file, so that the demo's own words can be read."""
    with place.open("a", encoding="utf-8") as stream:
        configure_logging(settings, (), utc=clock.utc, stream=stream)
        try:
            yield
        finally:
            configure_logging(settings, (), utc=clock.utc)
