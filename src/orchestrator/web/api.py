"""The HTTP API: reading is one snapshot, acting stores a decision for the engine (DESIGN §8).

What must hold: ids are looked up in the database and never joined to paths; every error is a problem document; making
the application starts nothing. Handlers are plain functions and run in threads: the core has one colour.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi import Path as ApiPath
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

import orchestrator
from orchestrator.db.repositories import Repository
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.ids import WorkItem
from orchestrator.domain.task import Ticket
from orchestrator.installation.acceptance import Acceptance
from orchestrator.observability.telemetry import Telemetry
from orchestrator.operations.deciding import Receipt
from orchestrator.operations.desk import Operations
from orchestrator.operations.reading import NEWEST
from orchestrator.repositories import Elsewhere
from orchestrator.web import bodies, metrics, views
from orchestrator.web.guard import OPEN_PATHS, Door, Guard
from orchestrator.web.problems import answer_errors

PAGE_LIMIT = 500
PAGE = 100

Register = Callable[
    [Path | None, Elsewhere | None, str, str], Repository
]  # checkout, or where it lies at a server; name, prefix
"""Registers a checkout on this machine: its path, the repository's name, the prefix of its work items."""

Move = Callable[..., Repository]
"""Points a repository to its new place: its name, and ``owner/name`` there; ``person`` and ``reason``."""

Connect = Callable[[str, str | None], TrackerProject]
"""Lets a repository's tickets come from a project: the repository's name, and ``workspace/PROJECT`` at Plane; without,
from its issues."""

_Limit = Annotated[int, Query(ge=1, le=PAGE_LIMIT)]
_Id = Annotated[int, Query(ge=0, le=2**62)]


class Json(Response):
    """JSON that people can read; text that is no Unicode cannot break it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The content, once more through ``plain``."""
        text = json.dumps(views.plain(content), ensure_ascii=False, allow_nan=False, indent=1)
        return text.encode("utf-8", "replace")


def create_api(
    operations: Operations,
    *,
    token: str | None,
    ready: Callable[[], bool],
    telemetry: Telemetry | None = None,
    hosts: frozenset[str] | None = None,
    local_token: str | None = None,
    register: Register | None = None,
    open_paths: frozenset[str] = frozenset(),
    signed: Mapping[str, ASGIApp] | None = None,
    build_sha: str = "",
    restore: Acceptance | None = None,
    connect: Connect | None = None,
    move: Move | None = None,
) -> FastAPI:
    """The application: its routes behind its door.

    ``ready`` says whether work can be done; ``hosts`` are the names of this service (None: any); see
    :class:`~orchestrator.web.guard.Door` for the tokens. ``open_paths`` are what other rooms add without a token,
    ``signed`` who answers at which path by a signature instead.
    """
    door = Door(token or None, local_token or None, hosts, OPEN_PATHS | open_paths, signed or {})
    api = FastAPI(
        title="orchestrator",
        version=orchestrator.__version__,
        docs_url=None,  # the usual page takes its scripts from other people's servers
        redoc_url=None,
        default_response_class=Json,
    )
    api.state.door = door
    api.add_middleware(Guard, door=door)
    answer_errors(api)
    _health(api, ready, build_sha)
    _reading(api, operations)
    _acting(api, operations)
    _disconnecting(api, operations)
    _metrics(api, operations, telemetry or Telemetry())
    if register is not None:
        _registering(api, register)
    if connect is not None:
        _connecting(api, connect)
    if move is not None:
        _moving(api, move)
    if restore is not None:
        _restoring(api, restore)
    return api


def _health(api: FastAPI, ready: Callable[[], bool], build_sha: str) -> None:
    @api.get("/healthz", tags=["health"])
    def healthz() -> Json:
        """The process answers; ``sha`` is what it was built from, null where nobody told it."""
        return Json({"status": "ok", "version": orchestrator.__version__, "sha": build_sha or None})

    @api.get("/readyz", tags=["health"])
    def readyz() -> Json:
        """It can work: recovered, migrated, not on its way out, and not every repository is closed after a restore."""
        fit = ready()
        return Json({"status": "ready" if fit else "not ready"}, 200 if fit else 503)


