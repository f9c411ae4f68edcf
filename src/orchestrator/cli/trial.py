"""A trial of a connection: one harmless change at a server, and whether it is told of here."""

import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.cli.findings import Finding, Level
from orchestrator.config import Secret, Settings
from orchestrator.db import inbox
from orchestrator.db.file_lock import lock_of
from orchestrator.domain.errors import OutsideError
from orchestrator.forges.git_access import GitAccess
from orchestrator.forges.mirror import HEADS, Mirror
from orchestrator.forges.remote_open import Server
from orchestrator.installation.folder_owner import refuse_anothers
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.files import make_private_folder, replace_durably
from orchestrator.runtime.git import Git
from orchestrator.runtime.git_refs import RefChange
from orchestrator.webhooks.envelope import path_of
from orchestrator.wiring import open_readonly

BRANCH = "orch/connect-"  # what the branch of a trial begins with
FOLDER = "secrets"  # in the state folder
_SECRET_BYTES = 32
_POLL_S = 0.2


def deliver_at(settings: Settings, source: str) -> str:
    """The address at which a server delivers."""
    return settings.base_url + path_of(source)


def keep(settings: Settings, name: str, value: str) -> Path:
    """Keep a secret in a file of the state folder that only its owner reads.

    :raises ForeignState: that is another user.
    :raises OutsideError: it cannot be written.
    """
    path = settings.home / FOLDER / name
    refuse_anothers(settings.home, lock_of(settings.database_path))
    try:
        make_private_folder(path.parent)
        replace_durably(path, f"{value}\n".encode())
    except OSError as error:
        raise OutsideError(f"{path} cannot be written: {error.strerror}.") from error
    return path


def webhook_secret(settings: Settings, name: str, entropy: Entropy) -> tuple[Secret, Path]:
    """The secret that a file of the state folder keeps, made where there is none: a sender may know it already.

    :raises ForeignState: the folder is another user's.
    :raises OutsideError: it cannot be read or written.
    """
    path = settings.home / FOLDER / name
    try:
        if not path.exists():
            keep(settings, name, entropy.token(_SECRET_BYTES))
        return Secret(path.read_text(encoding="ascii").strip()), path
    except (OSError, UnicodeError) as error:
        raise OutsideError(f"{path} cannot be read: {error}.") from error


def push_a_branch(location: str, server: Server, git: Git, clock: Clock, entropy: Entropy) -> str:
    """Push a branch with an empty commit, and remove it; what a webhook will say of it holds what is returned.

    :raises OutsideError: our user may not, or the server cannot be reached.
    """
    word = entropy.token()
    ref = f"{HEADS}{BRANCH}{word}"
    with tempfile.TemporaryDirectory(prefix="orch-connect-") as folder:
        copy = Mirror(
            git, Path(folder) / "copy.git", GitAccess(location, server.token), clock=clock, entropy=entropy
        )
        trial = copy.open_or_create("main").note(b"A trial of the connection; removed at once.")
        copy.change(RefChange(ref, None, trial))
        copy.change(RefChange(ref, trial, None))
    return word


def tried(
    settings: Settings,
    environ: Mapping[str, str],
    clock: Clock,
    *,
    about: str,
    source: str,
    change: Callable[[], str],
    wait_s: float,
    hint: str,
) -> Finding:
    """Make the change, and wait up to ``wait_s`` seconds until its delivery is in the inbox; ``hint`` says where to
    look if none comes."""
    with open_readonly(settings, environ) as app:
        with app.database.read() as tx:
            before = inbox.newest(tx)
        try:
            word = change()
        except OutsideError as error:
            return Finding(
                Level.FAILED, about, f"the trial could not be made there: {error.message}", error.hint
            )
        began, never = clock.boottime(), threading.Event()
        while (waited := clock.boottime() - began) < wait_s:
            with app.database.read() as tx:
                if inbox.has_come(tx, source, word, after=before):
                    return Finding(Level.OK, about, f"a change there was told of here after {waited:.1f} s")
            clock.wait(never, _POLL_S)
    return Finding(
        Level.WARNING, about, f"a change there was not told of here within {wait_s:g} s, and undone", hint
    )
