"""What the whole suite shares: the groups, and the fixtures of `tests/fixtures_*.py`.

A group is a folder of tests that want more of the machine than the suite may take for granted. Its tests are
not collected unless asked for (`--group browser`), so that nothing is ever skipped: a test runs or it fails.
"""

import gc
import signal
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent

GROUPS = {
    "browser": "the pages in a real browser: Debian's chromium and chromium-driver",
    "netns": "hosts in network namespaces: needs root and iproute2",
    "contracts": "the published contracts of other systems: ORCH_CONTRACTS or ../shared/contracts",
}

OF_THE_FILE = "of_the_file"

# An example may take its time on a machine with other work; a test that hangs is ended all the same.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

pytest_plugins = [f"tests.{path.stem}" for path in sorted(HERE.glob("fixtures_*.py"))]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--group",
        action="append",
        choices=sorted(GROUPS),
        default=[],
        metavar="NAME",
        help="run this group of tests alone (may be given more than once): "
        + "; ".join(f"{name}: {what}" for name, what in GROUPS.items()),
    )

    parser.addoption(
        "--database",
        choices=["sqlite", "postgres"],
        default="sqlite",
        help="where the tests keep their ledgers that do not say so themselves",
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background by a plain shell: programs under test would inherit a deaf ear for Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, what in GROUPS.items():
        config.addinivalue_line("markers", f"{name}: {what}")
    config.addinivalue_line("markers", f"{OF_THE_FILE}: of the file that SQLite keeps; left out on a server")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the groups not asked for and, when any is, everything else."""
    wanted = config.getoption("--group")
    if HERE not in collection_path.parents:
        return None
    top = collection_path.relative_to(HERE).parts[0]
    if top in GROUPS:
        return None if top in wanted else True
    return True if wanted else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is about the file has nothing to say of a server."""
    if config.getoption("--database") == "sqlite":
        return
    left_out = [item for item in items if item.get_closest_marker(OF_THE_FILE) is not None]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Thousands of tests and what they import stay for good: no collection of garbage need go through them again."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test of a group carries its mark."""
    if HERE in item.path.parents:
        top = item.path.relative_to(HERE).parts[0]
        if top in GROUPS:
            item.add_marker(top)
