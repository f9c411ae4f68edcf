"""A command of another user, as of root beside a service's unit, leaves nothing behind that the service cannot open."""

import os
from pathlib import Path

import pytest

from orchestrator.installation import folder_owner
from tests.fixtures_orch import Here, Orch

STRANGER = 54321


def give_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To another user; whoever may not do that becomes another one, as far as the command can tell."""
    if os.geteuid() != 0:
        monkeypatch.setattr(folder_owner, "uid_of_new", lambda _: STRANGER)
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER)


def owners(folder: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def test_what_would_write_there_is_refused_and_what_looks_is_not(
    here: Here, orch: Orch, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = orch.checkout()
    assert here("init", cwd=shop.folder).code == 0
    give_away(orch.home, monkeypatch)
    before = owners(orch.home)
    for words in (["task", "add", "x", "--repo", "shop"], ["run", "x"], ["serve"]):
        said = here(*words, cwd=shop.folder)
        assert said.code == 2, words
        assert "belongs to" in said.err
        assert owners(orch.home) == before
    assert here("queue").code == 0
    assert set(owners(orch.home).values()) == set(before.values())
    assert "belongs to" in here("doctor").out


def test_the_service_may_be_asked_all_the_same(
    here: Here, orch: Orch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here("init", cwd=orch.checkout().folder).code == 0
    with orch.serving():
        give_away(orch.home, monkeypatch)
        filed = here("task", "add", "x", "--repo", "shop")
    assert filed.code == 0, filed.err
