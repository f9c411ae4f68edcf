"""What every deployer has to keep: the one that runs commands, and the one in memory under the interleaved proofs."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.deploy.command import CommandDeployer, DeployBounds
from orchestrator.deploy.deployer import Deployer, StartGivenUp
from orchestrator.deploy.records import Claimant, DeployStart, Ending, RecordLost
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.domain.ids import Sha, WorkItem
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.process import SystemProcesses
from orchestrator.runtime.sessions import SystemSessions
from tests.proofs.memory_deployer import Environments, MemoryDeployer

LONG = 60.0


class Place:
    """A deployer, what its commands have done, and a start to begin with."""

    def __init__(self, deployer: Deployer, ran: Callable[[], list[int]], start: DeployStart) -> None:
        self.deployer, self.ran, self.start = deployer, ran, start

    def ended(self, start: DeployStart) -> bool:
        ended = self.deployer.wait(start, threading.Event(), LONG)
        return ended is not None and ended.succeeded


@pytest.fixture(params=["command", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    journal = tmp_path / "journal"
    start = DeployStart(
        environment="staging", sha=Sha("c0ffee" + "0" * 34), generation=1, digest=None, artifact=None, token="7",
        argv=("sh", "-c", 'echo "$ORCH_GENERATION" >> "$J"'), timeout_s=LONG, work_item=WorkItem("ORCH-1"),
        sequence=11, installation="inst", env={"J": str(journal)},
    )  # fmt: skip
    if request.param == "memory":
        state = Environments()
        return Place(MemoryDeployer(state), lambda: [ran.start.generation for ran in state.journal], start)
    deployer = CommandDeployer(
        tmp_path / "deploys", processes=SystemProcesses(), sessions=SystemSessions(), clock=SystemClock(),
        environ=dict(os.environ), bounds=DeployBounds(claim_s=LONG, poll_s=0.02),
    )  # fmt: skip
    return Place(
        deployer, lambda: [int(n) for n in journal.read_text().split()] if journal.exists() else [], start
    )


def test_a_start_is_claimed_by_its_child_and_runs_once(place: Place) -> None:
    assert place.deployer.started(place.start) is None
    assert place.deployer.exit(place.start) is None
    place.deployer.start(place.start)
    place.deployer.start(place.start)
    claim = place.deployer.started(place.start)
    assert claim is not None
    assert (claim.by, claim.installation, claim.sequence, claim.token) == (Claimant.CHILD, "inst", 11, "7")
    assert place.ended(place.start)
    place.deployer.start(place.start)
    assert place.ran() == [1]


def test_another_generation_is_another_start(place: Place) -> None:
    second = replace(place.start, generation=2, sequence=12, token="8")
    for start in (place.start, second):
        place.deployer.start(start)
        assert place.ended(start)
    assert place.ran() == [1, 2]


def test_what_was_revoked_first_never_runs(place: Place) -> None:
    assert place.deployer.revoke(place.start).by is Claimant.REVOKER
    assert place.deployer.revoke(place.start).by is Claimant.REVOKER
    with pytest.raises(StartGivenUp):
        place.deployer.start(place.start)
    assert place.deployer.terminate(place.start) is None
    assert place.deployer.wait(place.start, threading.Event(), LONG) is None
    assert place.ran() == []


def test_revoking_what_was_claimed_names_the_child(place: Place) -> None:
    place.deployer.start(place.start)
    assert place.deployer.revoke(place.start).by is Claimant.CHILD
    assert place.ended(place.start)
    assert place.ran() == [1]


def test_an_end_is_recorded_once(place: Place) -> None:
    place.deployer.start(place.start)
    assert place.ended(place.start)
    ended = place.deployer.terminate(place.start)
    assert ended is not None
    assert ended.succeeded


def test_what_nobody_claimed_and_is_declared_ended_never_runs(place: Place) -> None:
    ended = place.deployer.declare_ended(place.start, "Ann: its record is lost")
    assert (ended.ending, ended.succeeded) == (Ending.DECLARED, False)
    assert place.deployer.exit(place.start) == ended
    with pytest.raises(StartGivenUp):
        place.deployer.start(place.start)
    assert place.deployer.started(place.start) is not None
    assert place.ran() == []


def test_an_end_that_is_known_is_not_declared_anew(place: Place) -> None:
    place.deployer.start(place.start)
    assert place.ended(place.start)
    assert place.deployer.declare_ended(place.start, "Ann: so").ending is Ending.EXITED


@pytest.mark.parametrize("foreign", [{"sequence": 12}, {"token": "8"}, {"installation": "other"}], ids=str)
def test_a_start_of_another_intent_is_in_doubt(place: Place, foreign: dict[str, object]) -> None:
    place.deployer.start(place.start)
    assert place.ended(place.start)
    other = replace(place.start, **foreign)  # type: ignore[arg-type]
    for ask in (place.deployer.start, place.deployer.started, place.deployer.exit, place.deployer.revoke):
        with pytest.raises(AuthorityUnreachable):
            ask(other)
    assert place.ran() == [1]


# -- a state folder that was lost ------------------------------------------------------------------------------------


def test_a_start_whose_record_is_lost_is_neither_run_nor_given_up_by_itself(place: Place) -> None:
    assert place.deployer.lose(place.start)
    assert place.deployer.lose(place.start)
    for asked in (
        place.deployer.start,
        place.deployer.started,
        place.deployer.revoke,
        place.deployer.exit,
        place.deployer.terminate,
    ):
        with pytest.raises(RecordLost):
            asked(place.start)
    assert place.ran() == []


def test_a_person_s_word_gives_up_a_start_whose_record_is_lost(place: Place) -> None:
    place.deployer.lose(place.start)
    assert place.deployer.revoke(place.start, said=True).by is Claimant.REVOKER
    claim = place.deployer.started(place.start)
    assert claim is not None
    assert claim.by is Claimant.REVOKER
    with pytest.raises(StartGivenUp):
        place.deployer.start(place.start)
    assert place.ran() == []


def test_the_command_of_a_lost_start_has_ended_by_a_person_s_word_or_because_it_was_known(
    place: Place,
) -> None:
    place.deployer.lose(place.start)
    assert place.deployer.declare_ended(place.start, "Ann: the host is gone").ending is Ending.DECLARED
    known = replace(place.start, generation=2, sequence=12, token="8")
    place.deployer.lose(known, ended="it was judged")
    for start in (place.start, known):
        record = place.deployer.exit(start)
        assert record is not None
        assert (record.ending, record.succeeded) == (Ending.DECLARED, False)
        with pytest.raises(RecordLost):
            place.deployer.started(start)


def test_a_start_whose_claim_is_there_is_not_lost(place: Place) -> None:
    place.deployer.start(place.start)
    assert place.ended(place.start)
    assert not place.deployer.lose(place.start)
    claim = place.deployer.started(place.start)
    assert claim is not None
    assert claim.by is Claimant.CHILD
