"""The API over a real database and a real server: what it answers, and what it refuses."""

import errno
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator.db import leases, tasks
from orchestrator.db.repositories import Repository
from orchestrator.db.tickets import TrackerProject
from orchestrator.domain.effect import EffectName
from orchestrator.domain.errors import LostRace, RequestRefused
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.domain.job import JobKind
from orchestrator.domain.lease import Actor
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Hold
from orchestrator.repositories import Elsewhere
from tests.fixtures_desk import Desk, Serve
from tests.fixtures_ownership import Logged

TOKEN = "a-token-of-more-than-sixteen"
LOCAL = "local-token-of-more-than-sixteen"


def client(url: str, **headers: str) -> httpx.Client:
    return httpx.Client(base_url=url, trust_env=False, timeout=60, headers=headers)


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


class Restore:
    """Counts who has asked for what was restored."""

    looked = 0

    def status(self) -> dict[str, object]:
        self.looked += 1
        return {"closed": False}


@pytest.fixture
def api(serve: Serve) -> Any:
    with client(serve()) as opened:
        yield opened


class TestHealth:
    def test_is_alive(self, api: httpx.Client) -> None:
        assert api.get("/healthz").json()["status"] == "ok"

    def test_says_when_it_is_not_ready(self, serve: Serve) -> None:
        fit = [False]
        with client(serve(ready=lambda: fit[0])) as api:
            assert api.get("/readyz").status_code == 503
            fit[0] = True
            assert api.get("/readyz").status_code == 200


class TestBoardAddress:
    def test_the_board_without_a_task_is_the_first_page(self, api: httpx.Client) -> None:
        for address in ("/board", "/board/"):
            answer = api.get(address, follow_redirects=True)
            assert (answer.status_code, answer.url.path) == (200, "/")
            assert answer.headers["content-type"].startswith("text/html")


