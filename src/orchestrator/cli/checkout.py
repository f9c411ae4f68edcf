"""A person's checkout: what it is, what it is registered as, and whether its forge knows its newest commits.

The checkout itself is changed in two places alone: ``.orchestrator.toml`` where there is none, and the git remote
``orch`` that points to the forge and by which a checkout is recognised.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from orchestrator.cli.desk import Desk
from orchestrator.config.environment import load_settings
from orchestrator.domain.errors import ConfigError, GitError, OutsideError, RequestRefused
from orchestrator.domain.ids import RepoName
from orchestrator.places import Folders
from orchestrator.repo_config.detect import Read, Suggestion, render_init_toml, suggest, tells
from orchestrator.repo_config.loader import parse_repo_config
from orchestrator.repo_config.records import RepoConfig
from orchestrator.repositories import LOCAL, Elsewhere
from orchestrator.rules.names import slug, usable_prefix, usable_repository_name
from orchestrator.runtime.files import read_bounded
from orchestrator.runtime.git import Git
from orchestrator.web.views import Plain

CONFIG_FILE = ".orchestrator.toml"
REMOTE = "orch"
HEADS = "refs/heads/"
CONFIG_LIMIT = 256 * 1024
READ_LIMIT = 512 * 1024
FILES, DEPTH = 500, 4  # how many files below the top are looked at, and in how deep folders
FOREIGN = frozenset({"node_modules", "venv", "env", "build", "dist", "site-packages", "vendor"})
PREFIX_LENGTH = 8
TRIES = 100  # names and prefixes that may be taken before we give up


@dataclass(frozen=True, slots=True)
class Checkout:
    """A person's repository with a commit on its branch."""

    top: Path
    branch: str
    tip: str
    dirty: int  # files that differ from the last commit


@dataclass(frozen=True, slots=True)
class Registered:
    """A repository of this installation."""

    name: RepoName
    prefix: str
    location: Path  # its forge's bare repository, or our copy of what a forge elsewhere has
    address: str  # of its forge, for git
    forge: str  # its kind

    @property
    def elsewhere(self) -> bool:
        """Whether its forge is a server."""
        return self.address != str(self.location)

    @classmethod
    def of(cls, row: Plain) -> "Registered":
        """From the desk's answer.

        :raises ConfigError: the settings cannot be used.
        """
        name, address = RepoName(str(row["name"])), str(row["location"])
        place = (
            Path(address) if row["forge"] == LOCAL else Folders(load_settings(os.environ).home).mirror(name)
        )
        return cls(name, str(row["prefix"]), place, address, str(row["forge"]))


