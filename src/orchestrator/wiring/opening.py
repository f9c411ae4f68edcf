"""Opening an installation: to work, or to look."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from orchestrator.config.settings import Settings
from orchestrator.db import installation
from orchestrator.db.file_lock import lock_of, own_file
from orchestrator.db.opening import open_migrated, open_to_look, refuse_unusable_place, schema_of
from orchestrator.domain.errors import ConfigError
from orchestrator.installation.folder_owner import refuse_anothers
from orchestrator.installation.within_reach import refuse_a_strange_home
from orchestrator.observability.log import configure_logging
from orchestrator.ownership.registration import WORKER
from orchestrator.ownership.state_folder import FOLDER_KNOWN_SINCE, NEW_FOLDER, strange
from orchestrator.places import known_state_id, state_id_of
from orchestrator.runtime.files import make_private_folder
from orchestrator.wiring.app import App
from orchestrator.wiring.ground import Outside


@contextmanager
def open_app(
    settings: Settings,
    environ: Mapping[str, str],
    *,
    role: str,
    outside: Outside | None = None,
    shared: bool = False,
) -> Iterator[App]:
    """Own the state folder for the length of the block: lock, migrate, register this process.

    On PostgreSQL it is owned together with others, but for a worker's. ``shared``: so on SQLite, too, for proofs; no
    command offers it (DESIGN §8).

    :raises ForeignState: it belongs to another user.
    :raises ConfigError: it, or the file that the URL names, cannot be where it is said to be.
    :raises StateInUse: another process owns it.
    :raises OperatorError: it is not the one that belongs to the database.
    :raises SchemaError: it belongs to a newer version.
    :raises DatabaseError: it cannot be read or written.
    """
    outside = outside or Outside(environ)
    redactor = configure_logging(settings, settings.secrets(), utc=outside.clock.utc)
    refuse_anothers(settings.home, lock_of(settings.database_path))
    if settings.on_postgres and role not in (WORKER, NEW_FOLDER):
        _refuse_an_empty_folder(settings, outside)
    refuse_unusable_place(settings.database_url, settings.home)
    _make_home(settings)
    together = shared or (settings.on_postgres and role != WORKER)
    with own_file(settings.database_path, role=role, shared=together):
        database = open_migrated(
            settings.database_url, clock=outside.clock, entropy=outside.entropy, waypoints=outside.waypoints
        )
        try:
            state_id = state_id_of(settings.home, outside.entropy) if settings.on_postgres else ""
            app = App(settings, outside, database, redactor, role=role, state_id=state_id)
            if app.home:
                unknown = app.comparison.traces()
                refuse_a_strange_home(unknown, folder=settings.home, host=outside.host)
            app.registration.enter()
            try:
                with app.signals():
                    yield app
            finally:
                app.registration.leave()
        finally:
            database.close()


def _make_home(settings: Settings) -> None:
    try:
        make_private_folder(settings.home)
    except (FileExistsError, NotADirectoryError) as error:
        raise ConfigError(
            f"ORCH_HOME has to be a folder, and {error.filename or settings.home} is none. Nothing was started.",
            hint="Name a folder in ORCH_HOME; it is made where it does not exist.",
        ) from error


def _refuse_an_empty_folder(settings: Settings, outside: Outside) -> None:
    """Before anything is made in it, such as the id of a new folder in the place where a known one is to be mounted."""
    if known_state_id(settings.home) is None and schema_of(settings.database_url) >= FOLDER_KNOWN_SINCE:
        looking = closing(open_to_look(settings.database_url, clock=outside.clock))
        with looking as database, database.read() as tx:
            known = installation.folder(tx)
        if known is not None:
            raise strange()


@contextmanager
def open_readonly(settings: Settings, environ: Mapping[str, str]) -> Iterator[App]:
    """Look at a state folder that somebody else may own; writing is refused.

    :raises DatabaseError: there is no database yet, or it cannot be read.
    """
    outside = Outside(environ)
    redactor = configure_logging(settings, settings.secrets(), utc=outside.clock.utc)
    database = open_to_look(settings.database_url, clock=outside.clock)
    try:
        yield App(settings, outside, database, redactor)
    finally:
        database.close()
