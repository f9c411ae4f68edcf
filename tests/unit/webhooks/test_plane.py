"""What people say in a ticket: bound to what was on show, ours ignored, later moves win (law 7; S-10, H14)."""

import pytest

from orchestrator.db import tasks
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from tests.deliveries import (
    ANN,
    STATES,
    TICKET,
    USER,
    plane_comment,
    plane_deleted,
    plane_edited,
    plane_state,
)
from tests.fixtures_db import Store
from tests.fixtures_webhooks import Letters, letters_over

HEAD = "a" * 40


def ticket(letters: Letters, stage: Stage = Stage.ANALYSIS) -> Task:
    """A task of the Plane ticket that waits for an approval."""
    task = letters.store.new_task(stage=stage, tracker="plane", external_id=TICKET)
    return letters.on_show(task, HEAD)


@pytest.mark.parametrize("field", ["state", "state_id"])
def test_state_approved_is_a_word_for_what_was_on_show(letters: Letters, field: str) -> None:
    task = ticket(letters)
    sent = letters.plane(plane_state("Approved", field=field))
    assert letters.arrived == 1
    assert letters.words(task) == []  # a delivery is no word of its own
    assert letters.run() == {"handled": 1, "deferred": 0, "failed": 0}
    [word] = letters.words(task)
    signal = word.signal
    assert (signal.kind, signal.person) == ("approved", "ann")
    assert (signal.stage, signal.round, signal.subject) == (Stage.ANALYSIS, 1, HEAD)
    assert letters.outcome(sent) == "stored as approved"
    assert letters.woken == [task.id]
    assert "signal.received" in letters.told(task)


def test_states_are_known_by_id_too(store: Store) -> None:
    letters = letters_over(store, approved=STATES["In Progress"][0])
    task = ticket(letters)
    letters.plane(plane_state("In Progress"))
    letters.run()
    assert [word.signal.kind for word in letters.words(task)] == ["approved"]


def test_confirm_deploy_and_cancel(letters: Letters) -> None:
    task = ticket(letters, Stage.DEPLOY_STAGING)
    letters.plane(plane_state("Confirm Deploy"))
    letters.run()
    letters.plane(plane_state("Cancelled", at="2030-01-02T00:00:00.000000Z"))
    letters.run()
    assert [word.signal.kind for word in letters.words(task)] == ["confirm-deploy", "cancel"]
    assert "Cancelled" in letters.words(task)[1].signal.reason
    assert letters.store.task(task.id).stage is Stage.DEPLOY_STAGING  # a signal, no act


def test_deleted_ticket_asks_for_a_cancel(letters: Letters) -> None:
    task = ticket(letters)
    letters.plane(plane_deleted())
    letters.run()
    [word] = letters.words(task)
    assert (word.signal.kind, word.signal.reason) == ("cancel", "the ticket was deleted")


@pytest.mark.parametrize(
    ("html", "kind", "reason"),
    [
        ("<p>orch approve</p>", "approved", ""),
        (f"<p>orch task approve SMP-1 --sha {HEAD[:12]}</p>", "approved", ""),
        (f"<p>Orch Approve {HEAD[:7]} fine by me</p>", "approved", "fine by me"),
        (
            "<p>orch reject <b>The button</b> is red.</p><p>And small.</p>",
            "reject",
            "The button is red.\nAnd small.",
        ),
        ('<p>orch task cancel SMP-1 —reason "no need"</p>', "cancel", "no need"),
        ("<pre>orch retry</pre>", "retry", ""),
    ],
)
def test_comment_that_begins_with_a_command(letters: Letters, html: str, kind: str, reason: str) -> None:
    task = ticket(letters)
    letters.plane(plane_comment(html))
    letters.run()
    [word] = letters.words(task)
    assert (word.signal.kind, word.signal.reason, word.signal.subject) == (kind, reason, HEAD)


@pytest.mark.parametrize(
    "html",
    [
        "<p>Shall I say orch approve?</p>",
        "<blockquote><p>orch approve</p></blockquote><p>Why?</p>",
        "<p>S-1 analysis: it waits for a person: orch task approve S-1</p>",
        "<p>orch approved</p>",
        "<p>orchapprove</p>",
        "<p>orch task done</p>",
        "",
        "<" * 5000,
    ],
)
def test_other_comments_command_nothing(letters: Letters, html: str) -> None:
    task = ticket(letters)
    sent = letters.plane(plane_comment(html))
    letters.run()
    assert (letters.words(task), letters.outcome(sent)) == ([], "nothing to do")


