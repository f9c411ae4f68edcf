"""Webhooks over real HTTP: what is taken in, what is refused, and that nothing is answered before it is stored."""

import hmac
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from orchestrator.observability.telemetry import Metric
from orchestrator.web.request_body import BODY_LIMIT
from tests.deliveries import gitea_push, plane_state
from tests.fixtures_webhooks import Letters
from tests.fixtures_webhooks_served import ServeWebhooks
from tests.integration.web.test_bounds import CHUNK, answer_of, connect, rss
from tests.senders import OLD, SECRET, Sender, headers_of, signature_of


@pytest.fixture
def plane(serve_webhooks: ServeWebhooks, client: httpx.Client) -> Sender:
    return Sender(client, serve_webhooks(), "plane")


@pytest.fixture
def gitea(serve_webhooks: ServeWebhooks, client: httpx.Client) -> Sender:
    return Sender(client, serve_webhooks(), "gitea")


@pytest.fixture
def github(serve_webhooks: ServeWebhooks, client: httpx.Client) -> Sender:
    return Sender(client, serve_webhooks(), "github")


def stored(letters: Letters) -> list[Any]:
    return letters.store.rows(
        "SELECT inbox.*, delivery_id FROM inbox JOIN deliveries ON inbox_id = id ORDER BY id"
    )


def refused(letters: Letters) -> dict[str, int]:
    return letters.telemetry.snapshot()[Metric.WEBHOOKS_REFUSED]


class TestTakenIn:
    def test_is_stored_when_it_is_answered(self, letters: Letters, plane: Sender) -> None:
        answer = plane.send(plane_state("Approved"))
        assert (answer.status_code, answer.content) == (202, b"")
        [row] = stored(letters)
        assert (row["source"], row["kind"], row["delivery_id"]) == ("plane", "issue", "delivery-0")
        assert json.loads(row["payload"]) == plane_state("Approved")
        assert letters.arrived == 1

    def test_a_repeat_is_known_by_its_content(self, letters: Letters, gitea: Sender) -> None:
        for expected in (202, 200, 200):
            assert gitea.send(gitea_push("main", "a" * 40)).status_code == expected
        assert len(stored(letters)) == 1
        assert letters.telemetry.snapshot()[Metric.WEBHOOKS_REPEATED] == {"gitea": 2}

    def test_neither_token_nor_host_name_of_ours_is_asked_for_there_and_nowhere_else(
        self, gitea: Sender
    ) -> None:
        """The name under which a sender reaches us is its own affair; the signature tells who it is."""
        assert gitea.send(gitea_push("main", "a" * 40), host="hooks.example.org").status_code == 202
        for path in (
            "/queue",
            "/webhooks",
            "/webhooks/",
            "/webhooks/gitlab",
            "/webhooks/gitea/",
            "/webhooks/gitea/x",
        ):
            for method in ("GET", "POST"):
                assert gitea.client.request(method, gitea.url + path).status_code == 401, path
        assert (
            gitea.client.get(gitea.url + "/queue", headers={"host": "hooks.example.org"}).status_code == 421
        )
        assert gitea.client.get(gitea.address).status_code == 405

    def test_the_type_of_an_event_comes_before_its_group(self, letters: Letters, gitea: Sender) -> None:
        gitea.send(gitea_push("main", "a" * 40), kind="pull_request", x_gitea_event_type="pull_request_sync")
        gitea.send(gitea_push("main", "b" * 40), kind="push", x_gitea_event_type=None)
        assert [row["kind"] for row in stored(letters)] == ["pull_request_sync", "push"]

    def test_forgejos_own_headers_will_do(self, letters: Letters, gitea: Sender) -> None:
        raw = json.dumps(gitea_push("main", "a" * 40)).encode()
        told = headers_of("gitea", "push", "d-1", gitea.signature(raw))
        named = {name.replace("gitea", "forgejo"): value for name, value in told.items()}
        assert gitea.client.post(gitea.address, content=raw, headers=named).status_code == 202
        assert [row["kind"] for row in stored(letters)] == ["push"]

    def test_planes_kind_is_the_one_that_is_signed(self, letters: Letters, plane: Sender) -> None:
        """The header is not: whoever repeats a body under another one changes nothing."""
        assert plane.send(plane_state("Approved"), kind="issue").status_code == 202
        assert plane.send(plane_state("Approved"), kind="issue_comment").status_code == 200

    def test_what_nothing_follows_from_is_taken_and_closed(
        self, letters: Letters, plane: Sender, gitea: Sender
    ) -> None:
        unknown = {"event": "cycle", "action": "created", "data": {"id": "c1"}}
        assert plane.send(unknown).status_code == 202
        assert (
            gitea.send(gitea_push("main", "a" * 40, address="https://git.example.org/a/b")).status_code == 202
        )
        assert gitea.send({"action": "x"}, kind="no_such_event").status_code == 202
        assert letters.run() == {"handled": 3, "deferred": 0, "failed": 0}
        outcomes = [letters.outcome(row["id"]) for row in stored(letters)]
        assert outcomes == ["nothing to do", "about no repository of ours", "nothing to do"]


