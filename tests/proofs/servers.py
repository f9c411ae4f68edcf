"""Worlds whose forge is a server elsewhere, a played Gitea or GitHub, and whose tickets are those of a played Plane, or
the issues of the repository.

The servers are a process of their own, which outlives the lives that are killed and ends with the sweep: that keeps its
one thread and may fork. What goes wrong with them goes wrong by their own doors: an answer is lost, or an error that
comes after the effect; a request is cut off and takes effect later, whoever has died since.
"""

import json
import multiprocessing
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

from orchestrator.played.common.faults import How
from orchestrator.played.plane.server import KEY
from orchestrator.repositories import GITEA, GITHUB, Elsewhere
from orchestrator.trackers.telling import message_mark
from orchestrator.wiring import App
from tests.fixtures_git_server import NAME
from tests.proofs import house
from tests.proofs.house import FORGES, ISSUES
from tests.proofs.lives import Ending, Life, live
from tests.proofs.outside import FORGE
from tests.proofs.scheduler import EFFECTS, At, First, Kill, Late, Nth, Policy, around
from tests.proofs.templates import give_the_slots_back, keep_the_slots
from tests.proofs.world import REPO, World, held
from tests.waiting import wait_until

TITLES = ("One", "Other")
PATIENCE_S = 240.0  # with a life; each look at a server starts a dozen programs
MERGE = {GITEA: "post", GITHUB: "put"}  # how the merge is asked for
Door = tuple[str, str]  # method and pattern of the path
OF_FORGES: tuple[Door, ...] = (
    ("POST", r"/pulls$"),
    ("PATCH", r"/pulls/\d+$"),
    ("POST", r"/git-receive-pack$"),
    ("POST", r"/git-receive-pack$"),
    ("POST", r"/git-upload-pack$"),
    ("GET", r""),
)
OF_PLANE: tuple[Door, ...] = (("POST", r"/comments/$"), ("POST", r"/links/$"), ("PATCH", r""), ("GET", r""))
OF_ISSUES: tuple[Door, ...] = (
    ("POST", r"/comments$"),
    ("POST", r"/comments$"),
    ("POST", r"/labels$"),
    ("DELETE", r"/labels/"),
    ("PATCH", r"/issues/\d+$"),
    ("GET", r"/issues"),
)
THAT_MAY_LAND_LATE = {("POST", r"/comments/$"), ("POST", r"/comments$"), ("POST", r"/links/$")}
REQUESTS = (
    "http.post.pulls",
    "http.get.pulls",
    "http.post.comments",
    "http.post.links",
    "http.get.comments",
    "http.patch.work-items",
    "git.push",
    "git.fetch",
    "git.ls-remote",
)
POINTS = (*around(*REQUESTS, *(f"forge.{name}" for name in FORGE)), *EFFECTS)
POINTS_OF_ISSUES = around("http.post.labels", "http.delete.labels", "http.patch.issues", "http.get.events")
OF_THE_MERGE = (
    *around("forge.prepare_merge", "forge.merge"),
    *(name for name in EFFECTS if name.startswith("merge_pr.") and "revoke" not in name),
)


