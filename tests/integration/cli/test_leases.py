"""``orch lease``, and that processes with other switches do not run beside each other."""

import pytest

from orchestrator.places import STATE_ID
from orchestrator.runtime.process import SystemProcesses
from tests.fixtures_orch import Here, Orch


@pytest.fixture
def shop(here: Here, orch: Orch) -> Here:
    """Commands inside a registered checkout with one ticket."""
    assert here("init", cwd=orch.checkout().folder).code == 0
    assert here("task", "add", "Add a basket").code == 0
    return here


def living_process(orch: Orch, switches: str) -> None:
    """The process of this test on the list."""
    me = SystemProcesses().own()
    state = orch.home / STATE_ID  # of a database that a fleet may work on
    if state.exists():
        switches += f" state={state.read_text()}"
    orch.shell(
        "INSERT INTO processes VALUES ('other', '', ?, ?, ?, ?, 'serve', ?, '', '2126-01-05T10:00:00.000000Z')",
        me.machine_boot_id,
        me.pid_namespace,
        me.pid,
        me.start_ticks,
        switches,
    )


def leased(orch: Orch) -> None:
    living_process(orch, "transition_lease=on repos=*")
    orch.shell(
        "INSERT INTO transition_lease (task_id, owner, owner_pid, owner_boot_id, stage, acquired_at) "
        "VALUES (1, 'monitor', 4711, 'other', 'created', '2026-01-05 10:00:00')",
    )


def test_a_lease_is_listed_with_its_age_and_its_owners_liveness(shop: Here, orch: Orch) -> None:
    assert "No lease is held." in shop("lease", "list").out
    leased(orch)
    said = shop("lease", "list")
    assert said.code == 0
    assert "AGE_S" in said.out
    (holder,) = shop("lease", "list", "--json").data["holders"]
    assert (holder["task"], holder["owner"], holder["liveness"]) == ("SHOP-1", "monitor", "alive")
    assert holder["age_s"] > 0


def test_a_lease_is_taken_from_its_living_owner(shop: Here, orch: Orch) -> None:
    leased(orch)
    said = shop("lease", "release", "shop-1", "--reason", "it hangs", "--as", "Ann")
    assert said.code == 0, said.err
    assert "SHOP-1 is free: monitor had it since 2026-01-05 10:00:00" in said.out
    assert shop("lease", "list", "--json").data["holders"] == []
    told = shop("task", "show", "SHOP-1", "--events", "--json").data["events"]
    (event,) = [event for event in told if event["type"] == "lease.reclaimed"]
    assert (event["actor"], event["data"]["person"], event["data"]["reason"]) == (
        "operator",
        "Ann",
        "it hangs",
    )


def test_the_queue_shows_who_owns_what_and_what_became_of_owners(shop: Here, orch: Orch) -> None:
    assert "Leases: none" in shop("queue").out
    leased(orch)
    said = shop("queue").out
    assert "Leases: 1" in said
    [line] = [line for line in said.splitlines() if "monitor" in line]
    assert [word in line for word in ("SHOP-1", "created", "alive")] == [True] * 3


def test_where_nobody_owns_a_task_this_is_said(shop: Here) -> None:
    said = shop("lease", "release", "SHOP-1", "--reason", "it hangs")
    assert said.code == 2
    assert "Nobody owns SHOP-1; there is nothing to release." in said.err
    assert shop("lease", "release", "SHOP-9", "--reason", "it hangs").code == 2
    assert shop("lease", "release", "SHOP-1").code == 2  # without a reason


def test_nothing_starts_beside_a_living_process_with_other_switches(shop: Here, orch: Orch) -> None:
    living_process(orch, "transition_lease=off repos=*")
    for command in (("serve",), ("unfreeze", "shop")):
        said = shop(*command)
        assert said.code == 2
        assert "transition_lease is off there and on here" in said.err
        assert "ORCH_TRANSITION_LEASE_ENABLED" in said.err
    assert shop("queue").code == 0  # looking is not running


def test_what_is_out_of_scope_is_said(shop: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCH_TRANSITION_LEASE_REPOS", "another")
    assert "In scope (ORCH_TRANSITION_LEASE_REPOS): another." in shop("lease", "list").out
    said = shop("lease", "release", "SHOP-1", "--reason", "it hangs")
    assert "out of the leases' scope" in said.err


def test_why_says_that_an_epoch_is_not_believed(shop: Here, orch: Orch) -> None:
    orch.shell("UPDATE transition_epoch SET epoch = ?", 2**63 - 1)
    said = shop("why", "SHOP-1")
    assert said.code == 0
    assert f"waits for a person: its epoch is {2**63 - 1}" in said.out


def test_the_queue_says_what_waits_to_be_sent_and_what_was_given_up(shop: Here, orch: Orch) -> None:
    assert "Outbox: 1 waiting, 0 parked, the oldest for " in shop("queue").out  # the ticket's own state
    orch.shell("UPDATE outbox SET parked_at = '2026-01-05T10:00:00.000000Z'")
    assert "Outbox: 0 waiting, 1 parked\n" in shop("queue").out
    assert shop("queue", "--json").data["outbox"] == {"waiting": 0, "parked": 1, "oldest": None}


MECHANISMS = [
    ("leases", "TRANSITION_LEASE"),
    ("reaper", "REAPER"),
    ("reconciler", "RECONCILER"),
    ("drift watch", "DRIFT_WATCH"),
]


@pytest.mark.parametrize(("about", "setting"), MECHANISMS)
def test_doctor_says_whom_a_mechanism_leaves_alone(
    shop: Here, monkeypatch: pytest.MonkeyPatch, about: str, setting: str
) -> None:
    def found() -> list[str]:
        findings = shop("doctor", "--json").data["findings"]
        return [f"{f['text']} {f['hint']}" for f in findings if f["about"] == about]

    assert found() == []
    monkeypatch.setenv(f"ORCH_{setting}_REPOS", "shpo")
    (text,) = found()
    assert "shop" in text
    assert f"ORCH_{setting}_ENABLED and ORCH_{setting}_REPOS" in text


@pytest.mark.parametrize("block", ["reaper", "reconciler", "drift"])
def test_the_queue_shows_whom_a_mechanism_looks_after(
    shop: Here, monkeypatch: pytest.MonkeyPatch, block: str
) -> None:
    for name in ("REAPER", "RECONCILER", "DRIFT_WATCH"):
        monkeypatch.setenv(f"ORCH_{name}_REPOS", "another,one")
    assert (
        shop("queue", "--json").data[block].items() >= {"enabled": True, "scope": ["another", "one"]}.items()
    )