class TestSignature:
    @pytest.mark.parametrize(
        "signature",
        [None, "", "sha256=", "0" * 64, "sha256={0}", "{0}x", "{0}0", "\u00e9", "{0}, {0}", "x" * 60_000],
        ids=range(10),
    )
    @pytest.mark.parametrize("source", ["plane", "gitea"])
    def test_a_wrong_one_is_refused(
        self,
        letters: Letters,
        serve_webhooks: ServeWebhooks,
        client: httpx.Client,
        source: str,
        signature: str | None,
    ) -> None:
        sender = Sender(client, serve_webhooks(), source)
        raw = json.dumps({"event": "issue", "ref": "refs/heads/main"}).encode()
        said = signature.format(sender.signature(raw)) if signature is not None else None
        answer = sender.send(raw, **{f"x_{source}_signature": said})
        assert answer.status_code == 403
        assert answer.headers["content-type"] == "application/problem+json"
        assert f"ORCH_{source.upper()}_WEBHOOK_SECRET" in answer.json()["hint"]
        assert stored(letters) == [] and refused(letters) == {"signature": 1}

    @pytest.mark.parametrize(
        "signature",
        [
            None,
            "",
            "sha256=",
            "sha256",
            "{0}",
            "sha1={0}",
            "sha512={0}",
            "SHA256={0}",
            "sha256={0:.63}",
            "sha256={0:.32}",
            "sha256={0}0",
            "sha256={0}x",
            "sha256=0x{0}",
            "sha256=sha256={0}",
            "sha256={0}, sha256={0}",
            "sha256=\u00e9",
            "sha256=" + "0" * 64,
        ],
        ids=range(17),
    )
    def test_a_wrong_one_of_githubs_is_refused(
        self, letters: Letters, github: Sender, signature: str | None
    ) -> None:
        """It bears the name of its hash, which is part of it. The old one, of SHA-1, is sent beside it and is none."""
        raw = json.dumps(gitea_push("main", "a" * 40)).encode()
        said = signature.format(github.signature(raw)) if signature is not None else None
        old = f"sha1={hmac.digest(SECRET.encode(), raw, 'sha1').hex()}"
        answer = github.send(raw, x_hub_signature_256=said, x_hub_signature=old)
        assert answer.status_code == 403
        assert answer.headers["content-type"] == "application/problem+json"
        assert "ORCH_GITHUB_WEBHOOK_SECRET" in answer.json()["hint"]
        assert stored(letters) == [] and refused(letters) == {"signature": 1}
        assert github.send(raw, x_hub_signature=old).status_code == 202

    def test_githubs_is_not_replaced_by_the_old_one_nor_sent_twice(
        self, letters: Letters, github: Sender
    ) -> None:
        raw = json.dumps(gitea_push("main", "a" * 40)).encode()
        right = github.signature(raw)
        old = f"sha1={hmac.digest(SECRET.encode(), raw, 'sha1').hex()}"
        upper = f"sha256={right.upper()}"
        for said in (old, old.removeprefix("sha1="), old.replace("sha1", "sha256"), upper):
            assert github.send(raw, x_hub_signature_256=said).status_code == 403
        twice = [
            *headers_of("github", "push", "d-1", right).items(),
            ("x-hub-signature-256", f"sha256={right}"),
        ]
        assert github.client.post(github.address, content=raw, headers=twice).status_code == 403
        assert stored(letters) == [] and refused(letters) == {"signature": 5}

    def test_a_right_one_cut_upper_case_or_twice_is_refused(self, letters: Letters, gitea: Sender) -> None:
        raw = json.dumps(gitea_push("main", "a" * 40)).encode()
        right = gitea.signature(raw)
        for said in (right[:-1], right[:32], right.upper(), f"0x{right}"):
            assert gitea.send(raw, x_gitea_signature=said).status_code == 403
        twice = [*headers_of("gitea", "push", "d-1", right).items(), ("x-gitea-signature", right)]
        assert gitea.client.post(gitea.address, content=raw, headers=twice).status_code == 403
        assert gitea.send(raw).status_code == 202

    def test_the_bytes_are_signed_and_not_their_meaning(self, letters: Letters, gitea: Sender) -> None:
        payload = gitea_push("main", "a" * 40)
        compact = gitea.signature(json.dumps(payload, separators=(",", ":")).encode())
        assert gitea.send(payload, x_gitea_signature=compact).status_code == 403
        assert gitea.send(json.dumps(payload, indent=2).encode()).status_code == 202

    def test_another_sources_signature_is_none(self, letters: Letters, plane: Sender) -> None:
        raw = json.dumps({"event": "issue"}).encode()
        answer = plane.send(raw, x_plane_signature=None, x_gitea_signature=plane.signature(raw))
        assert answer.status_code == 403

    def test_old_and_new_secret_both_count_until_the_old_one_is_taken_out(
        self, serve_webhooks: ServeWebhooks, client: httpx.Client
    ) -> None:
        def taken(url: str) -> list[bool]:
            senders = [Sender(client, url, "gitea", secret) for secret in (OLD, SECRET)]
            return [sender.send(gitea_push("main", "a" * 40)).is_success for sender in senders]

        assert taken(serve_webhooks((OLD, SECRET))) == [True, True]
        assert taken(serve_webhooks((SECRET,))) == [False, True]

    @pytest.mark.parametrize("source", ["plane", "gitea", "github"])
    def test_without_a_secret_nothing_is_taken_and_the_answer_says_how(
        self, letters: Letters, serve_webhooks: ServeWebhooks, client: httpx.Client, source: str
    ) -> None:
        """An empty key signs as well as any: it must not be one."""
        answer = Sender(client, serve_webhooks(()), source, secret="").send({"event": "issue"})
        assert answer.status_code == 403
        assert f"ORCH_{source.upper()}_WEBHOOK_SECRET_FILE" in answer.json()["hint"]
        assert stored(letters) == [] and refused(letters) == {"no-secret": 1}

    def test_no_answer_shows_a_secret(self, gitea: Sender) -> None:
        for answer in (gitea.send(b"{}"), gitea.send(b"no"), gitea.send(b"{}", x_gitea_signature="no")):
            assert SECRET not in answer.text + str(answer.headers)


