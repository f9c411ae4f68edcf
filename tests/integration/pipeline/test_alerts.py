"""A person is called in Telegram and in the log, whatever one of the two does."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.domain.task import Hold
from orchestrator.played.telegram import TOKEN, FakeTelegram, breaks_off, fake_telegram, says
from tests.fixtures_pipeline import Build
from tests.waiting import wait_until

ASKING = "[approvals]\nanalysis = true\n"
BOARD = "https://orch.example.org"
QUICK = {"ORCH_OUTBOX_INTERVAL_S": "100ms"}


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with fake_telegram() as opened:
        yield opened


def test_a_person_is_called_once_in_each_channel(pipeline: Build, fake: FakeTelegram) -> None:
    """Although the first answer is lost, the markup is refused then, and the tracker's messages come first."""
    fake.faults = [breaks_off(after=False), says(400, "Bad Request: can't parse entities")]
    settings = fake.environ | {"ORCH_BASE_URL": BOARD} | QUICK
    line = pipeline(ASKING, settings=settings).start()
    item = line.add("A <b>bold</b> title & more")
    line.held(item, Hold.PERSON)
    wait_until(lambda: fake.shown)
    line.stop()
    [said] = fake.shown
    assert said.startswith(f"{item} ({BOARD}/board/{item}) analysis: ") and item in said
    line.open()
    assert len(line.alerts()) == 1
    kept = [path for path in Path(line.app.settings.home).rglob("*") if path.is_file()]
    assert kept and not any(TOKEN.split(":")[1].encode() in path.read_bytes() for path in kept)


def test_what_telegram_refuses_for_good_is_told_by_the_log(pipeline: Build, fake: FakeTelegram) -> None:
    fake.token = "123456:the-bot-has-another-token-now"
    settings = fake.environ | {"ORCH_TELEGRAM_TOKEN": TOKEN} | QUICK
    line = pipeline(ASKING, settings=settings).start()
    item = line.add()
    line.held(item, Hold.PERSON)
    wait_until(lambda: len(line.app.notifier.alerts()) == 2)
    told = json.dumps(line.app.notifier.alerts())
    assert "is parked: Telegram refused the message: Unauthorized." in told and "ORCH_TELEGRAM_TOKEN" in told
    assert TOKEN not in told and fake.shown == []
