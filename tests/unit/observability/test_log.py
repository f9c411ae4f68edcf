"""The log: constant text with fields, one line each, no secrets, no control codes."""

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
import structlog

from orchestrator.config import Secret, load_settings
from orchestrator.observability.log import configure_logging, get_logger, log_uncaught_errors, neutral

CANARY = "canary-0123456789"


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, hooks = root.handlers[:], root.level, (sys.excepthook, threading.excepthook)
    yield
    root.handlers[:], root.level = handlers, level
    sys.excepthook, threading.excepthook = hooks
    logging.captureWarnings(False)
    structlog.reset_defaults()


def at_noon() -> datetime:
    return datetime(2026, 1, 5, 15, 0, tzinfo=timezone(timedelta(hours=3)))


def set_up(form: str = "text", level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    settings = load_settings({"ORCH_HOME": "/tmp/x", "ORCH_LOG_FORMAT": form, "ORCH_LOG_LEVEL": level})
    configure_logging(settings, [Secret(CANARY)], utc=at_noon, stream=stream)
    return stream


def test_text_for_people() -> None:
    stream = set_up()
    get_logger("room").info("job claimed", job=7, note="two words", empty="")
    assert stream.getvalue() == (
        '2026-01-05T12:00:00.000000Z info     job claimed empty="" job=7 logger=room note="two words"\n'
    )


def test_json_for_machines() -> None:
    stream = set_up("json")
    get_logger("room").warning("held", reason="ждёт\nчеловека", count=2)
    line = stream.getvalue()
    assert line.count("\n") == 1 and "ждёт" in line
    assert json.loads(line) == {
        "timestamp": "2026-01-05T12:00:00.000000Z",
        "level": "warning",
        "event": "held",
        "logger": "room",
        "reason": "ждёт\nчеловека",
        "count": 2,
    }


def test_level() -> None:
    stream = set_up(level="warning")
    get_logger("room").info("not shown")
    logging.getLogger("library").info("nor this")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("form", ["text", "json"])
def test_secrets_are_masked_wherever_they_stand(form: str) -> None:
    stream = set_up(form)
    log = get_logger("room").bind(bound=f"x {CANARY}")
    log.info(f"event {CANARY}", field=CANARY, nested={"deep": [CANARY]}, error=ValueError(CANARY))
    logging.getLogger("library").warning("GET https://api/bot%s/send", CANARY)
    try:
        raise RuntimeError(f"push failed: https://user:{CANARY}@host")
    except RuntimeError:
        log.exception("failed")
        logging.getLogger("library").exception("failed too")
    text = stream.getvalue()
    assert CANARY not in text
    assert text.count("***") >= 8
    assert text.count("RuntimeError: push failed") == 2


@pytest.mark.parametrize("form", ["text", "json"])
def test_values_cannot_forge_lines_or_drive_a_terminal(form: str) -> None:
    stream = set_up(form)
    hostile = "a\n2026 error forged\r\x1b]0;title\x07\u202e\x9b31m"
    get_logger("room").info("seen", title=hostile, **{"k\ney": 1})
    logging.getLogger("library").warning(hostile)
    lines = stream.getvalue().removesuffix("\n").split("\n")
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)


def test_long_values_are_cut() -> None:
    stream = set_up()
    get_logger("room").info("seen", text="x" * 1_000_000, data=["y" * 1_000_000])
    assert len(stream.getvalue()) < 20_000


def test_a_secret_at_the_cut_is_masked_before_it_is_cut() -> None:
    stream = set_up()
    get_logger("room").info("seen", text="x" * 8185 + CANARY)
    assert "canary" not in stream.getvalue()


def test_a_stream_that_fails_stops_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    stream = set_up()
    stream.close()
    get_logger("room").info("lost", secret=CANARY)
    assert capfd.readouterr() == ("", "")


def test_setting_up_twice_writes_once() -> None:
    first, second = set_up(), set_up()
    get_logger("room").info("once")
    assert (first.getvalue().count("once"), second.getvalue().count("once")) == (0, 1)


def test_uncaught_errors_go_through_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    stream = set_up()
    log_uncaught_errors()

    def fail() -> None:
        raise ValueError(CANARY)

    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join(10)
    try:
        fail()
    except ValueError as error:
        sys.excepthook(ValueError, error, error.__traceback__)
    text = stream.getvalue()
    assert text.count("an error was not caught") == 2 and "thread=worker" in text and "ValueError" in text
    assert CANARY not in text + "".join(capfd.readouterr())


def test_a_keyboard_interrupt_is_left_to_python(capfd: pytest.CaptureFixture[str]) -> None:
    stream = set_up()
    log_uncaught_errors()
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert stream.getvalue() == "" and "KeyboardInterrupt" in capfd.readouterr().err


def test_neutral_keeps_letters_and_blanks() -> None:
    assert neutral("Ünï\u00a0код 漢字 \t\x1b[0m") == "Ünï\u00a0код 漢字 \\t\\x1b[0m"


def test_time_is_utc() -> None:
    stream = set_up("json")
    get_logger("room").info("x")
    assert json.loads(stream.getvalue())["timestamp"] == at_noon().astimezone(UTC).strftime(
        "%Y-%m-%dT%H:%M:%S.%fZ"
    )
