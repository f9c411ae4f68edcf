"""Which repository a command is about: one named, else the one whose checkout we stand in, else the only one."""

from pathlib import Path

from orchestrator.cli import checkout as look
from orchestrator.cli.desk import Desk
from orchestrator.cli.forge_copy import refresh
from orchestrator.domain.errors import ConfigError, NotFound, OperatorError
from orchestrator.domain.spelling import did_you_mean
from orchestrator.runtime.git import Git


def known_repository(desk: Desk, git: Git, wanted: str | None) -> look.Registered:
    """A registered repository.

    :raises NotFound: there is none that fits.
    :raises ConfigError: none is named, and the folder we stand in is no repository that could be meant.
    """
    return _known(_registered(desk), git, wanted)


def refuse_early(git: Git, wanted: str | None) -> None:
    """Where nothing is registered yet: refuse what :func:`repository_to_run` would, before a state folder is made.

    :raises OrchestratorError: as it says.
    """
    if _checkout_meant([], git, wanted) is None:
        _known([], git, wanted)


def _registered(desk: Desk) -> list[look.Registered]:
    return [look.Registered.of(row) for row in desk.repositories()]


def _known(known: list[look.Registered], git: Git, wanted: str | None) -> look.Registered:
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
    if not known:
        raise NotFound("No repository is registered yet.", hint="Go into one and run `orch init`.")
    if len(known) == 1 and not look.inside_repository(git, Path.cwd()):
        return known[0]
    raise _not_here(git, known)


def _not_here(git: Git, known: list[look.Registered]) -> OperatorError:
    """Why the folder we stand in is none that is registered."""
    try:
        here = look.look_at(git, Path.cwd())
    except ConfigError as error:
        hint = f"{error.hint} Then `orch init` registers it. {_others(known)}"
        return ConfigError(f"{error.message} So it is not one that is registered.", hint=hint)
    return NotFound(
        f"{here.top} is not registered.", hint=f"`orch init` in it registers it. {_others(known)}"
    )


def _others(known: list[look.Registered]) -> str:
    return "Or name a registered one with --repo: " + ", ".join(one.name for one in known) + "."


def repository_to_run(desk: Desk, git: Git, wanted: str | None) -> tuple[look.Registered, list[str]]:
    """A repository made ready for a ticket, registered if need be, and what was done for that.

    :raises ConfigError: there is no repository, or its configuration cannot be used.
    :raises NotFound: there is no repository of that name.
    """
    did: list[str] = []
    known = _registered(desk)
    meant = _checkout_meant(known, git, wanted)
    if meant is None:
        at = _known(known, git, wanted)
        refresh(git, at)
    else:
        here, found = meant
        if found is None:
            found = look.register(desk, git, here, None, None)
            did.append(f"Registered as {found.name}; its tasks are {found.prefix}-1, {found.prefix}-2 …")
        at = found
        refresh(git, at)
        did += look.settle(git, here, at)
    look.config_on_main(git, at)
    return at, did


def _checkout_meant(
    known: list[look.Registered], git: Git, wanted: str | None
) -> tuple[look.Checkout, look.Registered | None] | None:
    """The checkout that is to be run, and what it is registered as; None where none is meant, but one by its name."""
    here = _checkout(git, wanted)
    if here is None or (wanted is not None and any(one.name == wanted for one in known)):
        if wanted is None and not known:
            look.look_at(git, Path.cwd())  # says what is wrong with it
        return None
    found = look.find_registered(git, here, known)
    if found is None and not (here.top / look.CONFIG_FILE).is_file():
        raise ConfigError(
            f"{here.top} has no {look.CONFIG_FILE}: how to check it is not known. Nothing was filed.",
            hint="`orch init` writes one after a look at the repository.",
        )
    look.config_in_checkout(here)
    return here, found


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
