"""``orch demo --stack``: the same two tickets, filed by a person at Plane, with the code at Gitea or GitHub.

The servers are played on loopback (:mod:`orchestrator.played`); what speaks to them is the product as a user has it:
`orch init`, `orch connect`, `orch serve`. A person moves the tickets to Approved and Confirm Deploy there when asked.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from orchestrator.config import load_settings
from orchestrator.demo.agent_choice import AgentChoice
from orchestrator.demo.lives import PACKAGE_ROOT
from orchestrator.demo.proof import Proof, prove_delivery, show_costs, show_coverage
from orchestrator.demo.run import LOG, NAME, PREFIX, SETTINGS, STUCK, Demo, tickets
from orchestrator.demo.sample_repository import LOOPBACK, Sample, free_ports, write_sample
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold, Task
from orchestrator.played.gitea import FakeGitea
from orchestrator.played.github import FakeGitHub
from orchestrator.played.plane import FakePlane, Item, Project
from orchestrator.played.plane.server import KEY
from orchestrator.runtime.files import make_private_folder, replace_durably
from orchestrator.runtime.git import Git
from orchestrator.runtime.process import Liveness, ProcessIdentity
from orchestrator.wiring import App, open_readonly

FULL_NAME = f"acme/{NAME}"
ASKS = "\n[approvals]\nanalysis = true\ndeploy = true\n"
CALLS = 2_000  # in a minute: nobody else shares this Plane
END_S = 60.0
_POLL_S = 0.2
_ANSWERS = {Stage.ANALYSIS: "Approved", Stage.DEPLOY_STAGING: "Confirm Deploy"}


@dataclass(frozen=True, slots=True)
class Servers:
    """The two servers, and what lies there."""

    kind: str
    forge: FakeGitea | FakeGitHub
    plane: FakePlane
    repository: Path
    project: Project


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
                items = self._file(servers)
                found = self._watch_tickets(app, servers, items, choice.patience_s)
                proof = self._prove(app, servers, sample, items, found, told, git)
                stories = [app.operations.story(task.work_item) for task in found]
                after = app.operations.baseline(NAME)
                show_coverage(
                    proof, stories, first=first, before=None, after=after.percent if after else None
                )
                show_costs(proof, stories, choice.cost_note)
        return self._verdict(proof)

    # -- steps -------------------------------------------------------------------------------------------------

    def _set_up(self, servers: Servers, sample: Sample, environ: Mapping[str, str]) -> str:
        """As a person sets it up: register, connect, paste Plane's webhook, start the service, connect again."""
        name = servers.kind.upper()
        [port] = free_ports(1)
        secrets = self.home / "secrets"
        self._variables = {
            "ORCH_HOME": str(self.home / "state"),
            **SETTINGS,
            "ORCH_PORT": str(port),
            f"ORCH_{name}_URL": servers.forge.url,
            f"ORCH_{name}_TOKEN_FILE": _kept(secrets / "forge-token", servers.forge.token),
            "ORCH_FORGE_SETTLE_S": "0",
            "ORCH_PLANE_URL": servers.plane.url,
            "ORCH_PLANE_TOKEN_FILE": _kept(secrets / "plane-key", KEY),
            "ORCH_PLANE_CALLS_PER_MINUTE": str(CALLS),
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

        orch("init", f"--{servers.kind}", FULL_NAME, "--plane", f"acme/{PREFIX}", "--prefix", PREFIX)
        orch("connect", servers.kind)
        made = self.home / "state" / "secrets" / f"{servers.kind}-webhook"
        self._variables[f"ORCH_{name}_WEBHOOK_SECRET_FILE"] = str(made)
        hook = servers.plane.hook(f"http://{LOOPBACK}:{port}/webhooks/plane")
        self._variables["ORCH_PLANE_WEBHOOK_SECRET_FILE"] = _kept(secrets / "plane-webhook", hook.secret)
        self._begin_service(environ)
        return orch("connect", servers.kind) + orch("connect", "plane")

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

    def _file(self, servers: Servers) -> list[Item]:
        """A person files both tickets at Plane."""
        items = []
        for ticket in tickets():
            html = "".join(f"<p>{escape(line)}</p>" for line in ticket.body.splitlines())
            items.append(servers.plane.ticket(servers.project, ticket.title, "orch", html=html))
            self._note(f"Ann files at Plane: {ticket.title}")
        return items

    def _watch_tickets(
        self, app: App, servers: Servers, items: Sequence[Item], patience_s: float
    ) -> list[Task]:
        """Print what happens until Plane shows every ticket as done, or one is stuck; a person answers there."""
        never, deadline = threading.Event(), self.clock.boottime() + patience_s
        while True:
            known = [task for task in app.operations.tasks() if task.repo == NAME]
            found = [self._tell(app, task.work_item) for task in sorted(known, key=lambda task: task.id)]
            for task in found:
                self._answer(servers, items, task)
            stuck = any(task.hold in STUCK - {Hold.PERSON} for task in found)
            shown = all(item.state.group == "completed" for item in items)  # told a moment after it is done
            if stuck or shown:
                return found
            if self.clock.boottime() > deadline:
                self._note(f"gave up after {patience_s:g} s")
                return found
            self.clock.wait(never, _POLL_S)

    def _answer(self, servers: Servers, items: Sequence[Item], task: Task) -> None:
        wanted = _ANSWERS.get(task.stage) if task.hold is Hold.PERSON else None
        if wanted is None or (task.work_item, task.stage, task.round) in self._answered:
            return
        self._answered.add((task.work_item, task.stage, task.round))
        [item] = [item for item in items if item.name == task.title]
        servers.plane.move(item, wanted)
        self._note(f"Ann moves {task.work_item} at Plane: {wanted}")

    def _prove(
        self,
        app: App,
        servers: Servers,
        sample: Sample,
        items: Sequence[Item],
        found: Sequence[Task],
        told: str,
        git: Git,
    ) -> Proof:
        proof = Proof(self.echo)
        proof.head("tickets")
        proof.claim(len(found) == len(items), f"{len(found)} tickets were taken from Plane")
        stories = [app.operations.story(task.work_item) for task in found]
        for story in stories:
            text = f"{story.task.work_item} {story.task.title!r} is {story.task.stage}"
            proof.claim(story.task.stage is Stage.DONE, text)
        proof.head("Plane, as it shows itself")
        for item in items:
            proof.claim(
                item.state.group == "completed", f"{item.name!r} is in {item.state.name} ({item.state.group})"
            )
            ours = [comment.external_id for comment in item.comments if comment.actor == servers.plane.bot]
            proof.claim(
                bool(ours) and len(ours) == len(set(ours)), f"it has {len(ours)} comments of ours, none twice"
            )
        proof.head(f"{servers.kind}, as it shows itself")
        there = servers.forge.repositories[FULL_NAME]
        for pull in there.pulls:
            proof.claim(bool(pull.merged), f"pull request {pull.number} {pull.title!r} is merged")
        proof.claim(len(there.pulls) == len(items), f"{len(there.pulls)} pull requests were opened")
        proof.claim(told.count("was told of here") == 2, "a change at either server is told of here at once")
        prove_delivery(proof, stories, sample, git=git, forge=str(servers.repository), http=app.http)
        return proof


@contextmanager
def played(stack: str, home: Path, git: Git, sample: Sample) -> Iterator[Servers]:
    """The servers for as long as the demo runs, with the sample's repository and an empty project."""
    kind = stack.removeprefix("plane-")
    make = FakeGitHub if kind == "github" else FakeGitea
    with make(home / "forge") as forge, FakePlane(per_minute=CALLS) as plane:
        there = forge.create("acme", NAME)
        there.rights["orchbot"] = "admin"  # so that `orch connect` may make the webhook
        git.run(
            ["push", "-q", "--", str(there.path), "main:main"], cwd=sample.repository, protocols=("file",)
        )
        there.synchronise()
        yield Servers(kind, forge, plane, there.path, plane.project(PREFIX, "Greeter"))


def _kept(path: Path, secret: str) -> str:
    make_private_folder(path.parent)
    replace_durably(path, f"{secret}\n".encode())
    return os.fspath(path)
