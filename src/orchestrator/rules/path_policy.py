"""Which paths an agent's change may touch (law 10). Pure: paths in, findings out.

Three kinds of refusal. *Shape*: a path that no checkout should hold (absolute, ``..``, ``.git``, invisible or control
characters); no label allows it. *Other work*: documents of another work item; no label allows it. *Protected*: the
files that judge a change, matched like ``.gitignore`` – a pattern without a slash at any depth, one with a slash from
the top, a folder with all below it – regardless of case and of the Unicode form, since a checkout may land on a file
system that makes no difference. The label of the policy lifts this one only.

The paths must be the real ones (``git diff -z``), old and new names of a rename alike. A path that is not valid UTF-8
arrives with surrogates and is refused.
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Protocol

from orchestrator.domain.gate import Finding
from orchestrator.domain.ids import WorkItem

DOCUMENTS = ("docs", "work-items")
MODE_SYMLINK = "120000"
MODE_SUBMODULE = "160000"
_PLAIN_MODES = frozenset({"000000", "100644", "100755"})
_PATH_MAX = 4096  # bytes, the limit of common kernels
_SHOWN = 120  # characters of a path that a message repeats
_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


class Policy(Protocol):
    """What a repository protects."""

    @property
    def protected(self) -> tuple[str, ...]:
        """Patterns as in ``.gitignore``."""
        ...

    @property
    def allow_label(self) -> str:
        """The ticket's label that lifts them."""
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """A path with the mode it has after the change; ``target`` is the text of a symbolic link."""

    path: str
    mode: str
    target: str | None = None


def violations(
    paths: Iterable[str], policy: Policy, labels: Iterable[str], *, work_item: WorkItem | None = None
) -> tuple[Finding, ...]:
    """What an agent working on ``work_item`` may not touch, one finding per path, in the order given."""
    lifted = bool(policy.allow_label) and policy.allow_label in set(labels)
    patterns = () if lifted else tuple(_pattern(text) for text in policy.protected if text.strip("/"))
    found = []
    for path in dict.fromkeys(paths):
        reason = _shape(path) or _other_work(path, work_item) or _protected(path, patterns, policy)
        if reason:
            found.append(Finding(reason, file=_shown(path)))
    return tuple(found)


def mode_violations(changes: Iterable[Change]) -> tuple[Finding, ...]:
    """Entries that are no regular files and may not come from an agent.

    A symbolic link passes if its text is known, relative, and climbs only at its beginning and not out of the
    repository. Since every link obeys this, none can lead out by way of another.
    """
    found = []
    for change in changes:
        reason = _mode(change)
        if reason:
            found.append(Finding(reason, file=_shown(change.path)))
    return tuple(found)


def _shape(path: str) -> str:
    """Why no checkout should hold this path, or nothing."""
    if not path or len(path.encode("utf-8", "surrogatepass")) > _PATH_MAX:
        return "The path is empty or longer than any file system takes. Choose a shorter one."
    if any(unicodedata.category(c) in _INVISIBLE for c in path):
        return "The path holds control, invisible or invalid characters. Rename the file."
    if "\\" in path or path.startswith(("/", "~")) or path[1:2] == ":":
        return "The path is absolute or holds a backslash. Use paths relative to the top of the repository."
    components = path.split("/")
    if any(component in ("", ".", "..") for component in components):
        return "The path has empty, '.' or '..' components. Use the plain path."
    if any(_is_git(component) for component in components):
        return "The path leads into git's own folder. Nothing there belongs to a change."
    return ""


def _is_git(component: str) -> bool:
    """True for ``.git`` in every spelling that some file system takes for it."""
    name = _fold(component).split(":")[0].rstrip(" .")
    return name in (".git", "git~1")


def _other_work(path: str, work_item: WorkItem | None) -> str:
    """Why the path is somebody else's document, or nothing."""
    components = path.split("/")
    folded = tuple(_fold(component) for component in components[: len(DOCUMENTS)])
    if folded != DOCUMENTS[: len(folded)]:
        return ""  # what remains is inside, or stands in the place of a folder above
    own = "/".join((*DOCUMENTS, work_item)) + "/" if work_item else None
    if own and path.startswith(own):
        return ""
    allowed = f"Write only to {own}." if own else "Nothing there is to be changed in this task."
    return f"The path belongs to the documents of other work items. {allowed}"


def _protected(path: str, patterns: tuple["_Pattern", ...], policy: Policy) -> str:
    """Why the path is protected, or nothing."""
    components = tuple(_fold(component) for component in path.split("/"))
    for pattern in patterns:
        if pattern.covers(components):
            return (
                f"The path is protected by the pattern {_shown(pattern.text)}. Leave it as it is, "
                f"or have a person set the label {_shown(policy.allow_label)} on the ticket."
            )
    return ""


def _mode(change: Change) -> str:
    if change.mode in _PLAIN_MODES:
        return ""
    if change.mode == MODE_SUBMODULE:
        return "A submodule brings in code that no gate has read. Commit the files themselves."
    if change.mode != MODE_SYMLINK:
        return f"The mode {_shown(change.mode)} is none that a change may have. Use a regular file."
    if (
        change.target is None
        or not change.target
        or any(unicodedata.category(c) in _INVISIBLE for c in change.target)
    ):
        return "The symbolic link's target cannot be read. Use a regular file."
    steps = [step for step in change.target.split("/") if step not in ("", ".")]
    climbs = next((count for count, step in enumerate(steps) if step != ".."), len(steps))
    inside = climbs <= change.path.count("/") and ".." not in steps[climbs:]
    if (
        change.target.startswith(("/", "~"))
        or "\\" in change.target
        or not inside
        or any(map(_is_git, steps))
    ):
        return "The symbolic link leads, or may lead, out of the repository. Link by the plain relative path, or copy."
    return ""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A pattern cut at its slashes, folded; ``**`` stands for any number of components."""

    text: str
    components: tuple[str, ...]

    def covers(self, path: tuple[str, ...]) -> bool:
        """True where the pattern matches the path or a folder above it."""
        # reached[i]: the first i components of the pattern match what was read so far; ** also matches nothing
        reached = self._skip([True] + [False] * len(self.components))
        for component in path:
            following = [False] * len(reached)
            for index, part in enumerate(self.components):
                if not reached[index]:
                    continue
                if part == "**":
                    following[index] = True
                elif fnmatchcase(component, part):
                    following[index + 1] = True
            reached = self._skip(following)
            if reached[-1]:
                return True
        return False

    def _skip(self, reached: list[bool]) -> list[bool]:
        for index, part in enumerate(self.components):
            if reached[index] and part == "**":
                reached[index + 1] = True
        return reached


def _pattern(text: str) -> _Pattern:
    """A pattern as ``.gitignore`` reads it; ``x/**`` protects ``x`` itself too, or a link could stand in its place."""
    components = [component for component in _fold(text).split("/") if component not in ("", ".")]
    while len(components) > 1 and components[-1] == "**":
        components.pop()
    if components and "/" not in text.rstrip("/"):
        components.insert(0, "**")
    return _Pattern(text, tuple(components))


def _fold(text: str) -> str:
    """The form in which two names are compared."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _shown(text: str) -> str:
    """Hostile text for a message: bounded, control and invisible characters escaped."""
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return cut if cut.isprintable() else ascii(cut)[1:-1]