def look_at(git: Git, folder: Path) -> Checkout:
    """The checkout that ``folder`` lies in.

    :raises ConfigError: it is none, or has no commit on its branch.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder.", hint="Name the folder of a git repository.")
    shown = git.run(["rev-parse", "--show-toplevel"], cwd=folder, check=False)
    top = shown.stdout.decode("utf-8", "surrogateescape").rstrip("\n")
    if shown.returncode != 0 or not top:
        raise ConfigError(
            f"{folder.resolve()} is no git repository with files in it.",
            hint="Go into one, or make one: `git init`, add your files, commit.",
        )
    place = Path(top)
    head = git.run(["symbolic-ref", "-q", "HEAD"], cwd=place, check=False).stdout.decode("utf-8", "replace")
    branch = head.strip().removeprefix(HEADS)
    if not branch:
        raise ConfigError(
            f"{place} has no branch checked out.", hint="Check out its default branch: `git switch main`."
        )
    tip = rev(git, place, HEADS + branch)
    if tip is None:
        raise ConfigError(
            f"The branch {branch} of {place} has no commit yet.",
            hint="Commit something first: `git add -A && git commit`.",
        )
    status = git.run(["status", "--porcelain", "--untracked-files=normal"], cwd=place).stdout
    changed = [line for line in status.decode("utf-8", "replace").splitlines() if line[3:] != CONFIG_FILE]
    return Checkout(place, branch, tip, len(changed))


def inside_repository(git: Git, folder: Path) -> bool:
    """Whether a folder lies in a git repository, be it without a commit or a branch."""
    return git.run(["rev-parse", "--git-dir"], cwd=folder, check=False).returncode == 0


def write_config(checkout: Checkout, name: str) -> Suggestion | None:
    """Write a commented ``.orchestrator.toml``; what it guessed, None where nothing was recognised.

    :raises OSError: the folder cannot be written.
    """
    guesses = suggest(_files(checkout.top))
    text = render_init_toml(guesses[0] if guesses else None, default_branch=checkout.branch, name=name)
    with (checkout.top / CONFIG_FILE).open("x", encoding="utf-8") as file:
        file.write(text)
    return guesses[0] if guesses else None


def config_in_checkout(checkout: Checkout) -> RepoConfig | None:
    """The configuration as it lies in the folder, None where there is none.

    :raises ConfigError: it is not usable.
    """
    try:
        data = read_bounded(checkout.top / CONFIG_FILE, CONFIG_LIMIT)
    except FileNotFoundError:
        return None
    return parse_repo_config(data, source=CONFIG_FILE)


def config_on_main(git: Git, at: Registered) -> RepoConfig:
    """The configuration that a new ticket will be judged by: that of the forge's default branch.

    :raises ConfigError: it is missing or not usable.
    """
    branch = default_branch(at)
    found = git.run(["cat-file", "blob", f"{HEADS}{branch}:{CONFIG_FILE}"], git_dir=at.location, check=False)
    if found.returncode != 0:
        raise ConfigError(
            f"{at.name} has no {CONFIG_FILE} on {branch}: how to check it is not known. Nothing was filed.",
            hint=f"`orch init` writes one; then `git add {CONFIG_FILE} && git commit`, and repeat this command.",
        )
    return parse_repo_config(found.stdout[:CONFIG_LIMIT], source=f"{at.name}:{CONFIG_FILE} on {branch}")


def default_branch(at: Registered) -> str:
    """The forge's default branch.

    :raises OutsideError: the forge is gone.
    """
    try:
        head = (at.location / "HEAD").read_text(encoding="utf-8")
    except OSError as error:
        raise OutsideError(
            f"The forge of {at.name} cannot be read: {error.strerror} ({at.location}).",
            hint="Was the state folder moved or cleaned up? Restore it from a backup.",
        ) from error
    return head.strip().removeprefix("ref: ").removeprefix(HEADS)


def find_registered(git: Git, checkout: Checkout, known: Iterable[Registered]) -> Registered | None:
    """What the checkout is registered as: by its remote, else by a history that begins with the same commits."""
    url = git.run(["config", "--get", f"remote.{REMOTE}.url"], cwd=checkout.top, check=False)
    remote = url.stdout.decode("utf-8", "surrogateescape").strip()
    candidates = list(known)
    for one in candidates:
        if remote and (remote == one.address or Path(remote) == one.location):
            return one
    roots = _roots(git, checkout.top, checkout.tip)
    for one in candidates:
        same_name = one.name == name_for(checkout)
        if same_name and one.location.is_dir() and _roots(git, one.location, "HEAD", bare=True) == roots:
            return one
    return None


def register(
    desk: Desk,
    git: Git,
    checkout: Checkout,
    name: str | None,
    prefix: str | None,
    *,
    there: Elsewhere | None = None,
) -> Registered:
    """Register the checkout, or its repository ``there`` at a server, under a name and prefix that are free.

    :raises RequestRefused: the name or prefix asked for belongs to another repository.
    """
    known = [Registered.of(row) for row in desk.repositories()]
    names, prefixes = {one.name for one in known}, {one.prefix for one in known}
    if name is not None and (not usable_repository_name(name) or name in names):
        why = "belongs to another repository" if name in names else "is no usable name"
        raise RequestRefused(
            f"The name {name[:60]!r} {why}.", hint="Name it with small letters, digits and dashes."
        )
    chosen = name or _free(name_for(checkout), names, "-")
    wanted = (prefix or _prefix_for(chosen)).upper()
    if prefix is None:
        wanted = _free(wanted, prefixes, "")
    elif not usable_prefix(wanted) or wanted in prefixes:
        why = "numbers another repository's tasks" if wanted in prefixes else "is no usable prefix"
        raise RequestRefused(f"The prefix {prefix[:60]!r} {why}.", hint="A letter, then letters or digits.")
    return Registered.of(desk.register(checkout.top, chosen, wanted, at=there))


def settle(git: Git, checkout: Checkout, at: Registered) -> list[str]:
    """Make checkout and forge know each other's place and commits; what was done for that, and what was not."""
    told = []
    if point_remote(git, checkout, at):
        told.append(f"The git remote `{REMOTE}` names its forge: {at.address}")
    pushed = bring_up_to_date(git, checkout, at)
    if pushed:
        told.append(pushed)
    if checkout.dirty:
        told.append(f"{checkout.dirty} files differ from your last commit; agents work from commits alone.")
    return told


