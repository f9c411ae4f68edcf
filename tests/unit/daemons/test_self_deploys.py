"""What the restarted service makes of a deploy of itself: a report is due once it has stayed up, and is never lost."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from orchestrator.daemons.self_deploys import REPORTING_S, REST_S, SelfDeploys
from orchestrator.deploy.records import Claimant, DeployStart, Started
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.domain.ids import TaskId
from orchestrator.domain.stage import Stage
from tests.fixtures_db import Store

OURS, STAY_S = "c0ffee" + "0" * 34, 20.0
EFFECT = (
    "INSERT INTO effects "
    "(task_id, name, key, round, state, epoch, sequence, token, actor, evidence, intent_at, settled_at) VALUES "
    "(:task, :name, :key, 1, 'applied', 1, :sequence, '7', 'monitor', :evidence, utc_now(), utc_now())"
)


@dataclass
class Place:
    """The deployer and the driver of this process. ``unreadable`` names the records that cannot be read."""

    unreadable: set[str] = field(default_factory=set)
    claimed: Claimant | None = Claimant.CHILD
    reports: list[DeployStart] = field(default_factory=list)
    finalized: list[TaskId] = field(default_factory=list)

    def started(self, start: DeployStart) -> Started | None:
        self._read("STARTED")
        return Started(self.claimed, *start.identity, at="", host="") if self.claimed is not None else None

    def prepared(self, start: DeployStart) -> bool:
        self._read("start.json")
        return True

    def report(self, start: DeployStart) -> bool:
        self._read("REPORTED")
        self.reports.append(start)
        return True

    def finalize(self, task_id: TaskId) -> None:
        self.finalized.append(task_id)

    def _read(self, name: str) -> None:
        if name in self.unreadable:
            raise AuthorityUnreachable(f"{name} cannot be read")


def deployed(store: Store) -> TaskId:
    """A task whose production is this service, started and not decided."""
    task = store.new_task()
    start: dict[str, Any] = {
        "environment": "production", "sha": OURS, "generation": 1, "digest": "sha256:0", "artifact": "/a",
        "timeout_s": 5.0, "work_item": task.work_item, "installation": "inst", "argv": ["deliver"], "env": {},
    }  # fmt: skip
    undo = {"key": "u", "sequence": 9, "token": "8", "within_s": 300.0, "judged": {**start, "generation": 2}}
    carried = {**start, "conditional_undo": undo, "stable_for_s": STAY_S}
    for sequence, name, told in ((7, "merge_pr", {}), (8, "deploy_init", carried)):
        values = {
            "task": task.id,
            "name": name,
            "key": name,
            "sequence": sequence,
            "evidence": json.dumps(told),
        }
        store.raw(EFFECT, values)
    store.move(task.id, Stage.DEPLOY)
    return task.id


def service(store: Store, place: Place) -> SelfDeploys:
    some: Any = place
    return SelfDeploys(store.database, some, some, build_sha=OURS, clock=store.clock)


def test_what_has_brought_us_is_reported_once_we_have_stayed(store: Store) -> None:
    task, place = deployed(store), Place()
    daemon = service(store, place)
    assert daemon.begin()
    assert place.finalized == [task]
    store.clock.advance(STAY_S - 1)
    assert daemon.run_once()["reported"] == 0
    store.clock.advance(1)
    assert daemon.run_once() == {"reported": 1, "to_report": 0, "unread": 0}
    assert [start.sha for start in place.reports] == [OURS]
    assert daemon.interval_s == REST_S


@pytest.mark.parametrize("record", ["STARTED", "start.json"])
def test_a_record_that_could_not_be_read_at_first_loses_no_report(store: Store, record: str) -> None:
    task, place = deployed(store), Place({record})
    daemon = service(store, place)
    assert daemon.begin()
    assert daemon.interval_s == REPORTING_S
    store.clock.advance(STAY_S)
    assert daemon.run_once() == {"reported": 0, "to_report": 0, "unread": 1}
    assert daemon.interval_s == REPORTING_S
    place.unreadable.clear()
    assert daemon.run_once()["reported"] == 1  # it has stayed up for long enough by now
    assert place.finalized == [task]


def test_what_has_not_started_is_nobodys_to_report(store: Store) -> None:
    deployed(store)
    place = Place(claimed=None)
    daemon = service(store, place)
    assert not daemon.begin()
    assert (place.finalized, daemon.run_once()["to_report"]) == ([], 0)


def test_a_report_that_cannot_be_written_is_tried_again(store: Store) -> None:
    deployed(store)
    place = Place({"REPORTED"})
    daemon = service(store, place)
    daemon.begin()
    store.clock.advance(STAY_S)
    with pytest.raises(AuthorityUnreachable):
        daemon.run_once()
    place.unreadable.clear()
    assert daemon.run_once()["reported"] == 1
