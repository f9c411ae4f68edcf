"""Whose a state folder is goes by whose a file is that is made there now."""

import os
from pathlib import Path

import pytest

from orchestrator.domain.errors import ForeignState
from orchestrator.installation import folder_owner
from orchestrator.installation.folder_owner import ROOT, another_owner, refuse_anothers

NOBODY, STRANGER = 65534, 54321


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder that belongs to somebody who is not root."""
    made = tmp_path / "state"
    made.mkdir()
    if os.geteuid() == ROOT:
        os.chown(made, STRANGER, STRANGER)
    return made


def made_by(uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who owns what is made from now on."""
    monkeypatch.setattr(folder_owner, "uid_of_new", lambda _: uid)


def lock(home: Path) -> Path:
    return home / "orchestrator.db.lock"


def test_a_folder_that_is_not_there_is_nobody_s(tmp_path: Path) -> None:
    assert another_owner(tmp_path / "none", lock(tmp_path / "none")) is None


def test_one_s_own_state_is_taken(tmp_path: Path) -> None:
    assert another_owner(tmp_path, lock(tmp_path)) is None
    lock(tmp_path).touch()
    assert another_owner(tmp_path, lock(tmp_path)) is None


def test_root_makes_nothing_in_an_empty_folder_of_a_service_s_user(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by(ROOT, monkeypatch)
    with pytest.raises(ForeignState, match="belongs to"):
        refuse_anothers(home, lock(home))
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "uid", [NOBODY, 10001], ids=["root that is nobody on a share", "a user of the folder's group"]
)
def test_an_empty_folder_of_another_may_be_lent(
    home: Path, uid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by(uid, monkeypatch)
    assert another_owner(home, lock(home)) is None


@pytest.mark.parametrize("uid", [ROOT, STRANGER + 1], ids=["root", "another user"])
def test_a_state_of_another_is_refused_by_name(home: Path, uid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lock(home).touch()
    if os.geteuid() == ROOT:
        os.chown(lock(home), STRANGER, STRANGER)
    made_by(uid, monkeypatch)
    with pytest.raises(ForeignState) as refused:
        refuse_anothers(home, lock(home))
    owner = f"user {STRANGER}" if os.geteuid() == ROOT else folder_owner._named(os.geteuid())
    assert f"belongs to {owner}" in refused.value.message
    assert f"Run it as {owner}" in refused.value.hint


def test_a_share_that_gives_every_file_to_one_user_is_taken(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(home).touch()
    if os.geteuid() == ROOT:
        os.chown(lock(home), STRANGER, STRANGER)
    made_by(lock(home).stat().st_uid, monkeypatch)
    assert another_owner(home, lock(home)) is None
