"""The server: who asks, how often they may, and what people do in their browsers."""

import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import parse_qsl

from orchestrator.played.common.served import Answer, Asked, Served
from orchestrator.played.plane import bodies
from orchestrator.played.plane.api import Request, answer
from orchestrator.played.plane.hooks import Hook, Worker
from orchestrator.played.plane.world import Comment, Item, Project, User, World, new_id

API = "/api/v1"
KEY = "plane_api_" + "f4k3" * 8
SECRET = "plane_wh_" + "5ec3" * 8
PER_MINUTE = 60


class FakePlane(Served):
    """One server with one workspace, `acme`, on loopback."""

    def __init__(
        self,
        *,
        per_minute: int = PER_MINUTE,
        clock: Callable[[], float] = time.monotonic,
        calendar: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__()
        self.world = World(calendar)
        self.bot = User(new_id(), "orch-bot", "Orch", "Bot")
        self.ann, self.ben = User(new_id(), "ann", "Ann"), User(new_id(), "ben", "Ben")
        self.keys = {KEY: self.bot}
        self.per_minute, self.old = per_minute, False  # `old`: a version before 1.1, without `work-items`
        self.worker = Worker(self.world)
        self.world.tell = self.worker.tell
        self._clock = clock
        self._asked: dict[str, deque[float]] = {}
        self._counting = threading.Lock()

    def __enter__(self) -> Self:
        self.worker.start()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self.journal.let_go()
        self.worker.stop()
        super().__exit__()

    # -- what is there, and what people do in their browsers -----------------------------------------------------

    def project(self, identifier: str = "SHOP", name: str = "Shop", *labels: str) -> Project:
        """A project that the bot is a member of, with the states and labels that are usual for it."""
        made = self.world.new_project(identifier, name, self.ann, self.ben, self.bot)
        for title in ("Approved", "Confirm Deploy"):
            self.world.new_state(made, title, "started")
        for title in ("orch", "fast", *labels):
            self.world.new_label(made, title)
        return made

    def ticket(self, project: Project, name: str, *labels: str, html: str = "<p></p>") -> Item:
        found = [project.label(one) for one in labels]
        state = project.state("Todo")
        return self.world.new_item(project, self.ann, name, html=html, labels=found, state=state)

    def move(self, item: Item, state: str, *, by: User | None = None) -> None:
        project = self._of(item)
        wanted = {"state": project.state(state)}
        self.world.change(project, item, by or self.ann, wanted, page=True)

    def label(self, item: Item, *names: str) -> None:
        project = self._of(item)
        wanted = {"labels": [project.label(name) for name in names]}
        self.world.change(project, item, self.ann, wanted, page=True)

    def comment(self, item: Item, html: str, *, by: User | None = None) -> Comment:
        return self.world.comment(self._of(item), item, by or self.ann, html)

    def delete(self, item: Item) -> None:
        """Nobody is told of it."""
        with self.world.lock:
            self._of(item).items.remove(item)

    def archive(self, thing: Item | Project) -> None:
        with self.world.lock:
            thing.archived = self.world.now()

    def delete_project(self, project: Project) -> None:
        self.world.delete_project(project, self.ann)

    def hook(self, url: str, secret: str = SECRET) -> Hook:
        """Every event of the workspace is told there from now on."""
        self.worker.hooks.append(Hook(url, secret))
        return self.worker.hooks[-1]

    def _of(self, item: Item) -> Project:
        return next(one for one in self.world.projects if item in one.items)

    # -- what goes wrong -----------------------------------------------------------------------------------------

    def revoke(self) -> None:
        self.keys.clear()

    # -- who may ask, and how often ------------------------------------------------------------------------------

    def allowed(self, key: str) -> Answer | dict[str, str]:
        """The headers of an allowed answer, or the refusal; a refused call does not count."""
        with self._counting:
            now, asked = self._clock(), self._asked.setdefault(key, deque())
            while asked and asked[0] <= now - 60:
                asked.popleft()
            if len(asked) >= self.per_minute:
                wait = max(1, int(asked[0] + 60 - now + 0.999))
                return Answer(429, bodies.TOO_MANY, {"Retry-After": str(wait)})
            asked.append(now)
            left, reset = self.per_minute - len(asked), int(time.time()) + 60
            return {"X-RateLimit-Remaining": str(left), "X-RateLimit-Reset": str(reset)}

    # -- what is answered ----------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self.world.clock() + self.world.ahead

    def error(self, status: int) -> Any:
        return bodies.BROKEN

    def answer(self, asked: Asked) -> Answer:
        key, below = asked.headers.get("x-api-key"), asked.path.removeprefix(API)
        if below == asked.path or (self.old and "/work-items" in below):
            return Answer(404, "<!doctype html>\n<title>Not Found</title>\n")
        if not below.endswith("/"):
            to = f"{asked.path}/" + (f"?{asked.query}" if asked.query else "")
            return Answer(301, "", {"Location": to})
        if key is None:
            return Answer(401, {"detail": "Authentication credentials were not provided."})
        user = self.keys.get(key)
        if user is None:
            return Answer(403, {"detail": "Given API token is not valid"})
        allowed = self.allowed(key)
        if isinstance(allowed, Answer):
            return allowed
        request = Request(user, dict(parse_qsl(asked.query)), asked.json())
        told = answer(self.world, asked.method, below, request)
        return Answer(told.status, told.body, {**told.headers, **allowed})
