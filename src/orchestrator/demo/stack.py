"""``orch demo --stack``: the same two tickets, filed by a person at Plane or as issues at GitHub, with the code at a
forge.

The servers are played on loopback (:mod:`orchestrator.played`); what speaks to them is the product as a user has it:
`orch init`, `orch connect`, `orch serve`. A person answers in the tickets when asked.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.config import load_settings
from orchestrator.demo.agent_choice import AgentChoice
from orchestrator.demo.lives import PACKAGE_ROOT
from orchestrator.demo.proof import Proof, prove_delivery, show_costs, show_coverage
from orchestrator.demo.run import LOG, NAME, PREFIX, SETTINGS, STUCK, Demo, tickets
from orchestrator.demo.sample_repository import LOOPBACK, Sample, free_ports, write_sample
from orchestrator.demo.ticket_places import APPROVED, CALLS, CONFIRM, AtGitHub, AtPlane, TicketPlace
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub, Repository
from orchestrator.played.plane import FakePlane
from orchestrator.runtime.files import make_private_folder, replace_durably
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Liveness, ProcessIdentity
from orchestrator.wiring import App, open_readonly

FULL_NAME = f"acme/{NAME}"
ASKS = "\n[approvals]\nanalysis = true\ndeploy = true\n"
END_S = 60.0
_POLL_S = 0.2
_ANSWERS = {Stage.ANALYSIS: APPROVED, Stage.DEPLOY_STAGING: CONFIRM}


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers, and what lies there."""

    kind: str
    forge: FakeGitea | FakeGitHub
    tickets: TicketPlace
    repository: Path


