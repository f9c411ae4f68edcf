"""A person is called once for one thing."""

import json

from orchestrator.db import alerts
from tests.fixtures_db import Store


def test_is_called_once_for_the_same_thing(store: Store) -> None:
    with store.database.write() as tx:
        assert alerts.call(tx, "It drifts.", "drift", "production", 7)
        assert not alerts.call(tx, "It drifts, said otherwise.", "drift", "production", 7)
        assert alerts.call(tx, "It is over.", "drift", "production", 7, "over")
        assert alerts.called(tx, "drift", "production", 7)
        assert not alerts.called(tx, "drift", "production", 8)
    rows = store.rows("SELECT kind, stable_id, payload FROM outbox ORDER BY id")
    assert [(row["kind"], row["stable_id"]) for row in rows] == [
        ("alert", "alert:drift:production:7"),
        ("alert", "alert:drift:production:7:over"),
    ]
    assert json.loads(rows[0]["payload"]) == {"text": "It drifts.", "work_item": None}


def test_the_ticket_shows_it_too(store: Store) -> None:
    task = store.new_task()
    with store.database.write() as tx:
        for _ in range(2):
            alerts.call_and_comment(tx, task, "Look at it.", task.work_item, "stuck")
    rows = store.rows("SELECT kind, stable_id, task_id, payload FROM outbox ORDER BY id")
    stable = f"alert:{task.work_item}:stuck"
    assert [(row["kind"], row["stable_id"], row["task_id"]) for row in rows] == [
        ("alert", stable, task.id),
        ("tracker.comment", f"comment:{stable}", task.id),
    ]
    assert json.loads(rows[0]["payload"])["work_item"] == task.work_item