def point_remote(git: Git, checkout: Checkout, at: Registered) -> bool:
    """Let the checkout's remote ``orch`` name the forge; True where that had to be changed."""
    shown = git.run(["config", "--get", f"remote.{REMOTE}.url"], cwd=checkout.top, check=False)
    if shown.stdout.decode("utf-8", "surrogateescape").strip() == at.address:
        return False
    act = "set-url" if shown.returncode == 0 else "add"
    git.run(["remote", act, REMOTE, at.address], cwd=checkout.top)
    return True


def bring_up_to_date(git: Git, checkout: Checkout, at: Registered) -> str:
    """Give the forge commits that its default branch lacks; what a person should know of it, or an empty text."""
    branch = default_branch(at)
    theirs = rev(git, at.location, HEADS + branch, bare=True)
    ours = rev(git, checkout.top, HEADS + branch)
    if ours is None or ours == theirs:
        return ""
    if theirs is None or _is_ancestor(git, checkout.top, theirs, ours):
        if at.elsewhere:  # with a person's own rights there, by the person
            return f"The forge lacks commits of your {branch}: `git push {REMOTE} {branch}`."
        try:
            git.run(
                ["push", "-q", "--", str(at.location), f"{HEADS}{branch}:{HEADS}{branch}"],
                cwd=checkout.top,
                protocols=["file"],
            )
        except GitError as error:
            error.hint = error.hint or f"Push by hand: `git push {REMOTE} {branch}`."
            raise
        return f"Pushed {branch} to the forge ({ours[:12]})."
    if _is_ancestor(git, at.location, ours, theirs, bare=True):
        return f"The forge is ahead of your {branch}: `git pull {REMOTE} {branch}`."
    return f"Your {branch} and the forge's have gone apart: `git pull --rebase {REMOTE} {branch}`."


def rev(git: Git, place: Path, name: str, *, bare: bool = False) -> str | None:
    """The commit that a name stands for, None where there is none."""
    found = git.run(
        ["rev-parse", "-q", "--verify", f"{name}^{{commit}}"],
        cwd=place,
        git_dir=place if bare else None,
        check=False,
    )
    return found.stdout.decode("ascii", "replace").strip() or None


def name_for(checkout: Checkout) -> str:
    """The repository's name as its folder suggests it."""
    return slug(checkout.top.name)


def _prefix_for(name: str) -> str:
    letters = "".join(c for c in name.upper() if c.isascii() and c.isalnum()).lstrip("0123456789")
    return letters[:PREFIX_LENGTH] or "TASK"


def _free(wanted: str, taken: Iterable[str], joint: str) -> str:
    names = set(taken)
    for number in range(1, TRIES):
        candidate = wanted if number == 1 else f"{wanted}{joint}{number}"
        if candidate not in names:
            return candidate
    raise RequestRefused(f"Every name like {wanted!r} is taken.", hint="Name one with --name and --prefix.")


def _files(top: Path) -> Mapping[str, Read]:
    """What may say how the repository checks itself."""
    places = [*top.iterdir(), *islice(_below(top), FILES)]
    return {
        place.relative_to(top).as_posix(): partial(read_bounded, place, READ_LIMIT)
        for place in places
        if place.is_file() and not place.is_symlink()
    }


def _below(top: Path) -> Iterator[Path]:
    """The telling files in folders, not too deep; hidden ones and installed packages are not the repository's."""
    for folder, folders, files in os.walk(top):
        here = Path(folder)
        deep = len(here.relative_to(top).parts) >= DEPTH
        folders[:] = [] if deep else sorted(n for n in folders if n[0] != "." and n not in FOREIGN)
        if here != top:
            yield from (
                here / name for name in sorted(files) if tells((here / name).relative_to(top).as_posix())
            )


def _roots(git: Git, place: Path, tip: str, *, bare: bool = False) -> set[str]:
    found = git.run(
        ["rev-list", "--max-parents=0", tip], cwd=place, git_dir=place if bare else None, check=False
    )
    return set(found.stdout.decode("ascii", "replace").split())


def _is_ancestor(git: Git, place: Path, older: str, newer: str, *, bare: bool = False) -> bool:
    done = git.run(
        ["merge-base", "--is-ancestor", older, newer],
        cwd=place,
        git_dir=place if bare else None,
        check=False,
    )
    return done.returncode == 0
