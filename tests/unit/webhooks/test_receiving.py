"""Deliveries that are stored together: one commit, and one that is in the way costs itself alone."""

import json
from typing import Any

import pytest

from orchestrator.db.database import Tx
from orchestrator.domain.errors import ConstraintRefused, DatabaseError, InvariantError
from orchestrator.domain.task import Task
from orchestrator.webhooks.fields import MalformedDelivery
from orchestrator.webhooks.gitea import GiteaHandler
from orchestrator.webhooks.receiving import Letter, Opened, Received
from tests.deliveries import gitea_push
from tests.fixtures_webhooks import Letters


class Faulty(GiteaHandler):
    """Has a bug in it."""

    def task_of(self, tx: Tx, kind: str, payload: object) -> Task | None:
        if kind == "fault":
            raise TypeError("a bug of ours")
        return super().task_of(tx, kind, payload)


def letter(n: int, kind: str = "push", raw: bytes | None = None) -> Letter:
    return Letter("gitea", kind, f"d-{n}", raw or json.dumps(gitea_push("main", f"{n:040x}")).encode())


def taken_in(letters: Letters, sent: list[Letter]) -> list[Any]:
    """What became of each: those that can be read are stored together."""
    opened = [letters.receiver.open(one) for one in sent]
    stored = iter(letters.receiver.store([one for one in opened if isinstance(one, Opened)]))
    return [next(stored) if isinstance(one, Opened) else one for one in opened]


def kinds(letters: Letters) -> list[str]:
    return [row["kind"] for row in letters.store.rows("SELECT kind FROM inbox ORDER BY id")]


def test_several_are_stored_in_their_order_and_looked_at_once(letters: Letters) -> None:
    ends = taken_in(letters, [letter(1), letter(2), letter(1), letter(3)])
    assert ends == [Received(1), Received(2), Received(None), Received(3)]
    assert letters.arrived == 1


def test_none_is_none(letters: Letters) -> None:
    assert taken_in(letters, []) == []
    assert letters.arrived == 0


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (letter(9, raw=b"no"), MalformedDelivery),
        (letter(9, raw=b"[" * 100_000), MalformedDelivery),
        (letter(9, kind=""), MalformedDelivery),
        (letter(9, kind="refused"), ConstraintRefused),
        (letter(9, kind="fault"), InvariantError),
    ],
    ids=["no-json", "deep", "no-kind", "refused", "fault"],
)
def test_one_in_the_way_costs_itself_alone(letters: Letters, bad: Letter, error: type[Exception]) -> None:
    letters.handlers = (Faulty(),)
    letters.open()
    letters.store.refuse("refused", "inbox", "INSERT", "no", when="NEW.kind = 'refused'")
    ends = taken_in(letters, [letter(1), bad, letter(2)])
    assert isinstance(ends[1], error)
    assert [one.repeated for one in (ends[0], ends[2])] == [False, False]
    assert kinds(letters) == ["push", "push"]


def test_a_database_that_is_away_is_away_for_all(letters: Letters) -> None:
    letters.store.database.close()
    ends = taken_in(letters, [letter(1), letter(2)])
    assert [type(end) for end in ends] == [DatabaseError, DatabaseError]
    assert letters.arrived == 0


def test_of_a_name_that_is_there_twice_the_last_counts_everywhere(letters: Letters) -> None:
    raw = b'{"ref": "refs/heads/a", "ref": "refs/heads/b", "repository": {"full_name": "x/y"}}'
    taken_in(letters, [letter(1, raw=raw)])
    [row] = letters.store.rows("SELECT payload FROM inbox")
    assert row["payload"].count('"ref"') == 1 and json.loads(row["payload"])["ref"] == "refs/heads/b"
