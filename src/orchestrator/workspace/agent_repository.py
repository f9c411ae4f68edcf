"""The small repository inside an agent's workspace: made by us, then the agent's own, then read without trust.

Each workspace has a whole ``.git`` of its own that borrows the clone's objects. Whatever an agent's git can be told to
change (configuration, hooks, references) is therefore in the agent's own folder. Must hold: no git command of ours ever
takes that folder as its git folder. Its references are read here, as files; its objects are looked into and copied with
their names computed anew.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.ids import Sha
from orchestrator.runtime.files import UnreadableFile, read_bounded
from orchestrator.workspace.checkout import skeleton
from orchestrator.workspace.folders import exists, only_plain, real_folder

REF_LIMIT = 4096  # bytes of one loose reference
PACKED_LIMIT = 16 * 1024 * 1024
REFS_LIMIT = 5000  # more references than this are no work of an agent's

_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_UNFINISHED = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}


@dataclass(frozen=True, slots=True)
class AgentState:
    """Where an agent's repository stands."""

    head_ref: str | None  # None: detached
    head: Sha | None  # None: a branch without a commit
    refs: dict[str, Sha]  # all references, the stash and the heads of further worktrees among them
    unfinished: str | None  # what was begun and neither finished nor given up


@dataclass(frozen=True, slots=True)
class Broken:
    """It cannot be believed; ``reason`` is a sentence for people."""

    reason: str


def create_agent_repository(
    git_dir: Path, clone: Path, *, branch: str, refs: dict[str, Sha], name: str, email: str
) -> None:
    """A git folder with ``branch`` checked out, the given references, and an identity to commit under.

    :raises OSError: the disk is full or read-only.
    """
    skeleton(git_dir, f"ref: refs/heads/{branch}\n".encode(), agent_config(name, email))
    (git_dir / "objects" / "info" / "alternates").write_bytes(alternates(clone))
    # Packed, so that no name of a branch becomes a path here.
    lines = ["# pack-refs with: sorted", *(f"{refs[ref]} {ref}" for ref in sorted(refs)), ""]
    (git_dir / "packed-refs").write_text("\n".join(lines), encoding="utf-8")


def agent_config(name: str, email: str) -> bytes:
    """What an agent's git needs to know: an identity above all, without which its commit is lost."""
    return (
        "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
        f'[user]\n\tname = "{name}"\n\temail = "{email}"\n'
        "[commit]\n\tgpgsign = false\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n"
    ).encode()


def alternates(clone: Path) -> bytes:
    """Where an agent's git finds the objects that the clone has."""
    return f"{(clone / 'objects').resolve()}\n".encode()


def read_agent_repository(git_dir: Path, clone: Path | None) -> AgentState | Broken:
    """What the files in an agent's git folder say. ``clone`` is whose objects it may borrow (None: nobody's)."""
    if not exists(git_dir):
        return Broken("The workspace's .git was deleted.")
    if not real_folder(git_dir):
        return Broken("The workspace's .git was replaced by a link or a file.")
    try:
        borrowed = _optional(git_dir / "objects" / "info" / "alternates", REF_LIMIT)
        if borrowed not in ((b"",) if clone is None else (b"", alternates(clone))):
            return Broken("The workspace's repository was made to borrow objects from elsewhere.")
        if not only_plain(git_dir / "objects") or not only_plain(git_dir / "refs"):
            return Broken(
                "The workspace's repository holds links or devices where objects and branches belong."
            )
        refs = _packed(git_dir) | dict(_loose(git_dir)) | dict(_worktree_heads(git_dir))
        text = read_bounded(git_dir / "HEAD", REF_LIMIT).decode("utf-8", "replace").strip()
    except (UnreadableFile, OSError) as error:
        return Broken(f"The workspace's repository cannot be read: {error}")
    if len(refs) > REFS_LIMIT:
        return Broken(f"The workspace's repository has more than {REFS_LIMIT} branches.")
    unfinished = next((what for name, what in _UNFINISHED.items() if exists(git_dir / name)), None)
    if _SHA.fullmatch(text):
        return AgentState(None, Sha(text), refs, unfinished)
    if text.startswith("ref: refs/"):
        ref = text.removeprefix("ref: ")
        return AgentState(ref, refs.get(ref), refs, unfinished)
    return Broken("The workspace's HEAD says nothing that git would understand.")


def _packed(git_dir: Path) -> dict[str, Sha]:
    refs = dict[str, Sha]()
    for line in _optional(git_dir / "packed-refs", PACKED_LIMIT).decode("utf-8", "replace").splitlines():
        sha, _, ref = line.partition(" ")
        if ref.startswith("refs/") and _SHA.fullmatch(sha):
            refs[ref] = Sha(sha)
    return refs


def _loose(git_dir: Path) -> Iterator[tuple[str, Sha]]:
    for number, path in enumerate((git_dir / "refs").rglob("*")):
        if number > 2 * REFS_LIMIT:
            raise UnreadableFile("there are too many files below refs.")
        if path.is_file():
            text = read_bounded(path, REF_LIMIT).decode("utf-8", "replace").strip()
            if _SHA.fullmatch(text):
                yield path.relative_to(git_dir).as_posix(), Sha(text)


def _worktree_heads(git_dir: Path) -> Iterator[tuple[str, Sha]]:
    """The detached heads of worktrees that the agent has added to its own repository."""
    if real_folder(git_dir / "worktrees"):
        for folder in sorted((git_dir / "worktrees").iterdir()):
            text = _optional(folder / "HEAD", REF_LIMIT).decode("utf-8", "replace").strip()
            if _SHA.fullmatch(text):
                yield f"worktrees/{folder.name}/HEAD", Sha(text)


def _optional(path: Path, limit: int) -> bytes:
    try:
        return read_bounded(path, limit)
    except FileNotFoundError:
        return b""