@dataclass
class Servers:
    """Of one scenario; the same seed orders the same failures."""

    world: World
    kind: str
    chance: random.Random
    ask: "Connection[Any, Any]"
    counts: Counter[str] = field(default_factory=Counter)
    settings: dict[str, str] = field(default_factory=dict)
    _cancelled: set[str] = field(default_factory=set)

    @property
    def forge(self) -> str:
        """The kind of the forge."""
        return FORGES[self.kind]

    def do(self, act: Callable[..., Any], *words: object) -> Any:
        """Have a function of :mod:`tests.proofs.house` called in the servers' process."""
        self.ask.send((act, words))
        return self.ask.recv()

    def begin(self) -> None:
        """People have filed two tickets; in peace the repository is registered, the project connected, and mostly both
        are worked on until they want the slots."""
        name = self.forge.upper()
        forge, token, tickets = self.do(house.addresses)
        of_plane = {
            "ORCH_PLANE_URL": tickets,
            "ORCH_PLANE_TOKEN": KEY,
            "ORCH_PLANE_POLL_INTERVAL_S": "10",
            "ORCH_PLANE_CALLS_PER_MINUTE": "2000",
        }
        self.settings = {
            f"ORCH_{name}_URL": forge,
            f"ORCH_{name}_TOKEN": token,
            "ORCH_FORGE_SETTLE_S": "5",
            **({"ORCH_GITHUB_POLL_INTERVAL_S": "10"} if self.kind == ISSUES else of_plane),
            "ORCH_RECONCILER_INTERVAL_S": "10",  # each look fetches over HTTP
        }
        early = self.chance.random() < 0.3
        for title in TITLES:
            self.do(house.file, title)
        script = self._connect if early else self._both_tested
        lived = live(
            self.world, Life(script=script, polite=True, patience_s=PATIENCE_S, settings=self.settings)
        )
        if lived.ending is not Ending.REST:
            raise AssertionError(f"nothing was connected: {lived}; see {self.world.root}/lives.log")
        if not early:
            give_the_slots_back(self.world)
        self._note()

    def life(self, life: Life, *, free: bool) -> Life:
        """A life that knows the servers. Unless it is ``free``, something may go wrong there, or a person cancels."""
        if free:
            self.do(house.mend)
        else:
            life = self._ended(life)
            for _ in range(self.chance.choice((0, 1, 1, 2))):
                self._order()
            self._cancel()
        return replace(life, patience_s=PATIENCE_S, settings={**life.settings, **self.settings})

    def settle(self) -> None:
        """Wait until what was cut off has taken effect, and write down for the oracle what there is to be seen."""
        self.counts.update(self.do(house.settle))
        (self.world.servers / "seen.json").write_text(json.dumps(self.do(house.seen)))

    def _connect(self, app: App) -> None:
        app.register_elsewhere(Elsewhere(self.forge, NAME), name=REPO, prefix="S")
        app.connect_tracker(REPO, None if self.kind == ISSUES else "acme/SHOP")

    def _both_tested(self, app: App) -> None:
        self._connect(app)
        wait_until(lambda: len(app.operations.tasks()) == len(TITLES))
        keep_the_slots(app)

    def _ended(self, life: Life) -> Life:
        """How most of these lives end: at a request, a push, an effect. A look at a server passes many points, so that
        the others are further away than elsewhere."""
        what, times = self.chance.random(), self.chance.choice((1, 1, 2, 3))
        later = Nth(int(self.chance.triangular(60, 900, 250)), Kill())
        if what < 0.6:
            first: Policy = At(
                self.chance.choice(self.chance.choice((self._points, self._of_the_merge))), Kill(), times
            )
        elif what < 0.7:
            first = At("git.push.before", Late(0.1 + self.chance.random()), times)
        else:
            return life
        return replace(life, policy=First(first, later), kill_after=None)

    @property
    def _points(self) -> Sequence[str]:
        return (*POINTS, *POINTS_OF_ISSUES) if self.kind == ISSUES else POINTS

    @property
    def _of_the_merge(self) -> Sequence[str]:
        return (*OF_THE_MERGE, *around(f"http.{MERGE[self.forge]}.merge"))

    def _order(self) -> None:
        of_tickets, merge = self.chance.random() < 0.4, (MERGE[self.forge].upper(), r"/merge$")
        doors = OF_ISSUES if self.kind == ISSUES else OF_PLANE
        method, pattern = self.chance.choice(doors if of_tickets else (*OF_FORGES, merge, merge))
        hows = [How.LOST, How.AFTER, How.BEFORE, How.GARBAGE]
        # No tracker compares before it sets a state or a label: what lands late there overwrites what was shown since.
        if method != "GET" and not (of_tickets and (method, pattern) not in THAT_MAY_LAND_LATE):
            hows += [How.LATE, How.LATE]
        how = self.chance.choice(hows)
        self.do(house.fail, of_tickets, method, pattern, how, 0.1 + self.chance.random())

    def _cancel(self) -> None:
        """Now and then a person cancels a ticket there."""
        if self._cancelled or self.chance.random() > 0.03:
            return
        going = [
            row["title"] for row in held(self.world).values() if row["stage"] not in ("done", "cancelled")
        ]
        if going:
            title = self.chance.choice(going)
            self._cancelled.add(title)
            self.do(house.cancel, title)
            self._note()

    def _note(self) -> None:
        names = {ticket["id"]: ticket["name"] in self._cancelled for ticket in self.do(house.seen)["tickets"]}
        aside = self.world.servers / "tickets.new"
        aside.write_text(json.dumps(names))
        aside.replace(self.world.servers / "tickets.json")


@contextmanager
def playing(world: World, kind: str, chance: random.Random) -> Iterator[Servers]:
    """A world that is made anew around its servers."""
    world.make()
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    process = fork.Process(target=house.serve, args=(world, kind, ours, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        servers = Servers(world, kind, chance, ours)
        servers.begin()
        yield servers
    finally:
        ours.close()
        process.join(house.LANDS_S)
        process.kill()


# --- what must have come of it ------------------------------------------------------------------------------------


def findings(world: World) -> Iterator[str]:
    """At the end: one task for each ticket, one pull request for each task, each message once, the last state."""
    note = world.servers / "seen.json"
    if not note.exists():
        return
    seen, tasks = json.loads(note.read_text()), held(world)
    for item, task in tasks.items():
        pulls = [pull for pull in seen["pulls"] if pull["branch"] == task["branch"]]
        shown = [("merged" if pull["merged"] else pull["state"]) for pull in pulls]
        if shown not in ([["merged"]] if task["stage"] == "done" else [[], ["closed"]]):
            yield f"pull-request: {item} is {task['stage']}, and its pull requests are {shown}"
    for ticket in seen["tickets"]:
        taken = [task for task in tasks.values() if task["external_id"] == ticket["id"]]
        if len(taken) != 1:
            yield f"ticket: {ticket['name']} was taken {len(taken)} times"
            continue
        [task] = taken
        if ticket["group"] != {"done": "completed"}.get(task["stage"], task["stage"]):
            yield f"ticket: {task['work_item']} is {task['stage']}, and its ticket shows {ticket['group']}"
        sent = world.rows(
            "SELECT stable_id FROM outbox WHERE task_id = ? AND kind <> 'alert' ORDER BY id", task["id"]
        )
        wanted = [message_mark(SimpleNamespace(**dict(task)), row["stable_id"]) for row in sent]
        if ticket["said"] != wanted:
            yield f"ticket: {task['work_item']} was told {ticket['said']} there, and not {wanted}"
