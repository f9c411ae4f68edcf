"""One seam for every command: the same desk, whether this process owns the state or another one does (DESIGN §8).

Acting takes the lock for the length of the command; where it is held, the owner is asked instead. Reading opens the
file read-only beside whoever owns it.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from orchestrator.cli.owner import Owner, owner_of
from orchestrator.config import LogLevel, Settings, load_settings
from orchestrator.db.opening import has_state, place_of
from orchestrator.domain.errors import (
    DatabaseError,
    ForeignState,
    NotFound,
    OutsideError,
    RequestRefused,
    StateInUse,
)
from orchestrator.domain.task import Ticket
from orchestrator.operations.connections import OpenTasks
from orchestrator.operations.deciding import Receipt
from orchestrator.operations.desk import Operations
from orchestrator.repositories import Elsewhere
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.process import SystemProcesses
from orchestrator.stage_engine.resolutions import Resolution
from orchestrator.web import views
from orchestrator.web.views import Plain
from orchestrator.wiring import App, open_app, open_readonly

WAIT_FOR_OWNER_S = (
    5.0  # another command holds the lock for moments only; a starting service soon says where it is
)
_POLL_S = 0.1


class Desk(Protocol):
    """What commands ask for; answers are JSON data. Raises what the operations raise."""

    @property
    def served(self) -> bool:
        """True where a running service will act on what is asked here."""
        ...

    @property
    def live(self) -> bool:
        """True where it is a running service that answers, and not the database alone."""
        ...

    def add_task(self, repo: str, ticket: Ticket, priority: int) -> Plain:
        """File a ticket."""
        ...

    def decide(
        self, work_item: str, decision: str, *, person: str, reason: str, subject: str | None
    ) -> Plain:
        """Store a person's decision; ``subject`` is the commit that the person saw."""
        ...

    def outcome(self, work_item: str, signal_id: int) -> str | None:
        """What came of a decision; None while it waits."""
        ...

    def resolve(self, effect_id: int, resolution: Resolution, *, person: str, reason: str) -> Plain:
        """Store a person's word on an effect."""
        ...

    def unfreeze(self, repo: str, *, person: str, reason: str) -> bool:
        """Lift a freeze; False where there was none."""
        ...

    def lend(self, repo: str, work_item: str, *, person: str, reason: str) -> None:
        """Lend a frozen merge slot to a task."""
        ...

    def release_lease(self, work_item: str, *, person: str, reason: str) -> Plain:
        """Take a task from its owner."""
        ...

    def restore_status(self) -> Plain:
        """What is closed, and what accepting would do."""
        ...

    def restore_accept(self, *, person: str, reason: str) -> Plain:
        """Accept a restored or copied database or forge."""
        ...

    def register(self, source: Path, name: str, prefix: str, *, at: Elsewhere | None = None) -> Plain:
        """Register a checkout on this machine, or its repository ``at`` a configured server."""
        ...

    def connect(self, repo: str, plane: str | None) -> Plain:
        """Let a repository's tickets come from ``WORKSPACE/PROJECT`` at the configured Plane, or, where none is named,
        from its issues at GitHub."""
        ...

    def disconnect(
        self, repo: str, *, tickets_only: bool, open_tasks: OpenTasks, person: str, reason: str
    ) -> Plain:
        """Take no more tickets of a repository, or of its project at a tracker."""
        ...

    def move(self, repo: str, to: str, *, person: str, reason: str) -> Plain:
        """Point a repository to ``owner/name``, where its server has it now."""
        ...

    def repositories(self) -> list[Plain]:
        """What is registered."""
        ...

    def tasks(self, *, open_only: bool, before: int, after: int, limit: int) -> Plain:
        """A page of tasks."""
        ...

    def story(self, work_item: str) -> Plain:
        """Everything about one task."""
        ...

    def events(self, work_item: str, after: int) -> Plain:
        """A page of a task's events."""
        ...

    def why(self, work_item: str) -> Plain:
        """Why it stands where it stands."""
        ...

    def effects(self, *, work_item: str | None, everything: bool, before: int, limit: int) -> Plain:
        """A page of effects."""
        ...

    def queue(self) -> Plain:
        """What runs, waits and holds."""
        ...


