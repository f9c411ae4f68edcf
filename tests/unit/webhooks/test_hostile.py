"""Whatever a stranger writes into a delivery, it is data: stored or refused, never followed, never in the way."""

from typing import Any

import pytest

from orchestrator.webhooks.fields import MalformedDelivery
from orchestrator.webhooks.receiving import content_key
from tests.deliveries import (
    TICKET,
    gitea_pull,
    gitea_push,
    gitea_status,
    plane_comment,
    plane_state,
    repository,
)
from tests.fixtures_webhooks import Letters

NUL, LONE, BIDI, ESC = "\0", "\ud800", "\u202e", "\x1b[2J"
BRANCHES = [
    "../../etc/passwd",
    "/etc/passwd",
    "-rf",
    f"x{NUL}y",
    f"x{LONE}",
    BIDI,
    "a" * 100_000,
    "",
    "main/../main",
]


@pytest.mark.parametrize("name", BRANCHES, ids=range(len(BRANCHES)))
def test_branch_names_are_only_compared(letters: Letters, name: str) -> None:
    letters.store.new_task()
    sent = [
        letters.gitea("push", gitea_push(name, "a" * 40)),
        letters.gitea("pull_request", gitea_pull("closed", 5, name)),
        letters.gitea("delete", {"ref": name, "ref_type": "branch", "repository": repository("/nowhere")}),
    ]
    assert letters.run()["failed"] == 0
    assert {letters.outcome(one) for one in sent} <= {"about no task of ours", "nothing to do"}


WRONG: list[Any] = [
    None,
    True,
    7,
    -1,
    10**30,
    1.5,
    "",
    "x" * 1_000_000,
    [],
    [[]],
    {},
    {"id": {}},
    NUL,
    LONE,
    ESC,
]
PLACES = {
    "plane-issue": (plane_state("Approved"), [("data",), ("data", "id"), ("data", "state"), ("data", "updated_at"),
                    ("activity",), ("activity", "new_value"), ("activity", "field"), ("activity", "actor"),
                    ("action",)]),
    "plane-issue_comment": (plane_comment("<p>orch approve</p>"), [("data",), ("data", "issue"), ("action",),
                            ("data", "comment_html"), ("data", "created_at"), ("activity", "actor", "id")]),
    "gitea-push": (gitea_push("main", "a" * 40), [("ref",), ("after",), ("repository",), ("repository", "full_name"),
                   ("repository", "default_branch"), ("sender",)]),
    "gitea-status": (gitea_status("a" * 40, "success"), [("sha",), ("state",), ("context",)]),
    "gitea-pull_request": (gitea_pull("closed", 5, "x"), [("pull_request",), ("pull_request", "number"), ("action",),
                           ("pull_request", "head"), ("pull_request", "head", "repo_id")]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "path"),
    [(kind, path) for kind, (_, paths) in PLACES.items() for path in paths],
    ids=lambda given: given if isinstance(given, str) else ".".join(given),
)
def test_wrong_types_are_understood_or_refused(letters: Letters, kind: str, path: tuple[str, ...]) -> None:
    """Never a fault of ours: the reason is one that a reader has given."""
    letters.on_show(letters.store.new_task(tracker="plane", external_id=TICKET))
    source, _, event = kind.partition("-")
    for wrong in WRONG:
        letters.send(source, event, _with(PLACES[kind][0], path, wrong))
    letters.run()
    errors = {row["error"] for row in letters.store.rows("SELECT error FROM deliveries") if row["error"]}
    assert all(error.startswith("The delivery ") for error in errors), errors
    told = [row["data"] for row in letters.store.rows("SELECT data FROM events")]
    people = " ".join(letters.messages() + told)
    assert ESC not in people and NUL not in people


def test_huge_and_hostile_words_of_people(letters: Letters) -> None:
    task = letters.on_show(letters.store.new_task(tracker="plane", external_id=TICKET))
    html = f"<p>orch reject <script>alert(1)</script>{ESC}{NUL}{BIDI}{LONE} no</p>" + "<p>more</p>" * 50_000
    letters.plane(plane_comment(html, display_name=f"<b>{ESC}ann{LONE}</b>" * 100))
    assert letters.run()["handled"] == 1
    [word] = letters.words(task)
    assert len(word.signal.reason) <= 2_000
    assert len(word.signal.person) <= 200
    assert all(char.isprintable() or char == "\n" for char in word.signal.person + word.signal.reason)


@pytest.mark.parametrize("payload", [None, [], "x", 5, {"x": float("nan")}, {"x": object()}], ids=range(6))
def test_what_is_no_json_object_is_refused_at_the_door(letters: Letters, payload: Any) -> None:
    with pytest.raises(MalformedDelivery):
        letters.send("gitea", "push", payload)
    with pytest.raises(MalformedDelivery):
        letters.send("nobody", "push", {})
    assert letters.store.rows("SELECT * FROM inbox") == []


def test_what_is_nested_without_end_is_refused_at_the_door(letters: Letters) -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = {"x": deep}
    with pytest.raises(MalformedDelivery):
        letters.send("gitea", "push", deep)


def test_delivery_ids_are_data_too(letters: Letters) -> None:
    payloads = [gitea_push("main", f"{n}" * 40) for n in range(4)]
    for payload, delivery in zip(payloads, [None, "", f"{NUL}{LONE}", "x" * 10_000], strict=True):
        assert letters.send("gitea", "push", payload, delivery=delivery) is not None
    assert letters.send("gitea", "push", payloads[0], delivery=None) is None
    assert letters.run()["handled"] == 4


def test_content_tells_events_apart() -> None:
    one, two = gitea_push("main", "a" * 40), gitea_push("main", "b" * 40)
    assert content_key("gitea", "push", one) == content_key("gitea", "push", {**one, "secret": "s"})
    keys = {
        content_key(source, kind, p)
        for source in ("gitea", "plane")
        for kind in ("push", "x")
        for p in (one, two)
    }
    assert len(keys) == 8


def _with(payload: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    if len(path) == 1:
        return {**payload, path[0]: value}
    return {**payload, path[0]: _with(payload[path[0]], path[1:], value)}