class TestBody:
    @pytest.mark.parametrize(
        "raw",
        [
            b"",
            b"no",
            b"[]",
            b'"x"',
            b"{",
            b'{"event": "issue"',
            b'{"event": "issue", "x": NaN}',
            b'{"event": "issue", "x": 1e999}',
            b'{"event": "issue", "x": ' + b"9" * 5000 + b"}",
            b'{"event": "issue", "x": "\xff"}',
            '{"event": "issue"}'.encode("utf-16"),
            b'{"x":' * 100_000,
            b'{"event": "issue", "x": ' + b"[" * 60 + b"]" * 60 + b"}",
            b'{"event": ""}',
            b'{"event": {}, "x": 1}',
        ],
        ids=range(15),
    )
    def test_what_is_no_delivery_is_400(self, letters: Letters, plane: Sender, raw: bytes) -> None:
        answer = plane.send(raw, kind="")
        assert answer.status_code == 400, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        assert stored(letters) == [] and refused(letters) == {"malformed": 1}

    def test_hostile_text_is_data(self, letters: Letters, plane: Sender) -> None:
        raw = (
            b'{"event": "issue", "event": "issue_comment", "data": {"id": "\\u0000\\ud800", "x": "\\u202e"}}'
        )
        assert plane.send(raw, x_plane_delivery="\u00ff\u00e9").status_code == 202
        [row] = stored(letters)
        assert row["kind"] == "issue_comment" == json.loads(row["payload"])["event"]

    @pytest.mark.parametrize(
        "declared",
        [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
        ids=range(5),
    )
    @pytest.mark.parametrize("source", ["plane", "gitea", "github"])
    def test_what_is_not_declared_as_json_is_415(
        self,
        letters: Letters,
        serve_webhooks: ServeWebhooks,
        client: httpx.Client,
        source: str,
        declared: str | None,
    ) -> None:
        """Gitea signs the JSON inside a form and not the form: there is nothing to verify. GitHub signs the form."""
        sender = Sender(client, serve_webhooks(), source)
        for raw in (b"payload=%7B%7D", b'{"event": "issue"}'):
            answer = sender.send(raw, kind="push", content_type=declared)
            assert answer.status_code == 415 and "content type" in answer.json()["hint"]
        assert stored(letters) == [] and refused(letters) == {"content-type": 2}

    def test_a_character_set_may_be_named(self, gitea: Sender) -> None:
        answer = gitea.send(gitea_push("main", "a" * 40), content_type="Application/JSON; charset=utf-8")
        assert answer.status_code == 202

    def test_a_packed_body_is_not_unpacked(self, gitea: Sender) -> None:
        assert gitea.send(b"\x1f\x8b", content_encoding="gzip").status_code == 415

    def test_a_body_of_exactly_the_limit_is_taken(self, letters: Letters, plane: Sender) -> None:
        raw = json.dumps({"event": "issue", "data": {"id": "x"}}).encode()
        assert plane.send(raw + b" " * (BODY_LIMIT - len(raw))).status_code == 202

    def test_a_sender_of_too_much_hears_so_when_it_has_sent_it_all(
        self, letters: Letters, plane: Sender
    ) -> None:
        """A connection that broke off would be tried again, and then the webhook be switched off (Plane)."""
        before = rss()
        answer = plane.send(b" " * (20 * BODY_LIMIT))
        assert answer.status_code == 413
        assert rss() - before < 50 * BODY_LIMIT
        assert refused(letters) == {"too-large": 1}

    def test_what_never_ends_is_cut_off(self, letters: Letters, plane: Sender) -> None:
        """A hundred megabytes in chunks, and more."""
        before, sent = rss(), 0
        with connect(plane.url) as connection:
            connection.sendall(
                b"POST /webhooks/plane HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            )
            connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
            try:
                while sent < 1024**3:
                    connection.sendall(CHUNK)
                    sent += len(CHUNK)
            except (BrokenPipeError, ConnectionResetError):
                pass
        assert sent < 100 * BODY_LIMIT
        assert rss() - before < 50 * BODY_LIMIT
        assert refused(letters) == {"too-large": 1}

    def test_what_comes_too_slowly_is_given_up(self, letters: Letters, serve_webhooks: ServeWebhooks) -> None:
        with connect(serve_webhooks(timeout_s=0.3)) as connection:
            connection.sendall(head("plane", b"{}" * 50, "Content-Length: 100") + b"{")
            answer = answer_of(connection)
        assert answer.startswith("HTTP/1.1 408") and refused(letters) == {"too-slow": 1}

    def test_what_breaks_off_is_not_taken(self, letters: Letters, serve_webhooks: ServeWebhooks) -> None:
        raw = json.dumps({"event": "issue"}).encode()
        with connect(serve_webhooks()) as connection:
            connection.sendall(head("plane", raw, f"Content-Length: {len(raw) + 1}") + raw)
            connection.shutdown(socket.SHUT_WR)
            answer_of(connection)
        assert stored(letters) == []

    def test_what_is_more_than_was_said_is_no_part_of_it(
        self, letters: Letters, serve_webhooks: ServeWebhooks
    ) -> None:
        raw = json.dumps({"event": "issue"}).encode()
        with connect(serve_webhooks()) as connection:
            connection.sendall(head("plane", raw, f"Content-Length: {len(raw)}") + raw + b"more\r\n\r\n")
            assert answer_of(connection).startswith("HTTP/1.1 202")
        assert len(stored(letters)) == 1


class TestStoring:
    def test_what_is_not_stored_is_not_answered_as_if_it_were(self, letters: Letters, gitea: Sender) -> None:
        """The database refuses; later it takes the same delivery."""
        letters.store.refuse("away", "deliveries", "INSERT", "no")
        answer = gitea.send(gitea_push("main", "a" * 40))
        assert answer.status_code == 500 and refused(letters) == {"fault": 1}
        letters.store.drop_guard("away", "deliveries")
        assert gitea.send(gitea_push("main", "a" * 40)).status_code == 202

    def test_a_database_that_is_away_is_503(self, letters: Letters, gitea: Sender) -> None:
        letters.store.database.close()
        answer = gitea.send(gitea_push("main", "a" * 40))
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
        assert letters.store.place not in answer.text
        assert refused(letters) == {"unavailable": 1}

    def test_a_burst_loses_nothing_and_shares_commits(self, letters: Letters, gitea: Sender) -> None:
        """Forty connections at once; every third delivery comes twice."""
        commits: list[int] = []
        letters.store.database._waypoints = Counted(commits)  # type: ignore[attr-defined]
        pushes = [gitea_push("main", f"{n:040x}") for n in range(300)]
        gathered = threading.Barrier(40)

        def deliver(part: int) -> list[int]:
            mine = [n for n in range(part, len(pushes), 40) for _ in range(2 if n % 3 == 0 else 1)]
            with httpx.Client(trust_env=False, timeout=60) as client:
                sender = Sender(client, gitea.url, "gitea")
                gathered.wait()
                return [sender.send(pushes[n], x_gitea_delivery=f"push-{n}").status_code for n in mine]

        with ThreadPoolExecutor(40) as pool:
            answered = [code for codes in pool.map(deliver, range(40)) for code in codes]
        assert sorted(set(answered)) == [200, 202]
        assert (answered.count(202), answered.count(200)) == (300, 100)
        assert sorted(json.loads(row["payload"])["after"] for row in stored(letters)) == [
            f"{n:040x}" for n in range(300)
        ]
        assert len(commits) < 400


class Counted:
    """Notes each commit."""

    def __init__(self, commits: list[int]) -> None:
        self._commits = commits

    def reach(self, name: str, **data: object) -> None:
        if name == "db.after_commit":
            self._commits.append(1)


def head(source: str, raw: bytes, length: str) -> bytes:
    """The beginning of a request, signed for ``raw``."""
    told = headers_of(source, "issue", "delivery-0", signature_of(SECRET, raw))
    lines = "\r\n".join(f"{name}: {value}" for name, value in told.items())
    return f"POST /webhooks/{source} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n{length}\r\n\r\n".encode()