@dataclass(slots=True)
class StackDemo(Demo):
    """One demo over played servers."""

    stack: str = "plane-gitea"
    _variables: dict[str, str] = field(default_factory=dict)
    _service: ProcessIdentity | None = None
    _answered: set[tuple[str, Stage, int]] = field(default_factory=set)

    def run(self, choice: AgentChoice) -> bool:
        """Deliver both tickets and prove it."""
        self.began = self.clock.boottime()
        self.echo(f"orchestrator demo, in {self.home}")
        self.echo(choice.said)
        git = Git(self.processes, name="A. Person", email="person@example.org")
        sample = self.sample = write_sample(
            self.home, git, python=sys.executable, agent=choice.table, more=ASKS
        )
        first = self._measure_first(sample, choice.environ)
        with played(self.stack, self.home, git, sample) as servers, ExitStack() as stack:
            told = self._set_up(servers, sample, choice.environ)
            stack.callback(self._end_service)
            with open_readonly(load_settings(self._variables), choice.environ) as app:
                self._file(servers.tickets)
                found = self._watch_tickets(app, servers.tickets, choice.patience_s)
                proof = self._prove(app, servers, sample, found, told, git)
                stories = [app.operations.story(task.work_item) for task in found]
                after = app.operations.baseline(NAME)
                show_coverage(
                    proof, stories, first=first, before=None, after=after.percent if after else None
                )
                show_costs(proof, stories, choice.cost_note)
        return self._verdict(proof)

    # -- steps -------------------------------------------------------------------------------------------------

    def _set_up(self, servers: Servers, sample: Sample, environ: Mapping[str, str]) -> str:
        """As a person sets it up: register, connect, paste the webhook that nobody else may make, start the service,
        connect again."""
        name, place = servers.kind.upper(), servers.tickets
        [port] = free_ports(1)
        secrets = self.home / "secrets"
        self._variables = {
            "ORCH_HOME": str(self.home / "state"),
            **SETTINGS,
            "ORCH_PORT": str(port),
            f"ORCH_{name}_URL": servers.forge.url,
            f"ORCH_{name}_TOKEN_FILE": _kept(secrets / "forge-token", servers.forge.token),
            "ORCH_FORGE_SETTLE_S": "0",
            **place.settings(),
            **_all_kept(secrets, place.secrets()),
        }

        def orch(*args: str) -> str:
            self._note("$ orch " + " ".join(args))
            done = self.processes.run(
                [sys.executable, "-P", "-m", "orchestrator", *args],
                cwd=sample.repository,
                env=self._environ(environ),
                timeout=END_S * 2,
            )
            said = (done.stdout + done.stderr).decode("utf-8", "replace")
            if done.returncode != 0:
                raise OutsideError(f"`orch {' '.join(args)}` failed: {said.strip()}")
            return said

        orch("init", f"--{servers.kind}", FULL_NAME, *place.init, "--prefix", PREFIX)
        orch("connect", servers.kind)
        made = self.home / "state" / "secrets" / f"{servers.kind}-webhook"
        self._variables[f"ORCH_{name}_WEBHOOK_SECRET_FILE"] = str(made)
        self._variables |= _all_kept(secrets, place.hook(f"http://{LOOPBACK}:{port}"))
        self._begin_service(environ)
        return orch("connect", servers.kind) + (orch("connect", place.connect) if place.connect else "")

    def _environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        return {**environ, **self._variables, "PYTHONPATH": str(PACKAGE_ROOT)}

    def _begin_service(self, environ: Mapping[str, str]) -> None:
        self._note("$ orch serve")
        self._service = self.processes.spawn(
            (sys.executable, "-P", "-m", "orchestrator", "serve"),
            cwd=self.home,
            env=self._environ(environ),
            output=self.home / LOG,
        )
        answers = self.home / "state" / "api.json"
        self._wait(answers.exists, "the service does not answer")

    def _end_service(self) -> None:
        if self._service is not None:
            self.processes.signal_group(self._service, signal.SIGTERM)
            service = self._service
            self._wait(lambda: self.processes.liveness(service) is Liveness.DEAD, "the service does not end")
            self._service = None

    def _wait(self, until: Callable[[], bool], otherwise: str) -> None:
        never, deadline = threading.Event(), self.clock.boottime() + END_S
        while not until():
            if self.clock.boottime() > deadline:
                raise OutsideError(f"Within {END_S:g} s {otherwise}; its log is {self.home / LOG}.")
            self.clock.wait(never, _POLL_S)

    def _file(self, place: TicketPlace) -> None:
        """A person files both tickets there."""
        for ticket in tickets():
            place.file(ticket)
            self._note(f"{place.person} files at {place.called}: {ticket.title}")

    def _watch_tickets(self, app: App, place: TicketPlace, patience_s: float) -> list[Task]:
        """Print what happens until every ticket is shown as done, or one is stuck; a person answers there."""
        never, deadline = threading.Event(), self.clock.boottime() + patience_s
        while True:
            known = [task for task in app.operations.tasks() if task.repo == NAME]
            found = [self._tell(app, task.work_item) for task in sorted(known, key=lambda task: task.id)]
            for task in found:
                self._answer(place, task)
            stuck = any(task.hold in STUCK - {Hold.PERSON} for task in found)
            if stuck or place.all_done():  # told a moment after it is done
                return found
            if self.clock.boottime() > deadline:
                self._note(f"gave up after {patience_s:g} s")
                return found
            self.clock.wait(never, _POLL_S)

    def _answer(self, place: TicketPlace, task: Task) -> None:
        wanted = _ANSWERS.get(task.stage) if task.hold is Hold.PERSON else None
        if wanted is None or (task.work_item, task.stage, task.round) in self._answered:
            return
        self._answered.add((task.work_item, task.stage, task.round))
        place.answer(task.title, wanted)
        self._note(f"{place.person} answers {task.work_item} at {place.called}: {wanted}")

    def _prove(
        self, app: App, servers: Servers, sample: Sample, found: Sequence[Task], told: str, git: Git
    ) -> Proof:
        proof, place = Proof(self.echo), servers.tickets
        proof.head("tickets")
        proof.claim(len(found) == len(tickets()), f"{len(found)} tickets were taken from {place.called}")
        stories = [app.operations.story(task.work_item) for task in found]
        for story in stories:
            text = f"{story.task.work_item} {story.task.title!r} is {story.task.stage}"
            proof.claim(story.task.stage is Stage.DONE, text)
        proof.head(f"tickets at {place.called}, as it shows itself")
        filed = place.prove(proof)
        proof.head(f"code at {servers.kind}, as it shows itself")
        there = servers.forge.repositories[FULL_NAME]
        for pull in there.pulls:
            proof.claim(bool(pull.merged), f"pull request {pull.number} {pull.title!r} is merged")
        proof.claim(len(there.pulls) == filed, f"{len(there.pulls)} pull requests were opened")
        connected = 1 if place.connect is None else 2
        proof.claim(
            told.count("was told of here") == connected, "a change at each server is told of here at once"
        )
        prove_delivery(proof, stories, sample, git=git, forge=str(servers.repository), http=app.http)
        return proof


@contextmanager
def played(stack: str, home: Path, git: Git, sample: Sample) -> Iterator[Servers]:
    """The servers for as long as the demo runs, with the sample's repository and no tickets yet."""
    kind = stack.removeprefix("plane-")
    with ExitStack() as open_until_then:
        forge: FakeGitea | FakeGitHub
        if kind == "github":
            forge = open_until_then.enter_context(FakeGitHub(home / "forge"))
        else:
            forge = open_until_then.enter_context(FakeGitea(home / "forge"))
        there = forge.create("acme", NAME)
        there.rights["orchbot"] = "admin"  # so that `orch connect` may make the webhook
        git.run(
            ["push", "-q", "--", str(there.path), "main:main"], cwd=sample.repository, protocols=("file",)
        )
        there.synchronise()
        place: TicketPlace
        if isinstance(there, Repository) and stack == kind:
            place = AtGitHub(there)
        else:
            place = AtPlane(open_until_then.enter_context(FakePlane(per_minute=CALLS)))
        yield Servers(kind, forge, place, there.path)


def _all_kept(folder: Path, secrets: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    return {setting: _kept(folder / name, value) for setting, (name, value) in secrets.items()}


def _kept(path: Path, secret: str) -> str:
    make_private_folder(path.parent)
    replace_durably(path, f"{secret}\n".encode())
    return os.fspath(path)
