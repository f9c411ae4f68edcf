"""What the whole suite shares: the groups, and the fixtures of `tests/fixtures_*.py`.

A group is a folder of tests that want more of the machine than the suite may take for granted. Its tests are
not collected unless asked for (`--group browser`), so that nothing is ever skipped: a test runs or it fails.

A long test is a further case of what a shorter one, and the sweeps, show as well: it runs with `--long`, or when it is
asked for by its name.
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
LONG = "long"

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
    parser.addoption(
        "--long", action="store_true", help="run the long tests as well: further cases of the others"
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background by a plain shell: programs under test would inherit a deaf ear for Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name, what in GROUPS.items():
        config.addinivalue_line("markers", f"{name}: {what}")
    config.addinivalue_line("markers", f"{OF_THE_FILE}: of the file that SQLite keeps; left out on a server")
    config.addinivalue_line("markers", f"{LONG}(but): runs with --long, but for these of its parameters")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the groups not asked for and, when any is, everything else."""
    wanted = config.getoption("--group")
    if HERE not in collection_path.parents:
        return None
    top = collection_path.relative_to(HERE).parts[0]
    if top in GROUPS:
        return None if top in wanted else True
    return True if wanted else None


@pytest.hookimpl(tryfirst=True)  # before -k, which would take away what the marks are checked by
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long ones not asked for, and on a server what is about the file."""
    by_name = any("::" in name for name in config.args)
    all_of_them = by_name or config.getoption("--long")
    on_a_server = config.getoption("--database") != "sqlite"
    if not by_name:
        _check_long(items)
    left_out = {
        item
        for item in items
        if (on_a_server and item.get_closest_marker(OF_THE_FILE)) or (_is_long(item) and not all_of_them)
    }
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _short_cases(item: pytest.Item) -> list[str]:
    mark = item.get_closest_marker(LONG)
    return [] if mark is None else [f"[{case}]" for case in mark.kwargs.get("but", ())]


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker(LONG) is not None and not item.name.endswith(tuple(_short_cases(item)))


def _check_long(items: list[pytest.Item]) -> None:
    """A mark that names a case which is none would leave out all of them."""
    names = {item.nodeid for item in items}
    for item in items:
        test = item.nodeid.removesuffix(item.name) + item.name.partition("[")[0]
        for case in _short_cases(item):
            if f"{test}{case}" not in names:
                raise pytest.UsageError(f"{test} has no case {case} that its mark could keep")


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
