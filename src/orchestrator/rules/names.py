"""Names for branches and folders, made of a work item and whatever a person typed as a title.

The work item alone makes a name unique; the title only makes it readable. A name is ASCII, at most
:data:`LIMIT_BYTES` long, valid for git and harmless as one path component, for any title. Names of different work
items differ in more than case. A name is stored with its task and never computed again: titles get edited.
"""

import hashlib
import re
import unicodedata

from orchestrator.domain.errors import InvariantError
from orchestrator.domain.ids import WorkItem

LIMIT_BYTES = 100
BRANCH_PREFIX = "orch/"
SLUG_LIMIT = 40  # readable in a list of branches; leaves room for the longest work item
TITLE_LIMIT = 400  # characters that are looked at; the rest of a huge title could not be shown anyway
FALLBACK_SLUG = "task"  # for a title of which nothing can be spelled in ASCII
ID_LIMIT = 40

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_PREFIX = re.compile(r"[A-Z][A-Z0-9]{0,15}")
_PLAIN_ID = re.compile(r"[A-Z][A-Z0-9]*-[0-9]+")  # one dash: where the id ends can be told from the name
_SAFE_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-]))*")

_CYRILLIC = {
    "а": "a", "б": "b", "в": "v", "г": "g", "ґ": "g", "д": "d", "е": "e", "ё": "e", "є": "ye", "ж": "zh",
    "з": "z", "и": "i", "і": "i", "ї": "yi", "й": "y", "ј": "j", "к": "k", "л": "l", "љ": "lj", "м": "m",
    "н": "n", "њ": "nj", "о": "o", "п": "p", "р": "r", "с": "s", "т": "t", "ћ": "c", "у": "u", "ў": "u",
    "ф": "f", "х": "kh", "ц": "ts", "ч": "ch", "џ": "dz", "ш": "sh", "щ": "shch", "ъ": "", "ы": "y", "ь": "",
    "э": "e", "ю": "yu", "я": "ya", "ђ": "dj",
}  # fmt: skip
_LATIN = {"ß": "ss", "æ": "ae", "ø": "o", "œ": "oe", "đ": "d", "ł": "l", "ı": "i", "þ": "th"}
_TABLE = str.maketrans(_CYRILLIC | _LATIN)


def usable_repository_name(name: str) -> bool:
    """Whether a repository may be called so: its forge and its clone are folders of that name."""
    return _REPOSITORY.fullmatch(name) is not None


def usable_prefix(prefix: str) -> bool:
    """Whether a repository's work items may begin so: branches, refs and folders are named after them."""
    return _PREFIX.fullmatch(prefix) is not None


def branch_name(work_item: WorkItem, title: str) -> str:
    """The task's branch, such as ``orch/ORCH-114-ispravit-vkhod``.

    :raises InvariantError: the work item is none that the product would mint.
    """
    return BRANCH_PREFIX + worktree_dir(work_item, title)


def worktree_dir(work_item: WorkItem, title: str) -> str:
    """The folder of the task's workspace: one path component, the branch's name without its prefix.

    :raises InvariantError: the work item is none that the product would mint.
    """
    return f"{_unique_part(work_item)}{slug(title)}"


def work_item_ref(work_item: WorkItem) -> str:
    """The work item as one component of a ref or path, different from every other's in more than case.

    :raises InvariantError: the work item is none that the product would mint.
    """
    return _unique_part(work_item)[:-1]


def slug(title: str) -> str:
    """Lower-case ASCII words joined by single dashes; never empty, never starting or ending with a dash."""
    text = unicodedata.normalize("NFC", title[:TITLE_LIMIT]).lower().translate(_TABLE)
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii").lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if len(words) > SLUG_LIMIT:
        cut = words[: SLUG_LIMIT + 1]
        words = cut.rpartition("-")[0] if "-" in cut[SLUG_LIMIT // 2 :] else cut[:SLUG_LIMIT]
    return words.strip("-") or FALLBACK_SLUG


def _unique_part(work_item: WorkItem) -> str:
    """The id and what separates it from the slug; ids of an unusual form carry a digest of their exact letters."""
    if len(work_item) > ID_LIMIT or not _SAFE_ID.fullmatch(work_item):
        raise InvariantError(
            f"The work item {work_item[:ID_LIMIT]!r} cannot be part of a branch name.",
            hint="Work items are letters, digits, dots, dashes and underscores, at most 40 of them.",
        )
    if _PLAIN_ID.fullmatch(work_item):
        return f"{work_item}-"
    digest = hashlib.sha256(work_item.encode("ascii")).hexdigest()[:10]
    return f"w.{digest}.{work_item}."