def test_edited_comment_and_edited_ticket_are_no_words(letters: Letters) -> None:
    task = ticket(letters)
    sent = [
        letters.plane(plane_comment("<p>orch approve</p>", action="updated")),
        letters.plane(plane_edited()),
        letters.plane(plane_edited("label_ids")),
        letters.plane(plane_state("In Progress")),
    ]
    letters.run()
    assert letters.words(task) == []
    assert {letters.outcome(one) for one in sent} == {"nothing to do"}


def test_our_own_doing_is_recognised(letters: Letters) -> None:
    task = ticket(letters)
    sent = [
        letters.plane(plane_state("Approved", id=USER)),
        letters.plane(plane_comment("<p>orch approve</p>", id=USER)),
    ]
    letters.run()
    assert letters.words(task) == []
    assert {letters.outcome(one) for one in sent} == {"our own doing"}


def test_without_a_known_user_nothing_is_approved(store: Store) -> None:
    """Our own move into a state could not be told from a person's: production fails closed."""
    letters = letters_over(store, user="")
    task = ticket(letters)
    sent = letters.plane(plane_state("Approved"))
    letters.run()
    assert letters.words(task) == []
    assert "ORCH_PLANE_USER" in str(letters.outcome(sent))
    letters.plane(plane_deleted())
    letters.run()
    assert [word.signal.kind for word in letters.words(task)] == ["cancel"]


def refused(letters: Letters, task: Task, sent: int) -> str:
    """Recorded and answered, not applied."""
    assert letters.words(task) == []
    assert letters.told(task)[-1] == "signal.refused"
    assert "was not applied" in letters.messages()[-1]
    return str(letters.outcome(sent))


def test_commit_that_was_not_on_show_is_not_approved(letters: Letters) -> None:
    task = ticket(letters)
    sent = letters.plane(plane_comment("<p>orch approve bbbbbbbbbbbb</p>"))
    letters.run()
    assert "not bbbbbbbbbbbb" in refused(letters, task, sent)


def test_command_that_names_another_task(letters: Letters) -> None:
    task = ticket(letters)
    sent = letters.plane(plane_comment("<p>orch approve SMP-77</p>"))
    letters.run()
    assert "this ticket is SMP-1" in refused(letters, task, sent)


def test_word_that_is_older_than_what_is_on_show(letters: Letters) -> None:
    """H14: Plane repeats a failed delivery up to fifty minutes later; meanwhile another round is on show."""
    task = ticket(letters)
    sent = letters.plane(plane_state("Approved", at="2026-01-05T09:40:00.000000Z"))
    letters.run()
    assert "before what is on show now" in refused(letters, task, sent)
    letters.plane(plane_comment("<p>orch approve</p>", at="2026-01-05T10:00:00.000000Z"))
    letters.run()
    assert [word.signal.kind for word in letters.words(task)] == ["approved"]


def test_word_keeps_its_round_when_the_task_moves_on_before_it_is_read(letters: Letters) -> None:
    """The engine then refuses it: another stage and round are on show."""
    task = ticket(letters)
    letters.plane(plane_state("Approved"))
    letters.store.move(task.id, Stage.ARCHITECTURE)
    letters.store.move(task.id, Stage.ANALYSIS)
    letters.run()
    [word] = letters.words(task)
    assert (word.signal.stage, word.signal.round) == (Stage.ANALYSIS, 1)
    assert letters.store.task(task.id).round == 2


@pytest.mark.parametrize("in_order", [True, False], ids=["in-order", "out-of-order"])
def test_later_move_of_the_ticket_wins(letters: Letters, in_order: bool) -> None:
    task = ticket(letters)
    first = plane_state("Approved", at="2026-01-05T10:10:00.000000Z")
    second = plane_state("In Progress", at="2026-01-05T10:11:00.000000Z")
    sent = {}
    for one in (first, second) if in_order else (second, first):
        sent[one["data"]["state"]["name"]] = letters.plane(one)
    letters.run()
    assert "moved on since" in refused(letters, task, sent["Approved"])