class LocalDesk:
    """The desk over a state that this process has opened."""

    live = False

    def __init__(self, app: App | None, *, served: bool = False) -> None:
        self._opened = app
        self.served = served

    @property
    def _app(self) -> App:
        if self._opened is None:
            raise nothing_yet(settings_for_command())
        return self._opened

    @property
    def _operations(self) -> Operations:
        return self._app.operations

    def add_task(self, repo: str, ticket: Ticket, priority: int) -> Plain:
        """File a ticket."""
        return views.task_row(self._operations.add_task(repo, ticket, priority=priority))

    def decide(
        self, work_item: str, decision: str, *, person: str, reason: str, subject: str | None
    ) -> Plain:
        """Store a decision for the engine of the next service that runs."""
        acts: Mapping[str, Callable[..., Receipt]] = {
            "approve": self._operations.approve,
            "reject": self._operations.reject,
            "retry": self._operations.retry,
            "cancel": self._operations.cancel,
        }
        return views.receipt(acts[decision](work_item, person=person, reason=reason, subject=subject))

    def outcome(self, work_item: str, signal_id: int) -> str | None:
        """What came of it."""
        return self._operations.outcome(Receipt(signal_id, self._operations.task(work_item), ""))

    def resolve(self, effect_id: int, resolution: Resolution, *, person: str, reason: str) -> Plain:
        """Store a word on an effect for the engine of the next service that runs."""
        return views.receipt(
            self._operations.resolve_effect(effect_id, resolution, person=person, reason=reason)
        )

    def unfreeze(self, repo: str, *, person: str, reason: str) -> bool:
        """Lift a freeze."""
        return self._operations.unfreeze(repo, person=person, reason=reason)

    def lend(self, repo: str, work_item: str, *, person: str, reason: str) -> None:
        """Lend a frozen merge slot."""
        self._operations.lend(repo, work_item, person=person, reason=reason)

    def release_lease(self, work_item: str, *, person: str, reason: str) -> Plain:
        """Take a task from its owner."""
        return views.record(self._operations.release_lease(work_item, person=person, reason=reason))

    def restore_status(self) -> Plain:
        """What is closed."""
        return views.mapping(self._app.restore.status())

    def restore_accept(self, *, person: str, reason: str) -> Plain:
        """Accept it."""
        return views.mapping(self._app.restore.accept(person=person, reason=reason))

    def register(self, source: Path, name: str, prefix: str, *, at: Elsewhere | None = None) -> Plain:
        """Register a checkout, or its repository at the server."""
        if at is not None:
            return views.record(self._app.register_elsewhere(at, name=name, prefix=prefix))
        return views.record(self._app.register_repository(source, name=name, prefix=prefix))

    def connect(self, repo: str, plane: str | None) -> Plain:
        """Let its tickets come from a project at Plane, or from its issues."""
        return views.record(self._app.connect_tracker(repo, plane))

    def disconnect(
        self, repo: str, *, tickets_only: bool, open_tasks: OpenTasks, person: str, reason: str
    ) -> Plain:
        """Take no more tickets of it."""
        told = self._operations.disconnect(
            repo, tickets_only=tickets_only, open_tasks=open_tasks, person=person, reason=reason
        )
        return views.record(told)

    def move(self, repo: str, to: str, *, person: str, reason: str) -> Plain:
        """Point it to its new place."""
        return views.record(self._app.moving.move(repo, to, person=person, reason=reason))

    def repositories(self) -> list[Plain]:
        """What is registered."""
        return [views.record(known) for known in self._operations.repositories()]

    def tasks(self, *, open_only: bool, before: int, after: int, limit: int) -> Plain:
        """A page of tasks."""
        found = self._operations.tasks(before=before, after=after, limit=limit, open_only=open_only)
        return views.task_page(found, limit, newest_first=not open_only)

    def story(self, work_item: str) -> Plain:
        """Everything about one task."""
        return views.story(self._operations.story(work_item))

    def events(self, work_item: str, after: int) -> Plain:
        """A page of events."""
        return views.event_page(self._operations.story(work_item, events_after=after).events, after)

    def why(self, work_item: str) -> Plain:
        """Why it stands there."""
        return views.why(self._operations.why(work_item))

    def effects(self, *, work_item: str | None, everything: bool, before: int, limit: int) -> Plain:
        """A page of effects."""
        found = self._operations.effects(
            work_item=work_item, everything=everything, before=before, limit=limit
        )
        return views.effect_page(found, limit)

    def queue(self) -> Plain:
        """What runs, waits and holds."""
        return views.mapping(self._operations.queue())


