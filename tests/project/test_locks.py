"""The lock files: every package pinned and hashed, none saying where it is fetched from."""

import re
import tomllib

import pytest

from tests.project.checkout import ROOT

LOCKS = {
    "requirements.lock": "run",
    "requirements-claude.lock": "claude",
    "requirements-dev.lock": "dev",
    "requirements-uv.lock": "installer",
}

PINNED = re.compile(
    r"(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^#]+?))?(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)"
)


def requirement_lines(lock: str) -> list[str]:
    """The lock's logical lines, without comments, a continued line joined."""
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    lines = (line.split(" #", 1)[0] for line in text.splitlines() if not line.lstrip().startswith("#"))
    return [" ".join(line.split()) for line in lines if line.strip()]


def pins(lock: str) -> dict[str, str]:
    found = {}
    for line in requirement_lines(lock):
        match = PINNED.fullmatch(line)
        assert match, f"{lock}: not pinned by version and hash: {line[:100]}"
        found[match["name"]] = match["version"]
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=LOCKS.values())
def test_every_package_is_pinned_by_hash(lock: str) -> None:
    assert pins(lock)


@pytest.mark.parametrize("lock", LOCKS, ids=LOCKS.values())
def test_a_lock_names_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert "index-url" not in text
    assert "find-links" not in text


def test_each_lock_holds_all_of_the_smaller_one() -> None:
    run, claude, dev = (pins(f"requirements{part}.lock") for part in ("", "-claude", "-dev"))
    assert run.items() <= claude.items()
    assert claude.items() <= dev.items()


def test_what_the_project_declares_is_locked() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = declared["dependency-groups"]
    run = declared["project"]["dependencies"] + groups["build"]
    claude = run + declared["project"]["optional-dependencies"]["claude"]
    wanted = {
        "requirements.lock": run,
        "requirements-claude.lock": claude,
        "requirements-dev.lock": claude + groups["test"] + groups["lint"],
        "requirements-uv.lock": groups["installer"],
    }
    for lock, requirements in wanted.items():
        names = {re.split(r"[^A-Za-z0-9-]", requirement, maxsplit=1)[0] for requirement in requirements}
        missing = names - pins(lock).keys()
        assert not missing, f"{lock}: run ./dev lock; it lacks {sorted(missing)}"
