"""Health against a real server whose version changes, flaps, lies or is missing: identity counts, not a 200."""

import dataclasses
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.deploy.health import HealthVerdict, HealthWatch, Seen, version_in
from orchestrator.repo_config.records import EnvironmentConfig, ProbeConfig
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.http import SystemHttp
from orchestrator.runtime.process import SystemProcesses

OLD = "0" * 39 + "1"
NEW = "c0ffee" + "0" * 34
LONG = 60.0


class Target:
    """A service; ``answers`` says what the n-th question (from 0) gets: status and body."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers: Callable[[int], tuple[int, str]] = lambda _: (200, version(NEW))
        target = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = target.answers(target.asked)
                target.asked += 1
                self.send_response(status)
                self.send_header("Content-Length", str(len(body.encode())))
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/version"


def version(sha: str) -> str:
    return json.dumps({"sha": sha, "status": "ok"})


@pytest.fixture
def target() -> Iterator[Target]:
    target = Target()
    thread = threading.Thread(target=target.server.serve_forever, args=(0.01,))
    thread.start()
    yield target
    target.server.shutdown()
    thread.join()
    target.server.server_close()


@pytest.fixture
def watch() -> HealthWatch:
    return HealthWatch(
        http=SystemHttp(),
        processes=SystemProcesses(),
        clock=SystemClock(),
        environ={"PATH": os.environ["PATH"]},
    )


def environment(target: Target, **changes: object) -> EnvironmentConfig:
    whole = EnvironmentConfig(
        name="staging",
        deploy=("true",),
        probe=ProbeConfig(url=target.url, timeout_s=10.0),
        healthy_times=3,
        interval_s=0.02,
        stable_for_s=0.1,
    )
    return dataclasses.replace(whole, **changes)  # type: ignore[arg-type]


def is_new(sha: str) -> bool:
    return sha == NEW


def test_the_expected_version_that_stays_is_healthy(watch: HealthWatch, target: Target) -> None:
    result = watch.watch(environment(target), is_new, threading.Event(), LONG, wanted=NEW)
    assert result.healthy
    assert result.verdict is HealthVerdict.HEALTHY
    assert result.seen == Seen(NEW, True, result.seen.detail if result.seen else "")
    assert NEW in result.detail
    assert result.observations >= 3
    assert len(result.recent) == min(result.observations, 20)


def test_stable_means_long_enough_and_often_enough(watch: HealthWatch, target: Target) -> None:
    often = watch.watch(
        environment(target, healthy_times=7, stable_for_s=0.0), is_new, threading.Event(), LONG
    )
    assert often.healthy
    assert often.observations == 7
    clock = SystemClock()
    began = clock.boottime()
    long = watch.watch(
        environment(target, healthy_times=1, stable_for_s=0.5), is_new, threading.Event(), LONG
    )
    assert long.healthy
    assert clock.boottime() - began >= 0.5


def test_the_old_version_that_answers_200_for_ever_is_unhealthy(watch: HealthWatch, target: Target) -> None:
    target.answers = lambda _: (200, version(OLD))
    result = watch.watch(environment(target), is_new, threading.Event(), 0.3, wanted=NEW)
    assert result.verdict is HealthVerdict.UNHEALTHY
    assert OLD in result.detail
    assert NEW in result.detail
    assert result.observations > 1


def test_the_old_version_while_draining_is_outlived(watch: HealthWatch, target: Target) -> None:
    target.answers = lambda number: (200, version(OLD if number < 5 else NEW))
    result = watch.watch(environment(target), is_new, threading.Event(), LONG)
    assert result.healthy
    assert result.observations >= 8


def test_a_version_that_flaps_is_never_healthy(watch: HealthWatch, target: Target) -> None:
    target.answers = lambda number: (200, version(OLD if number % 3 == 2 else NEW))
    result = watch.watch(environment(target, stable_for_s=0.0), is_new, threading.Event(), 0.5, wanted=NEW)
    assert result.verdict is HealthVerdict.UNHEALTHY


def test_what_must_not_be_counted_yet_is_told_with_its_reason(watch: HealthWatch, target: Target) -> None:
    result = watch.watch(
        environment(target),
        is_new,
        threading.Event(),
        0.1,
        wanted=NEW,
        unless=lambda sha: f"S-2 stands above {sha}",
    )
    assert result.verdict is HealthVerdict.UNHEALTHY
    assert f"S-2 stands above {NEW}" in result.detail
    assert "expected" not in result.detail
    target.answers = lambda number: (200, version(OLD if number == 0 else NEW))
    asked: list[str] = []
    target.asked = 0

    def later(sha: str) -> str | None:
        asked.append(sha)
        return "not yet" if len(asked) < 3 else None

    result = watch.watch(environment(target, stable_for_s=0.0), is_new, threading.Event(), LONG, unless=later)
    assert result.healthy
    assert asked == [NEW] * 5
    assert result.observations == 6


def test_one_contrary_answer_starts_the_count_anew(watch: HealthWatch, target: Target) -> None:
    target.answers = lambda number: (503, version(NEW)) if number == 2 else (200, version(NEW))
    result = watch.watch(environment(target, stable_for_s=0.0), is_new, threading.Event(), LONG)
    assert result.healthy
    assert result.observations == 6


def test_one_contrary_answer_starts_the_time_anew(watch: HealthWatch, target: Target) -> None:
    clock, contrary = SystemClock(), []

    def answers(number: int) -> tuple[int, str]:
        if number == 5:
            contrary.append(clock.boottime())
        return 200, version(OLD if number == 5 else NEW)

    target.answers = answers
    result = watch.watch(environment(target, stable_for_s=1.0), is_new, threading.Event(), LONG)
    assert result.healthy
    assert clock.boottime() - contrary[0] >= 1.0


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, ""),
        (200, "OK"),
        (200, '{"status": "ok"}'),
        (200, '{"sha": null}'),
        (200, version(NEW[:12])),
        (200, version(NEW.upper())),
        (200, version("v-" + NEW)),
        (200, version(NEW + "-dirty")),
        (200, json.dumps({"sha": [NEW]})),
        (200, json.dumps({"other": NEW})),
        (200, f"{OLD} {NEW}"),
        (200, "x" * 100_000),
        (500, version(NEW)),
        (404, NEW),
        (302, NEW),
    ],
    ids=range(15),
)
def test_what_does_not_name_the_version_is_unhealthy(
    watch: HealthWatch, target: Target, status: int, body: str
) -> None:
    target.answers = lambda _: (status, body)
    result = watch.watch(environment(target), is_new, threading.Event(), 0.1, wanted=NEW)
    assert result.verdict is HealthVerdict.UNHEALTHY
    assert result.detail
    assert len(result.detail) < 500


def test_nobody_listening_is_unhealthy(watch: HealthWatch) -> None:
    seen = watch.observe_once(ProbeConfig(url="http://127.0.0.1:1/"))
    assert (seen.sha, seen.healthy) == (None, False)
    assert "127.0.0.1:1" in seen.detail


def test_a_watch_that_was_stopped_has_judged_nothing(watch: HealthWatch, target: Target) -> None:
    stop = threading.Event()

    def answers(number: int) -> tuple[int, str]:
        if number == 3:
            stop.set()
        return 200, version(OLD)

    target.answers = answers
    result = watch.watch(environment(target), is_new, stop, LONG)
    assert result.verdict is HealthVerdict.STOPPED
    assert result.stopped
    assert not result.healthy


def test_every_question_gets_a_connection_of_its_own(watch: HealthWatch, target: Target) -> None:
    links: list[object] = []
    target.server.process_request = _recording(target, links)  # type: ignore[method-assign]
    probe = ProbeConfig(url=target.url)
    for _ in range(3):
        assert watch.observe_once(probe).healthy
    assert len(links) == 3


def _recording(target: Target, links: list[object]) -> Callable[..., None]:
    accept = target.server.process_request

    def record(request: object, address: object) -> None:
        links.append(address)
        accept(request, address)  # type: ignore[arg-type]

    return record


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        (f"print('{NEW}')", (NEW, True)),
        (f'print(\'{{"sha": "{NEW}"}}\')', (NEW, True)),
        (f"print('{NEW}'); raise SystemExit(1)", (NEW, False)),
        ("print('fine')", (None, False)),
        ("import signal; signal.pause()", (None, False)),
    ],
    ids=["plain", "json", "fails", "no version", "hangs"],
)
def test_a_command_may_be_the_probe(watch: HealthWatch, code: str, seen: tuple[str | None, bool]) -> None:
    timeout = 0.5 if "pause" in code else 30.0
    got = watch.observe_once(ProbeConfig(command=(sys.executable, "-c", code), timeout_s=timeout))
    assert (got.sha, got.healthy) == seen


def test_a_probe_that_cannot_be_run_or_is_missing_is_unhealthy(watch: HealthWatch) -> None:
    assert "cannot be run" in watch.observe_once(ProbeConfig(command=("no-such-program",))).detail
    assert not watch.observe_once(ProbeConfig()).healthy


@pytest.mark.parametrize(
    "digits", ["1" * 40, "12345e" + "6" * 34, "0" * 64], ids=["digits", "float", "sha256"]
)
def test_a_version_that_looks_like_a_number_is_still_one(digits: str) -> None:
    assert version_in(digits.encode(), "sha")[0] == digits


def test_a_dotted_field_reaches_inside() -> None:
    body = json.dumps({"build": {"git": {"sha": NEW}}}).encode()
    assert version_in(body, "build.git.sha")[0] == NEW
    assert version_in(body, "build.git.sha.more")[0] is None
    assert version_in(body, "sha")[0] is None


@pytest.mark.parametrize(
    "body", [b"[" * 50_000, b"\xff" * 100, b'{"sha": "\\u001b[2J"}', b"\x00"], ids=range(4)
)
def test_hostile_answers_are_short_printable_text_in_messages(body: bytes) -> None:
    sha, detail = version_in(body, "sha")
    assert sha is None
    assert len(detail) < 300
    assert detail.isprintable()
