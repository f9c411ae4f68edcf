"""Which repository a command is about: one named, else the one whose checkout we stand in, else the only one."""

from pathlib import Path

from orchestrator.cli import checkout as look
from orchestrator.cli.desk import Desk
from orchestrator.domain.errors import ConfigError, NotFound
from orchestrator.domain.spelling import did_you_mean
from orchestrator.runtime.git import Git


def known_repository(desk: Desk, git: Git, wanted: str | None) -> look.Registered:
    """A registered repository.

    :raises NotFound: there is none that fits.
    """
    known = [look.Registered.of(row) for row in desk.repositories()]
    if wanted is not None:
        for one in known:
            if one.name == wanted:
                return one
    here = _checkout(git, wanted)
    found = look.find_registered(git, here, known) if here is not None else None
    if found is not None:
        return found
    if wanted is not None:
        raise NotFound(
            f"There is no repository {wanted[:80]!r}. {did_you_mean(wanted, [k.name for k in known])}".rstrip(),
            hint="Registered: "
            + (", ".join(one.name for one in known) or "none; `orch init` registers one."),
        )
    if len(known) == 1:
        return known[0]
    raise NotFound(
        "Which repository?" if known else "No repository is registered yet.",
        hint="Name it with --repo: " + ", ".join(one.name for one in known)
        if known
        else "Go into one and run `orch init`.",
    )


def repository_to_run(desk: Desk, git: Git, wanted: str | None) -> tuple[look.Registered, list[str]]:
    """A repository made ready for a ticket, registered if need be, and what was done for that.

    :raises ConfigError: there is no repository, or its configuration cannot be used.
    :raises NotFound: there is no repository of that name.
    """
    known = [look.Registered.of(row) for row in desk.repositories()]
    did: list[str] = []
    here = _checkout(git, wanted)
    if here is None or (wanted is not None and any(one.name == wanted for one in known)):
        if wanted is None and not known:
            here = look.look_at(git, Path.cwd())  # says what is wrong with it
        at = known_repository(desk, git, wanted)
    else:
        found = look.find_registered(git, here, known)
        if found is None and not (here.top / look.CONFIG_FILE).is_file():
            raise ConfigError(
                f"{here.top} has no {look.CONFIG_FILE}: how to check it is not known. Nothing was filed.",
                hint="`orch init` writes one after a look at the repository.",
            )
        look.config_in_checkout(here)
        if found is None:
            found = look.register(desk, git, here, None, None)
            did.append(f"Registered as {found.name}; its tasks are {found.prefix}-1, {found.prefix}-2 …")
        at = found
        did += look.settle(git, here, at)
    look.config_on_main(git, at)
    return at, did


def _checkout(git: Git, wanted: str | None) -> look.Checkout | None:
    """The checkout at a path, or here; None where there is none to speak of."""
    place = Path(wanted) if wanted is not None else Path.cwd()
    if not place.is_dir():
        return None
    try:
        return look.look_at(git, place)
    except ConfigError:
        if wanted is not None and ("/" in wanted or wanted in (".", "..")):
            raise
        return None
