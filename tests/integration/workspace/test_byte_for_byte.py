"""What is checked out is what is committed, and what tools leave behind is no work: for an agent's git and for ours."""

import os
import subprocess
from pathlib import Path

import pytest

from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.runtime.git import Git
from tests.fixtures_git import Hand, House, house_at, person_at, porcelain

ITEM = WorkItem("ORCH-1")
BRANCH = "orch/ORCH-1-change-it"
LITTER = [
    "__pycache__/app.cpython-311.pyc", "src/__pycache__/x.pyc", "lib/old.pyo", ".pytest_cache/v/cache", ".coverage",
    ".mypy_cache/3.11/a.json", ".ruff_cache/0.1/a", ".coverage.host.1.2", "htmlcov/index.html", ".venv/bin/activate",
    "web/node_modules/left/index.js", ".tox/py/log", ".nox/x/y", "app.egg-info/PKG-INFO", "docs/.DS_Store",
]  # fmt: skip
UNNORMALISED = {
    ".gitattributes": "* text=auto\n*.bat eol=crlf\n*.py ident\n*.u16 working-tree-encoding=UTF-16\n*.big filter=lfs\n",
    "windows.txt": "one\r\ntwo\r\n",
    "src/windows.c": "int x;\r\n",
    "mixed.txt": "one\r\ntwo\n",
    "run.bat": "echo\n",
    "app.py": "# $Id$\nx = 1\n",
    "text.u16": "no UTF-16 at all\n",
    "pointer.big": "version https://git-lfs.github.com/spec/v1\n",
}


def littered(agent: Hand) -> None:
    for path in LITTER:
        agent.write(path, "litter")
    agent.write("src/new.py", "x = 1\n")
    agent.write(".coveragerc", "[run]\n")


def added(house: House, head: Sha) -> set[str]:
    return {change.path for change in house.clone.changes(house.main, head)}


@pytest.fixture
def bare_of_ignores(tmp_path: Path, git: Git) -> House:
    """A repository without .gitignore in which two files are tracked that others would ignore."""
    files = {"README.md": "x\n", "vendor/node_modules/kept.js": "1\n", "prebuilt.pyc": "1\n"}
    return house_at(tmp_path, person_at(tmp_path / "person", files), git)


@pytest.fixture
def unnormalised(tmp_path: Path, git: Git) -> House:
    """Files that their attributes would convert, had anybody ever renormalised them."""
    person = person_at(tmp_path / "person", {"x": "x\n"})
    for path, text in UNNORMALISED.items():
        person.write(path, text)
    # Past every conversion, as a history from before the attributes is.
    (person.folder / ".git" / "info" / "attributes").write_text(
        "* -text -filter -ident !working-tree-encoding\n"
    )
    person.git("add", "-A")
    person.git("commit", "-q", "-m", "As it has always been")
    return house_at(tmp_path, person, git)


@pytest.fixture
def agent(house: House) -> Hand:
    return Hand(house.workspaces.prepare(ITEM, "Change it", BRANCH, house.main))


def prepared(house: House) -> Hand:
    return Hand(house.workspaces.prepare(ITEM, "Change it", BRANCH, house.main))


def test_litter_is_not_committed_by_the_agent(bare_of_ignores: House) -> None:
    agent = prepared(bare_of_ignores)
    littered(agent)
    agent.commit("Everything")  # git add --all
    found = bare_of_ignores.workspaces.harvest(ITEM, bare_of_ignores.main, bare_of_ignores.main)
    assert (found.leftover, found.problems) == (None, ())
    assert added(bare_of_ignores, found.head) == {"src/new.py", ".coveragerc"}


def test_litter_is_not_committed_by_us(bare_of_ignores: House) -> None:
    agent = prepared(bare_of_ignores)
    littered(agent)
    found = bare_of_ignores.workspaces.harvest(ITEM, bare_of_ignores.main, bare_of_ignores.main)
    assert found.dirty
    assert added(bare_of_ignores, found.head) == {"src/new.py", ".coveragerc"}
    assert porcelain(agent.folder) == []


@pytest.mark.parametrize("commit", [True, False])
def test_what_is_tracked_stays_tracked_whatever_its_name(bare_of_ignores: House, commit: bool) -> None:
    agent = prepared(bare_of_ignores)
    assert (agent.folder / "prebuilt.pyc").exists()
    agent.write("prebuilt.pyc", "2\n")
    agent.write("vendor/node_modules/kept.js", "2\n")
    if commit:
        agent.commit("Mine")
    found = bare_of_ignores.workspaces.harvest(ITEM, bare_of_ignores.main, bare_of_ignores.main)
    assert found.dirty is not commit
    assert added(bare_of_ignores, found.head) == {"prebuilt.pyc", "vendor/node_modules/kept.js"}


def test_the_repository_has_the_last_word_on_what_is_ignored(bare_of_ignores: House) -> None:
    agent = prepared(bare_of_ignores)
    agent.write(".gitignore", "!node_modules/\n")
    agent.write("node_modules/wanted.js", "1\n")
    found = bare_of_ignores.workspaces.harvest(ITEM, bare_of_ignores.main, bare_of_ignores.main)
    assert added(bare_of_ignores, found.head) == {".gitignore", "node_modules/wanted.js"}