def test_move_that_plane_itself_saw_overtaken(store: Store) -> None:
    """``data`` is read when Plane's worker runs; it already shows the later state."""
    letters = letters_over(store, approved=STATES["Approved"][0])
    task = ticket(letters)
    sent = letters.plane(plane_state("Approved", now="In Progress"))
    letters.run()
    assert "moved on since" in refused(letters, task, sent)


@pytest.mark.parametrize("in_order", [True, False], ids=["in-order", "out-of-order"])
@pytest.mark.parametrize("seen", [None, "In Progress"], ids=["as-it-was", "as-it-is-now"])
def test_later_move_of_our_own_takes_nobodys_word_back(
    store: Store, in_order: bool, seen: str | None
) -> None:
    """The move that we make ourselves, for the task has gone on; Plane's worker may have seen it already."""
    letters = letters_over(store, approved=STATES["Approved"][0])
    task = ticket(letters)
    word = plane_state("Approved", at="2026-01-05T10:10:00.000000Z", now=seen)
    ours = plane_state("In Progress", at="2026-01-05T10:11:00.000000Z", id=USER)
    for one in (word, ours) if in_order else (ours, word):
        letters.plane(one)
    letters.run()
    assert [word.signal.kind for word in letters.words(task)] == ["approved"]


def test_later_move_of_a_person_wins_though_we_moved_the_ticket_as_well(letters: Letters) -> None:
    task = ticket(letters)
    sent = letters.plane(plane_state("Approved", at="2026-01-05T10:10:00.000000Z"))
    letters.plane(plane_state("In Progress", at="2026-01-05T10:11:00.000000Z"))
    letters.plane(plane_state("In Progress", at="2026-01-05T10:12:00.000000Z", id=USER))
    letters.run()
    assert "moved on since" in refused(letters, task, sent)


def test_approved_again_after_second_thoughts(letters: Letters) -> None:
    task = ticket(letters)
    letters.plane(plane_state("Approved", at="2026-01-05T10:10:00.000000Z"))
    letters.plane(plane_state("In Progress", at="2026-01-05T10:11:00.000000Z"))
    letters.plane(plane_state("Approved", at="2026-01-05T10:12:00.000000Z"))
    letters.run()
    assert [word.signal.kind for word in letters.words(task)] == ["approved"]


def test_repeats_are_one_word(letters: Letters) -> None:
    task = ticket(letters)
    payload = plane_state("Approved")
    assert letters.send("plane", "issue", payload, delivery="one") is not None
    assert letters.send("plane", "issue", payload, delivery="two") is None  # Plane's retry: same body, new id
    assert letters.send("plane", "issue", {**payload, "webhook_id": "hook-2"}) is None  # a second hook
    letters.run()
    assert letters.send("plane", "issue", payload) is None
    letters.run()
    assert len(letters.words(task)) == 1
    assert letters.telemetry.snapshot()["orch_webhooks_repeated_total"] == {"plane": 3}


def test_word_for_a_task_that_has_ended_is_answered(letters: Letters) -> None:
    task = ticket(letters)
    with letters.store.database.write() as tx:
        tasks.release_hold(tx, task.id)
    letters.store.move(task.id, Stage.CANCELLED)
    late = letters.plane(plane_comment("<p>orch approve</p>"))
    quiet = letters.plane(plane_state("Cancelled"))
    letters.run()
    assert "has ended (cancelled)" in str(letters.outcome(late))
    assert letters.outcome(quiet) == "the task has ended"
    assert len(letters.messages()) == 1
    assert letters.words(task) == []


def test_ticket_filed_again_hears_of_itself(letters: Letters) -> None:
    first = ticket(letters)
    letters.store.move(first.id, Stage.CANCELLED)
    again = ticket(letters)
    letters.plane(plane_state("Approved"))
    letters.run()
    assert (letters.words(first), len(letters.words(again))) == ([], 1)


def test_tickets_and_kinds_of_others(letters: Letters) -> None:
    task = ticket(letters)
    strange = letters.plane(plane_state("Approved", ticket="somebody-elses"))
    project = letters.plane({"event": "project", "action": "deleted", "data": {"id": "p"}})
    unknown = letters.plane({"event": "lunch", "action": "served", "data": []})
    letters.run()
    assert letters.outcome(strange) == "about no task of ours"
    assert letters.outcome(project) == letters.outcome(unknown) == "nothing to do"
    assert letters.words(task) == []
    assert ANN["display_name"] == "ann"