class FirstDesk(LocalDesk):
    """The desk over a state folder that is not there yet: registering a repository makes it, and nothing else.

    So a command that is refused leaves nothing behind.
    """

    def __init__(self, make: Callable[[], tuple[App | None, Desk | None]]) -> None:
        """``make`` makes the state folder, or finds who has made it meanwhile, as :func:`own_or_ask` does."""
        super().__init__(None)
        self._make = make

    def register(self, source: Path, name: str, prefix: str, *, at: Elsewhere | None = None) -> Plain:
        """Register the first repository."""
        if self._opened is None:
            self._opened, other = self._make()
            if other is not None:
                return other.register(source, name, prefix, at=at)
        return super().register(source, name, prefix, at=at)

    def repositories(self) -> list[Plain]:
        """None, before that."""
        return super().repositories() if self._opened is not None else []


def nothing_yet(settings: Settings) -> NotFound:
    """What a command says that would look at, or go on with, what is not there."""
    place = place_of(settings.database_url) if settings.on_postgres else settings.home
    return NotFound(
        f"There is nothing in {place} yet.",
        hint="`orch init` in a repository makes a beginning; `orch demo` shows one.",
    )


def settings_for_command(*, quiet: bool = True) -> Settings:
    """The settings; a short command keeps its log to warnings unless a level was asked for.

    :raises ConfigError: they are not usable.
    """
    settings = load_settings(os.environ)
    if quiet and "ORCH_LOG_LEVEL" not in os.environ:
        return replace(settings, log_level=LogLevel.WARNING)
    return settings


@contextmanager
def acting(role: str) -> Iterator[Desk]:
    """The desk for a command that changes something; where there is no state yet, one that makes it when it is needed.

    :raises StateInUse: the owner does not say where it answers.
    """
    settings = settings_for_command()
    if not has_state(settings.database_url):
        with ExitStack() as stack:
            yield FirstDesk(lambda: stack.enter_context(own_or_ask(settings, role)))
        return
    with own_or_ask(settings, role) as (app, desk):
        if desk is not None:
            yield desk
        elif app is not None:
            yield LocalDesk(app, served=settings.on_postgres and app.registration.served())


def remote(owner: Owner) -> Desk:
    """The desk of the process that owns the state; loads what talks HTTP only now."""
    from orchestrator.cli.remote import RemoteDesk

    return RemoteDesk(owner)


@contextmanager
def own_or_ask(settings: Settings, role: str) -> Iterator[tuple[App | None, Desk | None]]:
    """Own the state, or have its owner's desk: exactly one of the two is given.

    :raises StateInUse: the owner does not say where it answers.
    """
    clock, processes = SystemClock(), SystemProcesses()
    deadline = clock.boottime() + WAIT_FOR_OWNER_S
    with ExitStack() as stack:
        while True:
            owner = owner_of(settings.home, processes, shared=settings.on_postgres)
            if owner is not None and settings.on_postgres:
                # Nothing keeps us off, but it is nearer to the work.
                yield None, remote(owner)
                return
            try:
                app = stack.enter_context(open_app(settings, os.environ, role=role))
            except ForeignState:
                owner = owner_of(settings.home, processes)  # root may ask it, for that leaves nothing behind
                if owner is None:
                    raise
                yield None, remote(owner)
                return
            except StateInUse as error:
                owner = owner_of(settings.home, processes, shared=settings.on_postgres)
                if owner is not None:
                    yield None, remote(owner)
                    return
                if clock.boottime() > deadline:
                    raise RequestRefused(
                        error.message,
                        hint="It does not answer commands; stop it, or wait until it has ended.",
                    ) from error
            else:
                yield app, None
                return
            clock.wait(threading.Event(), _POLL_S)


@contextmanager
def reading(*, live: bool = False) -> Iterator[Desk]:
    """The desk for a command that only looks. ``live`` asks a running owner, for what is in its memory alone.

    :raises NotFound: there is no state yet.
    :raises OutsideError: it lies in a folder in which not even SQLite may write.
    """
    settings = settings_for_command()
    owner = owner_of(settings.home, SystemProcesses(), shared=settings.on_postgres)
    if owner is not None and live:
        yield remote(owner)
        return
    if not has_state(settings.database_url):
        raise nothing_yet(settings)
    with ExitStack() as stack:
        try:
            app = stack.enter_context(open_readonly(settings, os.environ))
            app.operations.repositories()  # opening alone does not show whether it can be read
        except DatabaseError as error:
            if settings.on_postgres or os.access(settings.home, os.W_OK | os.X_OK):
                raise
            raise OutsideError(
                f"The state in {settings.home} cannot be read, for its folder is write-protected.",
                hint="SQLite keeps a file beside its database even to read it. Make the folder writable, or copy it "
                "and name the copy in ORCH_HOME.",
            ) from error
        yield LocalDesk(app, served=owner is not None or (settings.on_postgres and app.registration.served()))