def test_a_persons_own_git_would_convert_these_files(unnormalised: House) -> None:
    """Else the tests below would show nothing."""
    (unnormalised.person.folder / ".git" / "info" / "attributes").unlink()
    unnormalised.person.git("add", "--renormalize", "windows.txt", "src/windows.c")
    changed = unnormalised.person.git("diff", "--cached", "--name-only").splitlines()
    assert changed == ["src/windows.c", "windows.txt"]


def test_untouched_files_stay_untouched(unnormalised: House) -> None:
    house = unnormalised
    agent = prepared(house)
    for path, text in UNNORMALISED.items():
        assert (agent.folder / path).read_bytes() == text.encode()
        (agent.folder / path).touch()
    assert porcelain(agent.folder) == []
    agent.git("add", "--all")
    agent.git("add", "--renormalize", ".")
    assert porcelain(agent.folder) == []
    found = house.workspaces.harvest(ITEM, house.main, house.main)
    assert (found.head, found.leftover, found.stray, found.problems) == (house.main, None, (), ())


@pytest.mark.parametrize("commit", [True, False])
def test_line_ends_survive_a_change(unnormalised: House, commit: bool) -> None:
    house = unnormalised
    agent = prepared(house)
    changed = b"one\r\nand a half\r\ntwo\r\n"
    (agent.folder / "windows.txt").write_bytes(changed)
    (agent.folder / "new.txt").write_bytes(b"new\r\n")
    if commit:
        agent.commit("Mine")
    found = house.workspaces.harvest(ITEM, house.main, house.main)
    assert added(house, found.head) == {"windows.txt", "new.txt"}
    assert house.clone.read(found.head, "windows.txt", 100) == changed
    assert house.clone.read(found.head, "new.txt", 100) == b"new\r\n"
    assert porcelain(agent.folder) == []
    agent.write("verdict.md", "fine\n")
    house.workspaces.reset_to(ITEM, found.head)
    assert (agent.folder / "windows.txt").read_bytes() == changed
    assert porcelain(agent.folder) == []
    with house.clone.export(found.head, house.root / "export") as checkout:
        assert (checkout / "windows.txt").read_bytes() == changed
        assert (checkout / "run.bat").read_bytes() == b"echo\n"
        (checkout / "run.bat").touch()
        assert porcelain(checkout) == []


def test_no_driver_of_somebodys_configuration_runs_in_an_agents_git(house: House, agent: Hand) -> None:
    """The tree names a filter; the configuration of whoever runs the agent defines it."""
    canary, script = house.root / "canary", house.root / "script"
    script.write_text(f"#!/bin/sh\ntouch '{canary}'\ncat\n")
    script.chmod(0o755)
    home = house.root / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f'[filter "evil"]\n\tclean = {script}\n\tsmudge = {script}\n\trequired = true\n[core]\n\tautocrlf = true\n'
    )

    def git(folder: Path, *args: str) -> None:
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(["git", *args], cwd=folder, env=env, check=True, capture_output=True)

    house.person.write(".gitattributes", "* filter=evil\n")
    git(house.person.folder, "add", "--all")
    assert canary.exists()  # in an ordinary repository it does run
    canary.unlink()

    agent.write(".gitattributes", "* filter=evil\n")
    agent.write("src/app.py", "print('two')\r\n")
    git(agent.folder, "add", "--all")
    git(agent.folder, "commit", "-q", "-m", "Mine")
    (agent.folder / "src/app.py").unlink()
    git(agent.folder, "checkout", "--", "src/app.py")
    assert not canary.exists()
    found = house.workspaces.harvest(ITEM, house.main, house.main)
    assert house.clone.read(found.head, "src/app.py", 100) == b"print('two')\r\n"


def test_how_files_are_compared_and_merged_stays_the_repositorys_business(house: House, agent: Hand) -> None:
    agent.commit("Attributes", {".gitattributes": "*.log merge=union\n*.dat -diff\n", "a.dat": "1\n"})
    agent.git("checkout", "-q", "-b", "other")
    agent.commit("Theirs", {"README.md": "Sample\n", "CHANGES.log.txt": "", "b.dat": "1\n"})
    agent.write(".gitattributes", "*.md merge=union\n*.dat -diff\n")
    theirs = agent.commit("Theirs too", {"README.md": "Sample\ntheirs\n"})
    agent.git("checkout", "-q", BRANCH)
    agent.write(".gitattributes", "*.md merge=union\n*.dat -diff\n")
    agent.commit("Ours", {"README.md": "Sample\nours\n"})
    agent.git("merge", "-q", "--no-edit", theirs)
    assert sorted((agent.folder / "README.md").read_text().split()) == ["Sample", "ours", "theirs"]
    agent.write("a.dat", "2\n")
    assert "Binary files" in agent.git("diff")


@pytest.mark.parametrize("name", ["info/attributes", "info/exclude"])
@pytest.mark.parametrize("how", ["changed", "removed", "linked"])
def test_what_the_clone_says_is_put_right(house: House, agent: Hand, name: str, how: str) -> None:
    file = house.clone.path / name
    mine = file.read_bytes()
    file.unlink()
    if how == "changed":
        file.write_text("* text eol=crlf\nsrc/\n")
    elif how == "linked":
        (house.root / "evil").write_text("* text eol=crlf\nsrc/\n")
        file.symlink_to(house.root / "evil")
    (agent.folder / "src/new.py").write_bytes(b"x\r\n")
    found = house.workspaces.harvest(ITEM, house.main, house.main)
    assert house.clone.read(found.head, "src/new.py", 100) == b"x\r\n"
    assert not file.is_symlink()
    assert file.read_bytes() == mine