def _reading(api: FastAPI, operations: Operations) -> None:
    @api.get("/queue", tags=["reading"])
    def queue() -> Json:
        """Jobs, holds, gates, ownership, daemons: what stands where, in one snapshot."""
        return Json(operations.queue())

    @api.get("/repositories", tags=["reading"])
    def repositories() -> Json:
        """What this installation delivers."""
        return Json({"repositories": operations.repositories()})

    @api.get("/tasks", tags=["reading"])
    def tasks(before: _Id = NEWEST, after: _Id = 0, limit: _Limit = PAGE, open: bool = False) -> Json:
        """Tasks, a page at a time: newest first, from ``before`` on; with ``open`` those that have not ended, oldest
        first, from ``after`` on."""
        found = operations.tasks(before=before, after=after, limit=limit, open_only=open)
        return Json(views.task_page(found, limit, newest_first=not open))

    @api.get("/tasks/{work_item}", tags=["reading"])
    def task(work_item: str) -> Json:
        """The whole story of a task."""
        return Json(views.story(operations.story(work_item)))

    @api.get("/tasks/{work_item}/events", tags=["reading"])
    def events(work_item: str, after: _Id = 0) -> Json:
        """A task's events behind ``after``, in order, a page at a time."""
        return Json(views.event_page(operations.story(work_item, events_after=after).events, after))

    @api.get("/tasks/{work_item}/why", tags=["reading"])
    def why(work_item: str) -> Json:
        """Who owns it, what it waits for, since when, what happens next."""
        return Json(views.why(operations.why(work_item)))

    @api.get("/effects", tags=["reading"])
    def effects(
        task: str | None = None, all: bool = False, before: _Id = NEWEST, limit: _Limit = PAGE
    ) -> Json:
        """Effects that are not settled, or with ``all`` every one, of one ``task`` or of all; newest first."""
        found = operations.effects(work_item=task, everything=all, before=before, limit=limit)
        return Json(views.effect_page(found, limit))

    @api.get("/tasks/{work_item}/signals/{signal_id}", tags=["reading"])
    def signal(work_item: str, signal_id: Annotated[int, ApiPath(ge=0, le=2**62)]) -> Json:
        """What came of a decision; ``outcome`` is null while it waits."""
        given = Receipt(signal_id, operations.task(work_item), "")
        return Json({"signal_id": signal_id, "outcome": operations.outcome(given)})


def _acting(api: FastAPI, operations: Operations) -> None:
    @api.post("/tasks", status_code=201, tags=["acting"])
    def file(filed: Annotated[bodies.TicketBody, Depends(bodies.reader(bodies.TicketBody))]) -> Json:
        """File a ticket; an open task of the same ``external_id`` is returned instead of a second one."""
        ticket = Ticket(
            title=filed.title,
            body=filed.body,
            labels=tuple(filed.labels),
            external_id=filed.external_id,
            depends_on=tuple(WorkItem(item) for item in filed.depends_on),
        )
        task = operations.add_task(filed.repo, ticket, priority=filed.priority)
        return Json(views.task_row(task), 201, {"location": f"/tasks/{task.work_item}"})

    decision = Annotated[bodies.DecisionBody, Depends(bodies.reader(bodies.DecisionBody))]

    @api.post("/tasks/{work_item}/approve", status_code=202, tags=["acting"])
    def approve(work_item: str, said: decision) -> Json:
        """Give the approval that the task waits for; 409 where ``subject`` is not on show (so for all decisions)."""
        return _accepted(operations.approve(work_item, **said.model_dump()))

    @api.post("/tasks/{work_item}/reject", status_code=202, tags=["acting"])
    def reject(work_item: str, said: decision) -> Json:
        """Refuse what the task asks approval for."""
        return _accepted(operations.reject(work_item, **said.model_dump()))

    @api.post("/tasks/{work_item}/retry", status_code=202, tags=["acting"])
    def retry(work_item: str, said: decision) -> Json:
        """Let an escalated or blocked task go on."""
        return _accepted(operations.retry(work_item, **said.model_dump()))

    @api.post("/tasks/{work_item}/cancel", status_code=202, tags=["acting"])
    def cancel(work_item: str, said: decision) -> Json:
        """Ask for a task to be cancelled."""
        return _accepted(operations.cancel(work_item, **said.model_dump()))

    @api.post("/effects/{effect_id}/resolve", status_code=202, tags=["acting"])
    def resolve(
        effect_id: Annotated[int, ApiPath(ge=0, le=2**62)],
        said: Annotated[bodies.ResolutionBody, Depends(bodies.reader(bodies.ResolutionBody))],
    ) -> Json:
        """Say what became of an effect that is not settled; the authority is asked first, and what it shows counts."""
        return _accepted(operations.resolve_effect(effect_id, **dict(said)))

    @api.post("/serial-gate/unfreeze", tags=["acting"])
    def unfreeze(
        repo: str, said: Annotated[bodies.UnfreezeBody, Depends(bodies.reader(bodies.UnfreezeBody))]
    ) -> Json:
        """Lift a repository's freeze; with ``for``, lend its merge slot to the task that mends what is broken."""
        if said.lend_to is not None:
            operations.lend(repo, said.lend_to, person=said.person, reason=said.reason)
            return Json({"repo": repo, "lifted": False, "lent_to": said.lend_to})
        lifted = operations.unfreeze(repo, person=said.person, reason=said.reason)
        return Json({"repo": repo, "lifted": lifted, "lent_to": None})

    @api.post("/transition-lease/release", tags=["acting"])
    def release(
        work_item: str, said: Annotated[bodies.ReleaseBody, Depends(bodies.reader(bodies.ReleaseBody))]
    ) -> Json:
        """Take a task from its owner, who is refused from then on; 409 where nobody owns it."""
        return Json(views.record(operations.release_lease(work_item, person=said.person, reason=said.reason)))


