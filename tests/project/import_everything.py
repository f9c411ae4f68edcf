"""Import every module of the package and print each effect that its own code had on the way.

usage: python import_everything.py FOLDER-OF-THE-PACKAGE

Only what a module of the package does itself counts: finding and reading modules is the import's own work, and
what a library does while it is imported is the library's.
"""

import importlib
import os
import pkgutil
import sys
import threading
import traceback
from collections.abc import Iterator

EFFECTS = (
    "open",
    "os.fork",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.system",
    "shutil.",
    "socket.",
    "sqlite3.connect",
    "subprocess.Popen",
    "tempfile.",
    "thread",
)

source = os.path.realpath(sys.argv[1])
found: list[str] = []


def culprit() -> str | None:
    """The line of the package that is at work, if it is the package's own code that acts."""
    for frame, line in traceback.walk_stack(sys._getframe(2)):
        name = frame.f_code.co_filename
        if name.startswith(source):
            return f"{os.path.relpath(name, source)}:{line}"
        if name.startswith("<frozen importlib") or "site-packages" in name:
            return None
    return None


def watch(event: str, arguments: tuple[object, ...]) -> None:
    if event.startswith(EFFECTS) and (place := culprit()):
        found.append(f"{place} {event} {arguments!r}")


def watch_threads() -> None:
    """Python 3.11 has no audit event for the start of a thread."""
    start = threading.Thread.start

    def watched(self: threading.Thread) -> None:
        watch("thread", (self.name,))
        start(self)

    threading.Thread.start = watched  # type: ignore[method-assign]


def names() -> Iterator[str]:
    import orchestrator

    yield orchestrator.__name__
    for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        yield module.name


sys.path.insert(0, source)
sys.addaudithook(watch)
watch_threads()
for name in names():
    importlib.import_module(name)
found.extend(f"- thread {thread.name}" for thread in threading.enumerate() if thread.name != "MainThread")
print("\n".join(found), end="\n" if found else "")
sys.exit(bool(found))