class TestReading:
    def test_pages_tasks_newest_first(self, api: httpx.Client, desk: Desk) -> None:
        for number in range(5):
            desk.file(f"Ticket {number}")
        first = api.get("/tasks", params={"limit": 2}).json()
        assert [task["title"] for task in first["tasks"]] == ["Ticket 4", "Ticket 3"]
        second = api.get("/tasks", params={"limit": 2, "before": first["next_before"]}).json()
        third = api.get("/tasks", params={"limit": 2, "before": second["next_before"]}).json()
        assert [task["title"] for task in third["tasks"]] == ["Ticket 0"]
        assert third["next_before"] is None

    def test_lists_open_tasks_only_when_asked(self, api: httpx.Client, desk: Desk) -> None:
        desk.file("Gone")
        desk.move("SHOP-1", Stage.CANCELLED)
        desk.file("Here")
        assert [task["title"] for task in api.get("/tasks?open=true").json()["tasks"]] == ["Here"]

    def test_pages_open_tasks_oldest_first(self, api: httpx.Client, desk: Desk) -> None:
        for number in range(5):
            desk.file(f"Ticket {number}")
        found: list[list[str]] = []
        after: int | None = 0
        while after is not None:
            page = api.get("/tasks", params={"open": True, "limit": 2, "after": after}).json()
            found.append([task["title"] for task in page["tasks"]])
            after = page["next_after"]
        assert found == [["Ticket 0", "Ticket 1"], ["Ticket 2", "Ticket 3"], ["Ticket 4"]]

    @pytest.mark.parametrize("query", ["open=true&before=3", "after=3"])
    def test_the_other_lists_page_is_refused(self, api: httpx.Client, query: str) -> None:
        """It would silently do nothing."""
        assert api.get(f"/tasks?{query}").status_code == 400

    def test_tells_the_whole_story(self, api: httpx.Client, desk: Desk) -> None:
        desk.file("Add a basket", body="With a sum.", labels=("fast",))
        desk.move("SHOP-1", Stage.DEVELOPMENT)
        desk.run("SHOP-1", JobKind.DEVELOPER, "Done it.")
        desk.effect("SHOP-1", EffectName.PUSH, "abc")
        story = api.get("/tasks/SHOP-1").json()
        assert story["task"]["body"] == "With a sum."
        assert [event["type"] for event in story["events"]][:2] == ["task.created", "stage.changed"]
        assert story["runs"][0]["kind"] == "developer"
        assert story["runs"][0]["usage"]["cost_usd"] == 0.1234
        assert story["effects"][0]["state"] == "applied"
        assert story["spent"]["total_tokens"] == 7140

    def test_gives_events_behind_a_mark(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        first = api.get("/tasks/SHOP-1/events").json()
        assert len(first["events"]) == 1
        nothing = api.get("/tasks/SHOP-1/events", params={"after": first["next_after"]}).json()
        assert nothing == {"events": [], "next_after": first["next_after"]}
        desk.move("SHOP-1", Stage.ANALYSIS)
        later = api.get("/tasks/SHOP-1/events", params={"after": first["next_after"]}).json()
        assert [event["to_stage"] for event in later["events"]] == ["analysis"]

    def test_says_why(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        desk.hold("SHOP-1", Hold.BLOCKED, "waits for SHOP-0")
        why = api.get("/tasks/SHOP-1/why").json()
        assert "waits for SHOP-0" in why["line"]

    def test_shows_the_queue_with_its_blocks(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        desk.move("SHOP-1", Stage.DEVELOPMENT)
        desk.work("SHOP-1", JobKind.DEVELOPER)
        desk.freeze("SHOP-1", "broken")
        queue = api.get("/queue").json()
        assert queue["running"][0]["task"] == "SHOP-1"
        assert queue["serial_gate"]["frozen"][0]["reason"] == "broken"
        assert {"merge_gate", "reaper", "transition_lease"} <= set(queue)

    def test_shows_who_has_whom_it_is_lent_to_and_who_waits_in_order(
        self, api: httpx.Client, desk: Desk
    ) -> None:
        for _ in range(4):
            desk.file()
        desk.freeze("SHOP-1", "broken")
        desk.operations.lend("shop", "SHOP-2", person="Ada")
        for item in ("SHOP-4", "SHOP-3"):
            desk.hold(item, Hold.SLOT, "others have waited longer")
        queue = api.get("/queue").json()
        (frozen,) = queue["serial_gate"]["frozen"]
        assert (frozen["task"], frozen["lent_to"], frozen["holder"]) == ("SHOP-1", "SHOP-2", "(freeze)")
        assert [w["task"] for w in queue["serial_gate"]["waiters"]] == ["SHOP-4", "SHOP-3"]
        assert queue["serial_gate"]["waiting"] == ["SHOP-4", "SHOP-3"]
        (slot,) = queue["merge_gate"]["slots"]
        assert (slot["slot"], slot["task"], slot["lent_to"]) == ("merge:shop", "(freeze)", "SHOP-2")
        assert frozen["since"]
        assert slot["since"]
        assert "held by the freeze, number 2 in the line" in api.get("/tasks/SHOP-3/why").json()["line"]
        desk.hold("SHOP-3", Hold.FROZEN, "the repository is frozen: broken")
        assert "the merge slot is lent to SHOP-2 (created)" in api.get("/tasks/SHOP-3/why").json()["line"]


class TestActing:
    def test_files_a_ticket(self, api: httpx.Client, desk: Desk) -> None:
        sent = {"repo": "shop", "title": "Корзина", "body": "…", "labels": ["fast"], "priority": 3}
        answer = api.post("/tasks", json=sent)
        assert answer.status_code == 201
        assert answer.headers["location"] == "/tasks/SHOP-1"
        assert desk.operations.task("SHOP-1").title == "Корзина"
        assert desk.woken

    def test_files_a_ticket_of_elsewhere_once(self, api: httpx.Client) -> None:
        sent = {"repo": "shop", "title": "Once", "external_id": "PLANE-7"}
        first, second = api.post("/tasks", json=sent).json(), api.post("/tasks", json=sent).json()
        assert first["work_item"] == second["work_item"]

    @pytest.mark.parametrize("act", ["approve", "reject", "retry", "cancel"])
    def test_stores_a_decision(self, api: httpx.Client, desk: Desk, act: str) -> None:
        desk.file()
        desk.move("SHOP-1", Stage.ANALYSIS)
        answer = api.post(f"/tasks/SHOP-1/{act}", json={"person": "Ada", "reason": "so"})
        assert answer.status_code == 202
        receipt = answer.json()
        outcome = api.get(f"/tasks/SHOP-1/signals/{receipt['signal_id']}").json()
        assert outcome["outcome"] is None
        assert desk.operations.story("SHOP-1").events[-1].data["person"] == "Ada"

    def test_takes_a_decision_without_a_body(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        assert api.post("/tasks/SHOP-1/cancel").status_code == 202

    def test_lifts_a_freeze_once(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        desk.freeze("SHOP-1", "broken")
        answers = [api.post("/serial-gate/unfreeze", params={"repo": "shop"}).json() for _ in range(2)]
        assert [answer["lifted"] for answer in answers] == [True, False]

    def test_lends_a_freeze_to_the_fix(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        desk.file()
        gate = {"repo": "shop"}
        assert api.post("/serial-gate/unfreeze", params=gate, json={"for": "SHOP-2"}).status_code == 409
        desk.freeze("SHOP-1", "broken")
        lent = api.post("/serial-gate/unfreeze", params=gate, json={"for": "SHOP-2", "person": "Ada"})
        assert lent.json() == {"repo": "shop", "lifted": False, "lent_to": "SHOP-2"}
        assert desk.operations.story("SHOP-2").events[-1].data["person"] == "Ada"
        for task, status in (("SHOP-9", 404), ("SHOP-1", 409), ("", 400), (2, 400)):
            answer = api.post("/serial-gate/unfreeze", params=gate, json={"for": task})
            assert answer.status_code == status, task
        assert api.post("/serial-gate/unfreeze", params=gate, json={"lend_to": "SHOP-2"}).status_code == 400
        assert api.post("/serial-gate/unfreeze?repo=nowhere", json={"for": "SHOP-2"}).status_code == 404


class TestALease:
    def test_is_shown_and_taken_from_its_owner(self, api: httpx.Client, desk: Desk) -> None:
        task = desk.file()
        with desk.ownership.transition(task.id, Actor.MONITOR) as lease:
            assert lease is not None
            (holder,) = api.get("/queue").json()["transition_lease"]["holders"]
            assert (holder["task"], holder["owner"], holder["liveness"]) == ("SHOP-1", "monitor", "alive")
            assert holder["age_s"] >= 0
            desk.woken.clear()
            sent = api.post(
                "/transition-lease/release?work_item=SHOP-1", json={"person": "Ann", "reason": "it hangs"}
            )
            assert (sent.status_code, sent.json()["owner"], sent.json()["why"]) == (200, "monitor", "forced")
            assert desk.woken == [task.id]
            shown = api.get("/queue").json()["transition_lease"]
            assert (shown["holders"], shown["stale_reclaims"], shown["forced_reclaims"]) == ([], 0, 1)
            with desk.database.read() as tx, pytest.raises(LostRace):
                leases.check(tx, lease)

    def test_is_released_without_a_body(self, api: httpx.Client, desk: Desk) -> None:
        task = desk.file()
        with desk.ownership.transition(task.id, Actor.MONITOR):
            assert api.post("/transition-lease/release?work_item=SHOP-1").status_code == 200

    def test_knows_no_word_of_another_request(self, api: httpx.Client, desk: Desk) -> None:
        task = desk.file()
        with desk.ownership.transition(task.id, Actor.MONITOR):
            for sent in ({"for": "SHOP-1"}, {"subject": "a" * 40}):
                answer = api.post("/transition-lease/release?work_item=SHOP-1", json=sent)
                assert answer.status_code == 400

    @pytest.mark.parametrize(
        ("work_item", "status", "detail"),
        [
            ("SHOP-1", 409, "Nobody owns SHOP-1"),
            ("SHOP-9", 404, "SHOP-9"),
            ("../x' --", 404, "There is no task"),
        ],
    )
    def test_that_is_not_there_is_not_released(
        self, api: httpx.Client, desk: Desk, work_item: str, status: int, detail: str
    ) -> None:
        desk.file()
        sent = api.post("/transition-lease/release", params={"work_item": work_item})
        assert (sent.status_code, detail in sent.json()["detail"]) == (status, True), sent.text

    def test_is_not_released_without_the_token(self, serve: Serve, desk: Desk) -> None:
        desk.file()
        with client(serve(token=TOKEN)) as api:
            assert api.post("/transition-lease/release?work_item=SHOP-1").status_code == 401


class TestWhatAPersonSaw:
    HEAD, MOVED = Sha("ab12cd3" + "0" * 33), Sha("ab12cd4" + "0" * 33)

    def show(self, desk: Desk, head: Sha) -> None:
        with desk.database.write() as tx:
            tasks.set_head(tx, desk.operations.task("SHOP-1").id, head)

    @pytest.fixture
    def shown(self, desk: Desk) -> Desk:
        desk.file()
        desk.move("SHOP-1", Stage.ANALYSIS)
        self.show(desk, self.HEAD)
        return desk

    @pytest.mark.parametrize("subject", [HEAD, HEAD[:7], HEAD[:12].upper()])
    @pytest.mark.parametrize("act", ["approve", "reject", "retry", "cancel"])
    def test_is_what_it_is_bound_to(self, api: httpx.Client, shown: Desk, act: str, subject: str) -> None:
        assert api.get("/tasks/SHOP-1/why").json()["subject"] == self.HEAD
        assert api.post(f"/tasks/SHOP-1/{act}", json={"subject": subject}).status_code == 202

    @pytest.mark.parametrize("act", ["approve", "reject", "retry", "cancel"])
    def test_something_else_on_show_refuses_it(self, api: httpx.Client, shown: Desk, act: str) -> None:
        before = len(shown.operations.story("SHOP-1").events)
        self.show(shown, self.MOVED)
        answer = api.post(f"/tasks/SHOP-1/{act}", json={"subject": self.HEAD[:12]})
        assert answer.status_code == 409
        assert self.MOVED[:12] in answer.json()["detail"]
        assert len(shown.operations.story("SHOP-1").events) == before

    def test_nothing_on_show_refuses_it(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        desk.move("SHOP-1", Stage.ANALYSIS)
        assert api.get("/tasks/SHOP-1/why").json()["subject"] is None
        assert api.post("/tasks/SHOP-1/approve", json={"subject": self.HEAD}).status_code == 409

    @pytest.mark.parametrize("subject", ["", "ab12cd", "ab12cdx", HEAD * 2, " " + HEAD, HEAD + "\n", 7])
    def test_must_be_a_commit(self, api: httpx.Client, shown: Desk, subject: object) -> None:
        assert api.post("/tasks/SHOP-1/approve", json={"subject": subject}).status_code == 400

    def test_is_nothing_to_a_freeze(self, api: httpx.Client, shown: Desk) -> None:
        sent = {"subject": self.HEAD}
        assert api.post("/serial-gate/unfreeze?repo=shop", json=sent).status_code == 400

    def test_is_on_the_page_of_the_task(self, api: httpx.Client, shown: Desk) -> None:
        shown.hold("SHOP-1", Hold.PERSON, "the analysis waits for a person")
        assert f"orch task approve SHOP-1 --sha {self.HEAD[:12]}" in api.get("/board/SHOP-1").text


class TestRefusals:
    @pytest.mark.parametrize(
        "sent",
        [
            {"repo": "shop", "title": ""},
            {"repo": "shop", "title": " \t\n"},
            {"repo": "shop"},
            {"repo": "shop", "title": "x", "lables": ["typo"]},
            {"repo": "shop", "title": "x" * 5001},
            {"repo": "shop", "title": "x", "labels": ["l"] * 51},
            {"repo": "shop", "title": ["x"]},
            {"repo": "shop", "title": 7},
            {"repo": "shop", "title": "x", "priority": 10**400},
            [],
            "text",
            None,
        ],
        ids=range(12),
    )
    def test_bad_tickets_are_400(self, api: httpx.Client, desk: Desk, sent: object) -> None:
        content = json.dumps(sent).encode()
        answer = api.post("/tasks", content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert answer.headers["content-type"].startswith("application/problem+json")
        assert answer.json()["detail"]
        assert desk.operations.tasks() == []

    @pytest.mark.parametrize(
        "raw",
        [
            b"{",
            b"\xff\xfe",
            b'{"repo": "shop", "title": "\\ud800"}',
            b'{"repo": "shop", "title": NaN}',
            b'{"repo": "shop", "title": "x", "priority": ' + b"9" * 100_000 + b"}",
            b"[" * 10_000 + b"]" * 10_000,
            b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
            b"[" * 500_000,
        ],
        ids=[
            "cut",
            "no UTF-8",
            "surrogate",
            "NaN",
            "huge number",
            "deep list",
            "deep object",
            "half a megabyte deep",
        ],
    )
    def test_hostile_json_is_400(self, api: httpx.Client, desk: Desk, raw: bytes) -> None:
        answer = api.post("/tasks", content=raw, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert desk.operations.tasks() == []

    def test_brackets_in_text_are_not_depth(self, api: httpx.Client) -> None:
        sent = {"repo": "shop", "title": "[" * 400 + '\\"{' * 100}
        assert api.post("/tasks", json=sent).status_code == 201

    def test_a_nul_is_refused(self, api: httpx.Client) -> None:
        answer = api.post("/tasks", json={"repo": "shop", "title": "a\0b"})
        assert answer.status_code == 409
        assert "NUL" in answer.json()["detail"]

    def test_a_form_is_no_json(self, api: httpx.Client) -> None:
        assert api.post("/tasks", data={"repo": "shop", "title": "x"}).status_code == 400

    def test_unknown_things_are_404_with_a_hint(self, api: httpx.Client) -> None:
        for answer in (
            api.get("/tasks/SHOP-99"),
            api.post("/tasks/SHOP-99/cancel"),
            api.post("/tasks", json={"repo": "nowhere", "title": "x"}),
            api.get("/nothing"),
        ):
            assert answer.status_code == 404
            assert answer.json()["hint"]

    def test_what_does_not_fit_the_stage_is_409(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        answer = api.post("/tasks/SHOP-1/approve")
        assert answer.status_code == 409
        assert "nothing waits for an approval" in answer.json()["detail"]

    def test_a_wrong_method_is_405(self, api: httpx.Client) -> None:
        assert api.delete("/tasks/SHOP-1").status_code == 405

    @pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "before=-1", "before=" + "9" * 30])
    def test_bad_queries_are_400(self, api: httpx.Client, query: str) -> None:
        assert api.get(f"/tasks?{query}").status_code == 400

    @pytest.mark.parametrize("number", ["-1", "9" * 30, "-" + "9" * 30, "x", "1.5"])
    def test_numbers_that_are_no_signals_are_400(self, api: httpx.Client, desk: Desk, number: str) -> None:
        desk.file()
        assert api.get(f"/tasks/SHOP-1/signals/{number}").status_code == 400

    def test_a_signal_is_asked_for_at_its_own_task(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        desk.file()
        given = api.post("/tasks/SHOP-1/cancel", json={}).json()["signal_id"]
        assert api.get(f"/tasks/SHOP-1/signals/{given}").json()["outcome"] is None
        for task, number in (("SHOP-2", given), ("SHOP-1", given + 1), ("SHOP-1", 0)):
            assert api.get(f"/tasks/{task}/signals/{number}").status_code == 404

    def test_a_disk_that_is_full_is_503_and_told(self, serve: Serve, logged: Logged) -> None:
        def register(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device", "/secret/place")

        with client(serve(register=register)) as api:
            answer = api.post("/repositories", json={"path": "/x", "name": "x", "prefix": "X"})
        assert answer.status_code == 503
        assert "No space left" in answer.json()["detail"] and "secret" not in answer.text
        assert "/secret/place" in str(logged), "whoever mends it has to know where"

    @pytest.mark.parametrize(
        ("place", "status", "asked"),
        [
            ({"path": "/x"}, 201, (Path("/x"), None)),
            ({"gitea": "acme/shop"}, 201, (None, Elsewhere("gitea", "acme/shop"))),
            ({"github": "acme/shop"}, 201, (None, Elsewhere("github", "acme/shop"))),
            ({}, 400, None),
            ({"path": "/x", "gitea": "acme/shop"}, 400, None),
            ({"gitea": "acme/shop", "github": "acme/shop"}, 400, None),
        ],
        ids=["a checkout", "at Gitea", "at GitHub", "nowhere", "both", "at two servers"],
    )
    def test_a_repository_lies_in_one_place(
        self,
        serve: Serve,
        place: dict[str, str],
        status: int,
        asked: tuple[Path | None, Elsewhere | None] | None,
    ) -> None:
        got: list[tuple[Path | None, Elsewhere | None]] = []

        def register(path: Path | None, at: Elsewhere | None, name: str, prefix: str) -> Repository:
            got.append((path, at))
            return Repository(RepoName(name), "local", "/x", prefix)

        with client(serve(register=register)) as api:
            answer = api.post("/repositories", json={**place, "name": "x", "prefix": "X"})
        assert answer.status_code == status, answer.text
        assert got == ([asked] if asked else [])

    def test_a_repository_s_tickets_come_from_one_place(self, serve: Serve) -> None:
        got: list[tuple[str, str]] = []

        def connect(repo: str, plane: str) -> TrackerProject:
            got.append((repo, plane))
            if repo != "shop":
                raise RequestRefused("It has its tickets from elsewhere already.")
            where = ("https://plane.example.org/acme", "p-1")
            return TrackerProject(RepoName(repo), "plane", *where, *[None] * 6)

        with client(serve(connect=connect)) as api:
            answer = api.post("/repositories/shop/tracker", json={"plane": "acme/SHOP"})
            assert (answer.status_code, answer.json()["location"]) == (201, "https://plane.example.org/acme")
            assert api.post("/repositories/other/tracker", json={"plane": "acme/SHOP"}).status_code == 409
            assert api.post("/repositories/shop/tracker", json={}).status_code == 400
        assert got == [("shop", "acme/SHOP"), ("other", "acme/SHOP")]

    @pytest.mark.of_the_file
    def test_a_lost_database_is_no_traceback(self, serve: Serve, desk: Desk) -> None:
        with client(serve()) as api:
            desk.database.path.write_bytes(b"no database" * 1000)
            answer = api.get("/tasks")
        assert answer.status_code == 503
        assert "Traceback" not in answer.text


class TestMetrics:
    def test_are_json_unless_asked_otherwise(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        for accept in ("*/*", "application/json", "application/json, text/plain, */*", "text/html,*/*;q=0.8"):
            metrics = api.get("/metrics", headers={"accept": accept}).json()
            assert metrics["schema_version"] == 1
            assert metrics["gauges"]["orch_open_tasks"] == {"created": 1}

    def test_are_prometheus_text_for_a_scraper(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
        answer = api.get("/metrics", headers={"accept": accept})
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = answer.text.splitlines()
        assert 'orch_open_tasks{stage="created"} 1' in lines
        assert "# TYPE orch_jobs_claimed_total counter" in lines


class TestTokens:
    def test_everything_but_health_asks_for_it(self, serve: Serve, desk: Desk) -> None:
        desk.file()
        with client(serve(token=TOKEN)) as api:
            assert api.get("/healthz").status_code == api.get("/readyz").status_code == 200
            for path in ("/queue", "/tasks", "/tasks/SHOP-1", "/metrics", "/openapi.json", "/nothing", "/"):
                refused = api.get(path)
                assert refused.status_code == 401, path
                assert refused.headers["www-authenticate"] == "Bearer"
            assert api.get("/queue", headers=bearer(TOKEN)).status_code == 200

    @pytest.mark.parametrize("wrong", ["x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é" * 30], ids=range(5))
    def test_a_wrong_one_is_refused(self, serve: Serve, wrong: str) -> None:
        with client(serve(token=TOKEN)) as api:
            for header in (b"Bearer " + wrong.encode(), b"Bearer", b"Basic " + TOKEN.encode()):
                assert api.get("/queue", headers=[(b"authorization", header)]).status_code == 401

    def test_the_local_one_is_as_good(self, serve: Serve, desk: Desk) -> None:
        desk.file()
        with client(serve(token=TOKEN, local_token=LOCAL), **bearer(LOCAL)) as api:
            assert api.post("/tasks/SHOP-1/cancel").status_code == 202

    def test_without_one_loopback_reads_and_changes_nothing(self, serve: Serve, desk: Desk) -> None:
        """A label such as `allow-protected` lifts a gate: filing a ticket decides as much as an approval."""
        desk.file()
        filed = {"repo": "shop", "title": "x", "labels": ["allow-protected", "track:fast"]}
        with client(serve(local_token=LOCAL)) as api:
            assert api.get("/tasks").status_code == 200
            for path in ("/tasks", "/tasks/", "//tasks", "/tasks?x=1"):
                assert api.post(path, json=filed).status_code == 401, path
            assert [task.work_item for task in desk.operations.tasks()] == ["SHOP-1"]
            assert api.post("/tasks", json=filed, headers=bearer(LOCAL)).status_code == 201
            for path in ("/tasks/SHOP-1/cancel", "/tasks/SHOP-1/approve", "/serial-gate/unfreeze?repo=shop"):
                assert api.post(path).status_code == 401
            assert api.post("/tasks/SHOP-1/cancel", headers=bearer(LOCAL)).status_code == 202

    def test_what_has_forges_asked_is_read_with_one_alone(self, serve: Serve) -> None:
        restore = Restore()
        with client(serve(local_token=LOCAL, restore=restore)) as api:
            for path in ("/restore", "/restore?x=1", "/restore/"):
                assert api.get(path, follow_redirects=True).status_code == 401, path
            assert restore.looked == 0
            assert api.get("/restore", headers=bearer(LOCAL)).status_code == 200
            assert api.post("/restore/accept", json={"for": "x"}, headers=bearer(LOCAL)).status_code == 400
        assert restore.looked == 1

    def test_a_browser_is_shown_the_way_in(self, serve: Serve) -> None:
        with client(serve(token=TOKEN), accept="text/html") as api:
            sent = api.get("/")
            assert (sent.status_code, sent.headers["location"]) == (303, "/login")
            assert api.post("/login", data={"token": "wrong"}).status_code == 401
            let_in = api.post("/login", data={"token": TOKEN})
            assert let_in.status_code == 303
            cookie = let_in.headers["set-cookie"]
            assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and TOKEN not in cookie
            assert api.get("/").status_code == 200
            assert api.post("/tasks", json={"repo": "shop", "title": "x"}).status_code == 401


class TestPagesOfOtherSites:
    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]"]
    )
    def test_may_not_rebind_their_name(self, api: httpx.Client, host: str) -> None:
        assert api.get("/queue", headers={"host": host}).status_code == 421

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "[::1]:8114", "LOCALHOST"])
    def test_our_names_are_known(self, api: httpx.Client, host: str) -> None:
        assert api.get("/healthz", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": "http://127.0.0.1:1"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ],
        ids=["other", "null", "other port", "cross-site", "same-site"],
    )
    def test_may_not_ask_for_changes(self, api: httpx.Client, desk: Desk, headers: dict[str, str]) -> None:
        desk.file()
        assert api.post("/tasks/SHOP-1/cancel", headers=headers).status_code == 403

    def test_our_own_page_may(self, api: httpx.Client, desk: Desk) -> None:
        desk.file()
        own = {"origin": str(api.base_url).rstrip("/"), "sec-fetch-site": "same-origin"}
        assert api.post("/tasks/SHOP-1/cancel", headers=own).status_code == 202

    def test_are_told_nothing_by_cors(self, api: httpx.Client) -> None:
        answer = api.options("/tasks", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in answer.headers

    def test_every_answer_is_dressed(self, api: httpx.Client) -> None:
        for path in ("/", "/queue", "/nothing"):
            headers = api.get(path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
