"""A death of the demo's service counts only where it is the one that was asked for."""

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from orchestrator.demo.lives import POINTS, Lives
from orchestrator.domain.errors import OutsideError
from orchestrator.runtime.process import Children, Liveness, ProcessIdentity
from tests.clock import FakeClock

ME = ProcessIdentity("boot", "pids", 41, 1)


class Told:
    """Processes that live and end as the test says. ``notes`` is what the life writes before it ends."""

    def __init__(self) -> None:
        self.state = Liveness.ALIVE
        self.code: int | None = None
        self.spawned: list[Sequence[str]] = []

    def own(self) -> ProcessIdentity:
        return ME

    def spawn(
        self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], output: Path
    ) -> ProcessIdentity:
        self.spawned.append(argv)
        self.state = Liveness.ALIVE
        return ProcessIdentity("boot", "pids", 100 + len(self.spawned), 1)

    def liveness(self, identity: ProcessIdentity) -> Liveness:
        return self.state

    def exit_of(self, identity: ProcessIdentity) -> int | None:
        return self.code

    def ends(self, code: int | None, noted: str | None) -> None:
        """The life that runs ends so, and has noted this point before."""
        self.state, self.code = Liveness.DEAD, code
        if noted is not None:
            Path(self.spawned[-1][-2]).write_text(noted)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def lives(told: Told, tmp_path: Path) -> Lives:
    return Lives({}, tmp_path / "service.log", cast(Children, told), FakeClock())


def test_killed_at_each_point_it_starts_again(told: Told, lives: Lives) -> None:
    assert lives.go_on() is None
    for number, (point, harm) in enumerate(POINTS, 1):
        assert lives.go_on() is None  # it lives
        told.ends(-signal.SIGKILL, point)
        assert lives.go_on() == f"SIGKILL at {point}: {harm}. It starts again."
        assert len(lives.ended) == number
    assert [argv[-3] for argv in told.spawned] == [str(ME.pid)] * 3
    assert [argv[-1] for argv in told.spawned] == [*(point for point, _ in POINTS), ""]


@pytest.mark.parametrize(
    ("code", "noted", "says"),
    [
        (1, None, "with code 1, and not by SIGKILL at merge_pr.after_act"),
        (-signal.SIGSEGV, None, "with SIGSEGV"),
        (-signal.SIGKILL, None, "with SIGKILL, and not by SIGKILL at"),  # by somebody else, somewhere
        (-signal.SIGKILL, POINTS[1][0], "and not by SIGKILL at merge_pr.after_act"),
        (-signal.SIGTERM, POINTS[0][0], "with SIGTERM"),
        (None, POINTS[0][0], "in a way that is not known"),
    ],
)
def test_any_other_end_is_a_fault(
    told: Told, lives: Lives, code: int | None, noted: str | None, says: str
) -> None:
    lives.go_on()
    told.ends(code, noted)
    with pytest.raises(OutsideError, match=says):
        lives.go_on()
    assert lives.ended == []


def test_the_last_life_is_not_to_end(told: Told, lives: Lives) -> None:
    lives.go_on()
    for point, _ in POINTS:
        told.ends(-signal.SIGKILL, point)
        lives.go_on()
    told.ends(0, None)
    with pytest.raises(OutsideError, match=r"with code 0; its log is"):
        lives.go_on()


def test_a_note_of_an_earlier_life_counts_for_none(told: Told, lives: Lives, tmp_path: Path) -> None:
    (tmp_path / "service.point").write_text(POINTS[0][0])
    lives.go_on()
    told.ends(-signal.SIGKILL, None)
    with pytest.raises(OutsideError, match="and not by SIGKILL at"):
        lives.go_on()
