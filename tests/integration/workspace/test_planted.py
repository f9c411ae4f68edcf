"""Nothing that an agent can plant in its workspace runs when the orchestrator works with it.

Each plant would create the canary file. That the plants are live is shown first: the agent's own git trips over them.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.domain.ids import WorkItem
from orchestrator.workspace.candidate import CandidateBuilt, build_candidate, candidate_message
from tests.fixtures_git import Hand, House

ITEM = WorkItem("ORCH-1")
BRANCH = "orch/ORCH-1-change-it"
HOOKS = [
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout", "post-commit",
    "post-index-change", "post-merge", "post-receive", "post-rewrite", "post-update", "pre-applypatch", "pre-auto-gc",
    "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase", "pre-receive", "prepare-commit-msg", "proc-receive",
    "push-to-checkout", "reference-transaction", "sendemail-validate", "update",
]  # fmt: skip


class Planter:
    """An agent that plants."""

    def __init__(self, agent: Hand, canary: Path, script: Path) -> None:
        self.agent = agent
        self.git_dir = agent.folder / ".git"
        self.canary = canary
        self.script = script
        script.write_text(f"#!/bin/sh\ntouch '{canary}'\n")
        script.chmod(0o755)

    def config(self, key: str, value: str) -> None:
        self.agent.git("config", "--add", key, value)

    def hooks(self) -> None:
        for hook in HOOKS:
            path = self.agent.write(f".git/hooks/{hook}", self.script.read_text())
            path.chmod(0o755)

    def hooks_path(self) -> None:
        folder = self.agent.folder / "planted"
        folder.mkdir()
        for hook in HOOKS:
            (folder / hook).symlink_to(self.script)
        self.config("core.hooksPath", str(folder))

    def filters(self) -> None:
        self.agent.write(
            ".gitattributes", "* filter=evil diff=evil merge=evil ident\n*.md working-tree-encoding=UTF-16\n"
        )
        for key in ("filter.evil.clean", "filter.evil.smudge", "diff.evil.textconv", "diff.evil.command"):
            self.config(key, str(self.script))
        self.config("filter.evil.process", str(self.script))
        self.config("filter.evil.required", "false")
        self.config("merge.evil.driver", f"{self.script} %O %A %B")
        self.agent.write(".git/info/attributes", "* filter=evil merge=evil\n")

    def fsmonitor(self) -> None:
        self.config("core.fsmonitor", str(self.script))
        self.config("core.fsmonitorHookVersion", "1")

    def aliases(self) -> None:
        for name in ("read-tree", "ls-files", "update-index", "write-tree", "rev-list", "canary"):
            self.config(f"alias.{name}", f"!{self.script}")

    def programs(self) -> None:
        for key in (
            "core.sshCommand", "core.pager", "core.editor", "core.askPass", "core.gitProxy", "diff.external",
            "gpg.program", "credential.helper", "core.alternateRefsCommand", "uploadpack.packObjectsHook",
        ):  # fmt: skip
            self.config(key, str(self.script))
        self.config("commit.gpgSign", "true")

    def include(self) -> None:
        self.agent.write(
            "evil.config", f"[core]\n\tfsmonitor = {self.script}\n[alias]\n\tls-files = !{self.script}\n"
        )
        self.config("include.path", str(self.agent.folder / "evil.config"))

    def partial_clone(self) -> None:
        self.config("core.repositoryFormatVersion", "1")
        self.config("extensions.partialClone", "evil")
        self.config("remote.evil.url", f"ext::{self.script}")
        self.config("remote.evil.promisor", "true")
        self.config("remote.evil.uploadpack", str(self.script))
        self.config("protocol.ext.allow", "always")

    def submodule(self) -> None:
        inner = Hand(self.agent.folder / "inner")
        inner.folder.mkdir()
        inner.git("init", "-q")
        inner.git("config", "user.name", "x")
        inner.git("config", "user.email", "x@example.org")
        inner.commit("Inner", {"x": "x"})
        self.agent.git("add", "inner")
        self.agent.write(".gitmodules", '[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n')
        self.agent.git("add", ".gitmodules")
        self.agent.git("commit", "-q", "-m", "Submodule")
        inner.git("config", "core.fsmonitor", str(self.script))
        inner.write("x", "changed")

    def work_tree(self) -> None:
        self.config("core.worktree", str(self.canary.parent))
        self.config("core.bare", "false")

    def link_to_hooked_repository(self) -> None:
        self.hooks()
        self.fsmonitor()
        self.git_dir.rename(self.canary.parent / "moved.git")
        self.git_dir.write_text(f"gitdir: {self.canary.parent / 'moved.git'}\n")


PLANTS: dict[str, tuple[Callable[[Planter], None], list[str] | None]] = {
    "hooks": (Planter.hooks, ["commit", "-q", "--allow-empty", "-m", "x"]),
    "hooks-path": (Planter.hooks_path, ["commit", "-q", "--allow-empty", "-m", "x"]),
    "filters": (Planter.filters, ["add", "-A"]),
    "fsmonitor": (Planter.fsmonitor, ["status"]),
    "aliases": (Planter.aliases, ["canary"]),
    "programs": (Planter.programs, ["commit", "-q", "--allow-empty", "-m", "x"]),
    "include": (Planter.include, ["status"]),
    "partial-clone": (Planter.partial_clone, ["cat-file", "-p", "1" * 40]),
    "submodule": (Planter.submodule, ["status"]),
    "work-tree": (Planter.work_tree, None),  # redirects, runs nothing
    "git-file": (Planter.link_to_hooked_repository, ["status"]),
}


@pytest.fixture
def planter(house: House, tmp_path: Path) -> Planter:
    agent = Hand(house.workspaces.prepare(ITEM, "Change it", BRANCH, house.main))
    (tmp_path / "trap").mkdir()
    return Planter(agent, tmp_path / "trap" / "canary", tmp_path / "trap" / "script")


@pytest.mark.parametrize("plant", [name for name, (_, trip) in PLANTS.items() if trip])
def test_the_plants_are_live(planter: Planter, plant: str) -> None:
    put, trip = PLANTS[plant]
    put(planter)
    planter.canary.unlink(missing_ok=True)
    assert trip is not None
    planter.agent.git(*trip, check=False)
    assert planter.canary.exists()


@pytest.mark.parametrize("plant", PLANTS)
def test_nothing_runs_with_our_rights(house: House, planter: Planter, plant: str) -> None:
    """The whole way of a change: harvest, candidate, export, push, merge, the next job, the end."""
    PLANTS[plant][0](planter)
    planter.agent.write("work.txt", "work\n")
    planter.canary.unlink(missing_ok=True)

    found = house.workspaces.harvest(ITEM, house.main, house.main)
    work = found.head if plant != "git-file" else found.stray[0].sha
    assert house.clone.read(work, "work.txt", 100) == b"work\n"
    assert list(house.clone.diff_added_lines(house.main, work, 100_000))
    house.push(BRANCH, work)
    house.clone.fetch()
    candidate = house.candidate(work)
    with house.clone.export(candidate.sha, house.root / "export") as checkout:
        assert (checkout / "work.txt").read_text() == "work\n"
        assert (checkout / "README.md").exists()
    house.forge.prepare_merge(candidate, house.clone.path, BRANCH)
    house.forge.merge(candidate, None)
    house.workspaces.prepare(ITEM, "Change it", BRANCH, found.head)
    house.workspaces.reset_to(ITEM, house.main)
    house.workspaces.remove(ITEM)
    assert not planter.canary.exists()


def test_a_merge_driver_named_by_the_tree_is_not_run(house: House, planter: Planter) -> None:
    """Both sides change one file that asks for a driver: it is a conflict, whatever the driver would say."""
    base = house.clone.commit_files(house.main, {".gitattributes": b"* merge=evil\n", "a": b"1\n"}, "base")
    planter.filters()
    one = house.clone.commit_files(base, {"a": b"2\n"}, "one")
    two = house.clone.commit_files(base, {"a": b"3\n"}, "two")
    message = candidate_message(ITEM, "x", "n", "i", 1)
    assert not isinstance(build_candidate(house.clone, main=one, head=two, message=message), CandidateBuilt)
    assert not planter.canary.exists()


def test_what_is_planted_in_the_clone_itself_does_not_run_either(house: House, planter: Planter) -> None:
    """The clone is out of an agent's git's reach; a program that writes there all the same finds it does not help."""
    for hook in HOOKS:
        path = house.clone.path / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(planter.script.read_text())
        path.chmod(0o755)
    (house.clone.path / "config").write_text(
        f"[core]\n\tfsmonitor = {planter.script}\n\tbare = true\n"
        f'[filter "evil"]\n\tclean = {planter.script}\n\tsmudge = {planter.script}\n'
        f'[merge "evil"]\n\tdriver = {planter.script}\n[remote "{house.clone.url}"]\n\tuploadpack = {planter.script}\n'
    )
    planter.agent.write(".gitattributes", "* filter=evil merge=evil\n")
    house.clone.fetch()
    found = house.workspaces.harvest(ITEM, house.main, house.main)
    house.candidate(found.head)
    with house.clone.export(found.head, house.root / "export"):
        pass
    assert not planter.canary.exists()


def test_the_canary_of_one_run_is_gone_before_the_next(house: House, planter: Planter) -> None:
    """A developer's hooks are not there when the reviewer's git works in the same folder."""
    planter.hooks()
    planter.fsmonitor()
    planter.agent.git("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "add", "-A")
    house.workspaces.harvest(ITEM, house.main, house.main)
    planter.canary.unlink(missing_ok=True)
    house.workspaces.prepare(ITEM, "Change it", BRANCH, house.main)
    planter.agent.git("status")
    planter.agent.commit("Mine", {"a.txt": "1\n"})
    assert not planter.canary.exists()