def _disconnecting(api: FastAPI, operations: Operations) -> None:
    @api.post("/repositories/{name}/disconnect", tags=["acting"])
    def disconnect(
        name: str, said: Annotated[bodies.DisconnectBody, Depends(bodies.reader(bodies.DisconnectBody))]
    ) -> Json:
        """Take no more tickets of a repository, or with ``tickets_only`` of its project at a tracker; 409 where tasks
        are open and ``open`` does not say whether to ``finish`` or ``cancel`` them."""
        told = operations.disconnect(
            name,
            tickets_only=said.tickets_only,
            open_tasks=said.open,
            person=said.person,
            reason=said.reason,
        )
        return Json(views.record(told))


def _metrics(api: FastAPI, operations: Operations, telemetry: Telemetry) -> None:
    @api.get("/metrics", tags=["reading"])
    def metrics_(request: Request) -> Response:
        """Counters and gauges, as JSON or as Prometheus text."""
        if metrics.wants_prometheus(request.headers.get("accept", "")):
            text = metrics.as_prometheus(operations, telemetry)
            return PlainTextResponse(text, media_type=metrics.PROMETHEUS)
        return Json(metrics.as_json(operations, telemetry))


def _registering(api: FastAPI, register: Register) -> None:
    @api.post("/repositories", status_code=201, tags=["acting"])
    def add(wanted: Annotated[bodies.RepositoryBody, Depends(bodies.reader(bodies.RepositoryBody))]) -> Json:
        """Register a checkout on this machine, or a repository at the configured Gitea, Forgejo or GitHub."""
        path = Path(wanted.path) if wanted.path is not None else None
        return Json(register(path, wanted.elsewhere(), wanted.name, wanted.prefix), 201)


def _connecting(api: FastAPI, connect: Connect) -> None:
    @api.post("/repositories/{name}/tracker", status_code=201, tags=["acting"])
    def add(
        name: str, wanted: Annotated[bodies.TrackerBody, Depends(bodies.reader(bodies.TrackerBody))]
    ) -> Json:
        """Let a repository's tickets come from a project at the configured Plane, or be its issues at GitHub; 409 where
        they have another place."""
        return Json(views.record(connect(name, wanted.plane)), 201)


def _moving(api: FastAPI, move: Move) -> None:
    @api.post("/repositories/{name}/move", tags=["acting"])
    def moved(name: str, wanted: Annotated[bodies.MoveBody, Depends(bodies.reader(bodies.MoveBody))]) -> Json:
        """Point a repository that was renamed or transferred at its server to its new place; 409 where that is another
        repository."""
        return Json(views.record(move(name, wanted.to, person=wanted.person, reason=wanted.reason)))


def _restoring(api: FastAPI, restore: Acceptance) -> None:
    @api.get("/restore", tags=["reading"])
    def status() -> Json:
        """What is closed after a restore, what was found, and what accepting it would do; every forge is asked, so that
        this asks for the token always."""
        return Json(restore.status())

    @api.post("/restore/accept", tags=["acting"])
    def accept(said: Annotated[bodies.AcceptBody, Depends(bodies.reader(bodies.AcceptBody))]) -> Json:
        """Import what was found, have unfinished tasks wait for a person, and open what was closed; 409 where nothing
        is closed, or no reason is given."""
        return Json(restore.accept(person=said.person, reason=said.reason))


def _accepted(receipt: Receipt) -> Json:
    """The engine will apply or refuse it: ``GET …/signals/{signal_id}`` tells."""
    return Json(views.receipt(receipt), 202)
