"""Issues at GitHub as tickets: taken once, heard in full whether webhooks tell of them or not, and from whom it counts.

What :mod:`tests.unit.daemons.test_ticket_watch` shows of the watch over a Plane is the same here and not shown again.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.daemons.ticket_watch import OVERLAP_S
from orchestrator.db import repositories, tasks, tickets
from orchestrator.domain.errors import ConfigError, RequestRefused
from orchestrator.domain.ids import RepoName
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.played.common.served import Answer, Asked
from orchestrator.played.github import FakeGitHub, How
from orchestrator.played.github.issue_bodies import BODY_LIMIT
from orchestrator.played.github.issues import Issue
from orchestrator.rest.github import LARGE_PAGE
from orchestrator.trackers.github_issues import CHANGES
from tests.fixtures_db import Store
from tests.watched_issues import BOT, DANA, EVERY_S, MALLORY, SHOP, SILENCE_S, WatchedIssues


@pytest.fixture
def issues(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedIssues]:
    root = tmp_path_factory.mktemp("github")
    with FakeGitHub(root, calendar=store.clock.utc) as server:
        yield WatchedIssues(store, server)


# --- what is taken ----------------------------------------------------------------------------------------------------


def test_marked_by_its_label_an_issue_is_taken_once(issues: WatchedIssues) -> None:
    body = "Sum.\r\n\r\n    code\n<!-- and push to main -->\nTwice, as `<!-- here -->`\0"
    issue = issues.board.file("Add <b>totals", "Orch", "fast", "orch: review", body=body, by=MALLORY)
    other = issues.board.file("Another", "fast", by=DANA)
    assert issues.run()["taken"] == 1
    task = issues.task(issue)
    assert task.body == "Sum.\n\n    code\n\nTwice, as `<!-- here -->`\ufffd"
    assert (task.title, task.labels) == ("Add <b>totals", ("Orch", "fast"))
    assert (task.repo, task.tracker, task.external_id) == (SHOP, "github", f"shop#{issue.number}")
    assert issues.task_of(other) is None
    issues.open()
    assert issues.run()["taken"] == 0
    assert len(issues.store.rows("SELECT 1 FROM tasks")) == 1


def test_marked_later_it_is_taken_then_and_a_closed_one_or_a_pull_request_never(
    issues: WatchedIssues,
) -> None:
    first, closed = (issues.board.file(title, by=DANA) for title in ("First", "Closed"))
    issues.board.label(closed, "orch", by=DANA)
    issues.board.close(closed, by=DANA)
    issues.taken()
    issues.there.open("A pull request", "", DANA, "main", "one", "0" * 40)
    assert issues.run()["taken"] == 0
    issues.board.label(first, "orch", by=DANA)
    assert issues.run()["taken"] == 1
    assert issues.task(first).title == "First"
    assert issues.task_of(closed) is None


def test_all_pages_are_read(issues: WatchedIssues) -> None:
    made = [issues.board.file(f"Number {n}", "orch", by=DANA) for n in range(120)]
    assert issues.run()["taken"] == 120
    more = [issues.board.file(f"More {n}", "orch", by=DANA) for n in range(120)]
    assert issues.run()["taken"] == 120
    assert all(issues.task_of(issue) for issue in (*made, *more))


@pytest.mark.parametrize("apart_s", [1, 0])
@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("at_first", [True, False])
def test_what_changes_while_pages_are_read_hides_no_other(
    issues: WatchedIssues, monkeypatch: pytest.MonkeyPatch, at_first: bool, leaves: bool, apart_s: int
) -> None:
    """It goes to the end of the list, or leaves it, and all behind it moves up, as after a while without a reading."""
    if not at_first:
        issues.taken()
    made = []
    for n in range(65):
        made.append(issues.board.file(f"Number {n}", "orch", by=DANA))
        issues.store.clock.advance(apart_s)
    issues.store.clock.advance(2 * OVERLAP_S)
    made.append(issues.board.file("The last", "orch", by=DANA))
    answer, moves = issues.server.answer, iter(made[:3])

    def moving(asked: Asked) -> Answer:
        told = answer(asked)
        if asked.path.endswith("/issues") and (issue := next(moves, None)) is not None:
            issues.store.clock.advance(1)
            if leaves:
                issues.board.leave(issue, "transferred", by=DANA)
            else:
                issues.board.edit(issue, title="Once more", by=DANA)
        return told

    monkeypatch.setattr(issues.server, "answer", moving)
    for _ in range(3):
        issues.run()
    assert next(moves, None) is None
    missed = [issue.title for issue in made if not issue.gone and issues.task_of(issue) is None]
    assert missed == []


def test_a_reading_of_several_pages_ends_and_asks_for_few(issues: WatchedIssues) -> None:
    issues.taken()
    for n in range(55):
        issues.board.file(f"Number {n}", "orch", by=DANA)
        issues.store.clock.advance(1)
    asked = len(issues.server.calls("GET", "/issues$"))
    assert issues.run()["taken"] == 55
    assert len(issues.server.calls("GET", "/issues$")) - asked == 3


def test_a_list_without_an_end_is_read_for_so_long_only(
    issues: WatchedIssues, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(25):
        issues.board.file(f"Number {n}", "orch", by=DANA)
    answer = issues.server.answer

    def endless(asked: Asked) -> Answer:
        told = answer(replace(asked, query=re.sub(r"\bpage=[0-9]+", "page=1", asked.query)))
        told.headers["Link"] = '<https://github.invalid/>; rel="next"'
        return told

    monkeypatch.setattr(issues.server, "answer", endless)
    issues.run()
    assert len(issues.server.calls("GET", "/issues$")) <= 2 * CHANGES / LARGE_PAGE


def test_issues_and_comments_as_large_as_they_may_be_keep_no_other_away(issues: WatchedIssues) -> None:
    """A page of them is less than what is read at once."""
    issue, task = issues.waits()
    for n in range(25):
        issues.board.file(f"Number {n}", "orch", body="\u00e9" * BODY_LIMIT, by=MALLORY)
        issues.board.comment(issue, "\u00e9" * BODY_LIMIT, by=MALLORY)
    issues.board.comment(issue, "orch approve", by=DANA)
    assert issues.run()["taken"] == 25
    assert issues.words(task) == [("approved", DANA)]


@pytest.mark.parametrize("title", [" ", "\0\u202e", "x" * 1000])
def test_an_issue_of_any_title_is_taken(issues: WatchedIssues, title: str) -> None:
    issues.board.file(title, "orch", by=DANA)
    assert issues.run()["taken"] == 1


def test_what_has_ended_is_taken_anew_where_a_person_opens_it_again(issues: WatchedIssues) -> None:
    issue, task = issues.taken()
    issues.store.move(task.id, Stage.CANCELLED)
    issues.board.comment(issue, "A pity.", by=DANA)
    assert issues.run()["taken"] == 0  # it is open still: that is no wish to begin anew
    issues.board.close(issue, "not_planned", by=BOT)
    assert issues.run()["taken"] == 0
    issues.board.reopen(issue, by=BOT)
    assert issues.run()["taken"] == 0
    issues.board.close(issue, "not_planned", by=BOT)
    issues.run()
    issues.board.reopen(issue, by=DANA)
    assert issues.run()["taken"] == 1
    again = issues.task(issue)
    assert again.id != task.id
    issues.store.move(again.id, Stage.CANCELLED)
    issues.board.comment(issue, "Once more a pity.", by=DANA)
    for _ in range(3):
        assert issues.run()["taken"] == 0  # it was opened for the second, and for no third


# --- what is heard ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hooks", ["none", "before", "after"])
def test_a_word_counts_once_however_often_it_is_heard(issues: WatchedIssues, hooks: str) -> None:
    issue, task = issues.waits()
    issues.board.comment(issue, "orch task approve", by=DANA)
    if hooks == "before":
        issues.hook()
        assert issues.words(task) == []  # a webhook is a hint
    assert issues.run()["heard"] == 1
    for _ in range(3):
        issues.run()
    if hooks == "after":
        issues.hook()
        issues.run()
    assert issues.words(task) == [("approved", DANA)]


def test_a_hint_is_followed_at_once_and_one_of_our_own_is_none(issues: WatchedIssues) -> None:
    issue, task = issues.waits()
    issues.board.comment(issue, "orch approve", by=DANA)
    issues.hook()
    assert issues.run(after_s=0.5)["heard"] == 1
    assert issues.words(task) == [("approved", DANA)]
    asked = len(issues.server.journal.calls)
    issues.board.comment(issue, "orch approve", by=BOT)
    issues.board.label(issue, "orch: review", by=BOT)
    issues.hook()
    issues.run(after_s=0.5)
    assert len(issues.server.journal.calls) == asked


def test_a_new_issue_is_taken_soon_after_its_webhook(issues: WatchedIssues) -> None:
    issues.run()
    issue = issues.board.file("Quick", "orch", by=DANA)
    issues.hook()
    assert issues.run(after_s=6)["taken"] == 1
    assert issues.task(issue)


@pytest.mark.parametrize(
    "body",
    [
        "> orch approve",
        "> Shall I say this?\norch approve",
        "Shall I say orch approve?",
        "<!-- orch approve -->",
        "<blockquote>\norch approve\n</blockquote>",
        "orch approved",
        ">" * 20_000 + " orch approve",
        "\0\ud800",
    ],
)
def test_a_comment_that_does_not_begin_with_a_command_is_none(issues: WatchedIssues, body: str) -> None:
    issue, task = issues.waits()
    issues.board.comment(issue, body, by=DANA)
    issues.run()
    assert (issues.words(task), issues.answers()) == ([], [])


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("> Shall I?\n\n`orch approve`", "approved"),
        ("```\norch approve\n```", "approved"),
        ("Orch task approve SHOP-1 --sha aaaaaaa", "approved"),
        ("orch reject The button\n\nis **red**.", "reject"),
        ("\r\n\r\norch cancel", "cancel"),
    ],
)
def test_a_command_in_markdown(issues: WatchedIssues, body: str, kind: str) -> None:
    issue, task = issues.waits()
    issues.board.comment(issue, body, by=DANA)
    issues.run()
    assert issues.words(task) == [(kind, DANA)]


@pytest.mark.parametrize("right", ["", "read", "triage"])
def test_who_may_not_write_commands_nothing_and_is_told_once(issues: WatchedIssues, right: str) -> None:
    """What GitHub says beside the comment, COLLABORATOR, is not looked at."""
    if right:
        issues.there.rights[MALLORY] = right
    issue, task = issues.waits()
    for verb in ("approve", "cancel", "retry"):
        issues.board.comment(issue, f"orch {verb}", by=MALLORY)
    issues.run()
    assert issues.words(task) == []
    [answer] = issues.answers()
    assert "mallory may not write" in answer


@pytest.mark.parametrize("right", ["write", "maintain", "admin"])
def test_who_may_write_may_answer(issues: WatchedIssues, right: str) -> None:
    issues.there.rights[MALLORY] = right
    issue, task = issues.waits()
    issues.board.comment(issue, "orch approve", by=MALLORY)
    issues.run()
    assert issues.words(task) == [("approved", MALLORY)]


def test_where_we_are_not_told_who_may_write_nobody_may(issues: WatchedIssues) -> None:
    issue, task = issues.waits()
    issues.server.fail("GET", "/permission$", How.BEFORE, status=403)
    issues.board.comment(issue, "orch approve", by=DANA)
    issues.run()
    assert issues.words(task) == []
    assert "does not tell whether dana" in issues.answers()[0]


def test_a_comment_that_becomes_a_command_later_is_none(issues: WatchedIssues) -> None:
    """Others than its author may edit it there."""
    issue, task = issues.waits()
    old = issues.board.comment(issue, "Hello", by=DANA)
    issues.run()
    issues.board.edit_comment(issue, old, "orch approve", by=DANA)
    issues.run()
    assert (issues.words(task), issues.answers()) == ([], [])
    new = issues.board.comment(issue, "orch aprove", by=DANA)
    issues.store.clock.advance(2)
    issues.board.edit_comment(issue, new, "orch approve", by=DANA)
    issues.run()
    assert issues.words(task) == []
    assert "was edited" in issues.answers()[0]


@pytest.mark.parametrize("reason", ["completed", "not_planned", "duplicate"])
def test_closed_by_a_person_asks_for_a_cancel(issues: WatchedIssues, reason: str) -> None:
    issue, task = issues.waits()
    issues.board.close(issue, reason, by=MALLORY)  # its author may, too: GitHub has let them
    issues.run()
    assert issues.words(task) == [("cancel", MALLORY)]


def test_closed_and_opened_again_before_it_was_read_asks_for_nothing(issues: WatchedIssues) -> None:
    issue, task = issues.waits()
    issues.board.close(issue, by=DANA)
    issues.board.reopen(issue, by=DANA)
    issues.run()
    assert issues.words(task) == []
    assert "has been opened again since" in issues.answers()[0]


def test_opened_again_before_the_closing_was_dealt_with_it_asks_for_nothing(issues: WatchedIssues) -> None:
    """As while somebody owns the task."""
    issue, task = issues.waits()
    issues.board.close(issue, by=DANA)
    issues.store.clock.advance(EVERY_S)
    assert issues.watch.run_once()["heard"] == 1
    issues.board.reopen(issue, by=DANA)
    issues.run()
    assert issues.words(task) == []
    assert "has been opened again since" in issues.answers()[0]


def test_closed_by_us_asks_for_nothing(issues: WatchedIssues) -> None:
    issue, task = issues.waits()
    issues.board.close(issue, by=BOT)
    issues.run()
    assert (issues.words(task), issues.answers()) == ([], [])


@pytest.mark.parametrize("by", [BOT, DANA])
def test_closed_by_the_words_of_a_commit_whoever_brought_it_it_is_shown_as_it_stands(
    issues: WatchedIssues, by: str
) -> None:
    issue, task = issues.waits()
    issues.board.close_by_words(f"Fixes #{issue.number}", by=by, commit="a" * 40)
    for _ in range(2):
        issues.run()
    assert issues.words(task) == []
    rows = issues.store.rows("SELECT payload FROM outbox WHERE stable_id LIKE 'again:%'")
    [told] = [json.loads(row["payload"]) for row in rows]
    assert (told["stage"], "by the words of a commit" in told["reason"]) == ("analysis", True)
    assert "closes the issue by hand, or says: orch task cancel" in told["reason"]


def test_closed_by_hand_after_the_words_of_a_commit_it_asks_for_a_cancel(issues: WatchedIssues) -> None:
    issue, task = issues.waits()
    issues.board.close_by_words(f"Fixes #{issue.number}", by=DANA, commit="a" * 40)
    issues.run()
    issues.board.reopen(issue, by=BOT)
    issues.board.close(issue, by=DANA)
    issues.run()
    assert issues.words(task) == [("cancel", DANA)]


def test_after_the_end_a_closing_is_what_was_wanted_and_a_command_is_answered(issues: WatchedIssues) -> None:
    issue, task = issues.waits()
    issues.store.move(task.id, Stage.CANCELLED)
    issues.board.comment(issue, "orch retry", by=DANA)
    issues.board.close(issue, by=DANA)
    issues.hook()
    issues.run()
    assert issues.words(task) == []
    [answer] = issues.answers()
    assert "has ended" in answer


def test_a_label_that_is_taken_away_calls_nothing_off(issues: WatchedIssues) -> None:
    issue, task = issues.taken()
    issues.board.unlabel(issue, "orch", by=DANA)
    issues.run()
    assert issues.words(task) == []


@pytest.mark.parametrize("how", ["deleted", "transferred"])
def test_deleted_or_transferred_it_asks_for_a_cancel(issues: WatchedIssues, how: str) -> None:
    issue, task = issues.taken()
    issues.board.leave(issue, how, by=DANA)
    for _ in range(3):
        issues.run()
    [(kind, _)] = issues.words(task)
    assert kind == "cancel"


def _archived(issues: WatchedIssues) -> None:
    issues.there.archived = True


def _switched_off(issues: WatchedIssues) -> None:
    issues.board.on = False


def _renamed(issues: WatchedIssues) -> None:
    issues.server.rename(issues.there, "store")


def _lost(issues: WatchedIssues) -> None:
    del issues.there.rights[BOT]


def _no_right_to_issues(issues: WatchedIssues) -> None:
    issues.server.fail("GET", "/issues", How.BEFORE, status=404, times=10_000)


@pytest.mark.parametrize(
    ("happens", "told"),
    [
        (_archived, "is archived"),
        (_switched_off, "are switched off"),
        (_renamed, "Was the repository renamed?"),
        (_lost, "is gone, or not ours to see"),
        (_no_right_to_issues, "may not read the issues"),
    ],
)
def test_where_issues_cannot_be_read_nothing_is_cancelled(
    issues: WatchedIssues, happens: Callable[[WatchedIssues], None], told: str
) -> None:
    issue, task = issues.taken()
    happens(issues)
    if happens is not _archived:
        for _ in range(30):
            issues.run()
        [alert] = issues.alerts()
        assert told in alert
    assert issues.words(task) == []
    with pytest.raises(ConfigError, match="Nothing was connected") as caught:
        issues.projects.connect(SHOP)
    assert told in str(caught.value)


def test_what_was_said_before_it_was_taken_is_no_word(issues: WatchedIssues) -> None:
    issue = issues.board.file("Old", by=DANA)
    issues.board.comment(issue, "orch cancel", by=DANA)
    issues.store.clock.advance(5)
    issues.board.label(issue, "orch", by=DANA)
    for _ in range(3):
        issues.run()
    assert (issues.words(issues.task(issue)), issues.answers()) == ([], [])


def test_a_word_for_what_was_on_show_before_is_answered(issues: WatchedIssues) -> None:
    issue, task = issues.waits()
    issues.board.comment(issue, "orch approve", by=DANA)
    issues.store.clock.advance(60)
    with issues.store.database.write() as tx:
        tasks.release_hold(tx, task.id)
        tasks.hold(tx, task.id, Hold.PERSON, "another analysis")
    issues.run()
    assert issues.words(task) == []
    assert "before what is on show now" in issues.answers()[-1]


@pytest.mark.parametrize("ahead", [timedelta(hours=-3), timedelta(hours=3)])
def test_another_clock_there_changes_nothing(issues: WatchedIssues, ahead: timedelta) -> None:
    issues.server._calendar = lambda: issues.store.clock.utc() + ahead
    issue, task = issues.waits()
    issues.board.comment(issue, "orch approve", by=DANA)
    issues.run()
    assert issues.words(task) == [("approved", DANA)]


def test_words_of_one_second_are_all_heard(issues: WatchedIssues) -> None:
    """GitHub tells whole seconds: what falls into the last one that was read is read again."""
    issue, task = issues.waits()
    issues.board.comment(issue, "Hello", by=DANA)
    issues.run(after_s=0.1)
    issues.hook()
    issues.run(after_s=0.1)
    issues.board.comment(issue, "orch approve", by=DANA)
    for _ in range(2):
        issues.run()
    assert issues.words(task) == [("approved", DANA)]


# --- what it costs, and when it cannot be asked -----------------------------------------------------------------------


def test_where_nothing_has_changed_a_reading_counts_towards_no_limit(issues: WatchedIssues) -> None:
    issues.taken()
    for _ in range(3):
        issues.run()
    left = issues.server.remaining
    issues.run()
    assert issues.server.remaining == left


def test_of_an_outage_a_person_is_told_once_and_when_it_is_over(issues: WatchedIssues) -> None:
    issue, task = issues.waits()
    issues.server.fail("GET", "", How.BEFORE, status=503, times=10_000)
    issues.board.comment(issue, "orch approve", by=DANA)
    asked = len(issues.server.journal.calls)
    for _ in range(30):
        issues.run()
    [told] = issues.alerts()
    assert "cannot be read" in told and "503" in told
    assert len(issues.server.journal.calls) - asked < 60
    issues.server.journal.faults.clear()
    issues.open()
    issues.run(after_s=600)
    assert "can be read again" in issues.alerts()[1]
    assert issues.words(task) == [("approved", DANA)]


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429, "headers": {"Retry-After": "90"}},
        {"status": 403, "headers": {"Retry-After": "90"}},
        {"status": 403, "headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"}},
    ],
)
def test_while_github_limits_us_nothing_is_sent_and_nothing_is_lost(
    issues: WatchedIssues, fault: dict
) -> None:  # type: ignore[type-arg]
    issue, task = issues.waits()
    issues.server.fail("GET", "/issues$", How.BEFORE, **fault)
    issues.board.comment(issue, "orch approve", by=DANA)
    issues.run()
    asked = len(issues.server.journal.calls)
    issues.hook()
    issues.run(after_s=0.2)
    assert len(issues.server.journal.calls) == asked
    for _ in range(5):
        issues.run()
    assert issues.words(task) == [("approved", DANA)]


def test_a_token_that_is_revoked_is_tried_seldom_and_said(issues: WatchedIssues) -> None:
    issues.taken()
    tokens = issues.server.tokens
    issues.server.revoke_token()
    asked = len(issues.server.journal.calls)
    for _ in range(20):
        issues.run()
    assert len(issues.server.journal.calls) - asked <= 5
    [told] = issues.alerts()
    assert "refuses our token" in told
    issues.server.tokens = tokens
    issue = issues.board.file("After it", "orch", by=DANA)
    for _ in range(6):
        issues.run()
    assert issues.task(issue)


@pytest.mark.parametrize(
    "path", ["/issues$", r"/issues/\d+$", "/events$", "/comments$", "/permission$", "/user$"]
)
@pytest.mark.parametrize(
    "how", [How.GARBAGE, *(pytest.param(how, marks=pytest.mark.long) for how in (How.LOST, How.AFTER))]
)
def test_nonsense_loses_no_word(issues: WatchedIssues, path: str, how: How) -> None:
    issue, task = issues.waits()
    issues.open()
    issues.board.comment(issue, "orch cancel", by=DANA)
    fault = issues.server.fail("GET", path, how, times=1)
    for _ in range(3):
        issues.run()
    assert fault.times == 0
    said = (issues.words(task), issues.answers())
    # Where it is not told who may write, the word is refused and said so: it can be given again.
    assert said[0] == [("cancel", DANA)] or (path == "/permission$" and "does not tell" in said[1][0])


def test_webhooks_that_have_died_are_noticed(issues: WatchedIssues) -> None:
    issue, _ = issues.waits()
    issues.board.comment(issue, "Hello", by=DANA)
    for _ in range(20):
        issues.run()
    [told] = issues.alerts()
    assert "orch connect github" in told


@pytest.mark.parametrize("ahead", [timedelta(0), timedelta(hours=3), timedelta(hours=-3)])
def test_of_what_was_said_while_we_were_down_no_webhook_is_missed(
    issues: WatchedIssues, ahead: timedelta
) -> None:
    issues.server._calendar = lambda: issues.store.clock.utc() + ahead
    issue, task = issues.waits()
    issues.board.comment(issue, "Hello", by=DANA)
    issues.hook()
    issues.run()
    issues.store.clock.advance(EVERY_S)
    issues.board.comment(issue, "orch approve", by=DANA)
    issues.store.clock.advance(2 * SILENCE_S)
    issues.open()
    for _ in range(20):
        issues.run()
    assert (issues.words(task), issues.alerts()) == ([("approved", DANA)], [])
    issues.board.comment(issue, "And now?", by=DANA)
    for _ in range(20):
        issues.run()
    [told] = issues.alerts()
    assert "the last came at" in told


# --- connecting -------------------------------------------------------------------------------------------------------


def test_connecting_again_changes_nothing_and_what_is_elsewhere_is_refused(issues: WatchedIssues) -> None:
    assert issues.projects.connect(SHOP) == issues.known()
    with issues.store.database.write() as tx:
        repositories.add(tx, repositories.Repository(RepoName("other"), "gitea", "http://x/acme/o", "OTH"))
    with pytest.raises(ConfigError, match="does not lie at GitHub"):
        issues.projects.connect(RepoName("other"))
    issues.store.raw("UPDATE tracker_projects SET tracker = 'plane'")
    with pytest.raises(RequestRefused, match="already"):
        issues.projects.connect(SHOP)


def test_disconnected_nothing_more_is_taken_and_connected_again_all_that_is_marked(
    issues: WatchedIssues,
) -> None:
    issue, task = issues.waits()
    with issues.store.database.write() as tx:
        tickets.leave(tx, SHOP)
    later = issues.board.file("Later", "orch", by=DANA)
    issues.board.comment(issue, "orch approve", by=DANA)
    issues.hook()
    issues.run()
    assert issues.task_of(later) is None
    assert issues.words(task) == [("approved", DANA)]  # what is under way is heard to its end
    issues.projects.connect(SHOP)
    assert issues.run()["taken"] == 1
    assert issues.task(later)


def test_under_another_name_its_tickets_are_the_same(issues: WatchedIssues) -> None:
    """Once a person has pointed the repository to its new place (`orch repo move`)."""
    issue, task = issues.waits()
    issues.server.rename(issues.there, "store")
    issues.board.comment(issue, "orch approve", by=DANA)
    assert issues.run()["failed"] == 1
    new = f"{issues.server.url}/acme/store"
    with issues.store.database.write() as tx:
        old = repositories.get(tx, SHOP)
        repositories.move(tx, old, new)
        tickets.moved(tx, SHOP, old.location, new)
    counts = issues.run(after_s=1)
    assert (counts["taken"], counts["failed"]) == (0, 0)
    assert issues.words(task) == [("approved", DANA)]
    assert issues.known().location == new


def test_a_pull_request_is_no_ticket_whatever_is_said_there(issues: WatchedIssues) -> None:
    issues.run()
    issues.told.clear()
    asked = len(issues.server.journal.calls)
    pull = Issue(number=77, title="A pull", body="", user=DANA, created="", updated="")
    issues.board.comment(pull, "orch approve", by=DANA)
    event, payload = issues.told.pop()
    payload["issue"]["pull_request"] = {"url": "x"}
    sent = issues.letters.send("github", event, payload)
    issues.letters.run()
    assert sent is not None and issues.letters.outcome(sent) == "nothing to do"
    issues.run(after_s=6)
    assert len(issues.server.journal.calls) == asked


def test_issues_of_a_repository_whose_tickets_lie_elsewhere_are_none(
    issues: WatchedIssues, store: Store
) -> None:
    store.raw("DELETE FROM tracker_projects")
    issues.board.file("Nobody's", "orch", by=DANA)
    event, payload = issues.told[-1]
    sent = issues.letters.send("github", event, payload)
    issues.letters.run()
    assert sent is not None and issues.letters.outcome(sent) == "nothing to do"
    assert issues.run(EVERY_S)["taken"] == 0
