"""`orch doctor` looks whether alerts reach their chat, and sends nothing."""

from collections.abc import Iterator

import pytest

from orchestrator.played.telegram import CHAT, TOKEN, FakeTelegram, fake_telegram
from tests.fixtures_orch import Here


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with fake_telegram() as opened:
        yield opened


def finding(here: Here, **settings: str) -> list[tuple[str, str]]:
    """Level and words of what is said about Telegram."""
    for name, value in settings.items():
        here.monkeypatch.setenv(name, value)
    said = here("doctor", "--json")
    assert TOKEN not in said.out + said.err
    return [
        (f["level"], f"{f['text']} {f['hint']}") for f in said.data["findings"] if f["about"] == "telegram"
    ]


def test_nothing_is_said_where_nothing_is_configured(here: Here) -> None:
    assert finding(here) == []


def test_bot_and_chat_are_named(here: Here, fake: FakeTelegram) -> None:
    fake.chats[CHAT]["title"] = "Deliveries\x1b[2J"
    [(level, text)] = finding(here, **fake.environ)
    assert (level, text.strip()) == ("ok", "@deliveries_bot sends alerts to Deliveries [2J")
    assert fake.sends() == []


def test_what_is_wrong_is_said_with_what_to_do(here: Here, fake: FakeTelegram) -> None:
    [(level, text)] = finding(here, **fake.environ | {"ORCH_TELEGRAM_CHAT": "-5"})
    assert level == "warning" and "does not see the chat" in text and "press Start" in text
    fake.chats[-5] = {"moved_to": CHAT}
    [(level, text)] = finding(here)
    assert level == "warning" and f"Set ORCH_TELEGRAM_CHAT to {CHAT}" in text
    fake.token = "123456:the-bot-has-another-token-now"
    [(level, text)] = finding(here)
    assert level == "warning" and "not known: Unauthorized" in text


def test_nobody_is_there(here: Here, fake: FakeTelegram) -> None:
    [(level, text)] = finding(here, **fake.environ | {"ORCH_TELEGRAM_URL": "http://127.0.0.1:9"})
    assert level == "warning" and "gave no answer" in text


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"ORCH_TELEGRAM_TOKEN": TOKEN}, "ORCH_TELEGRAM_CHAT"),
        ({"ORCH_TELEGRAM_CHAT": "5"}, "ORCH_TELEGRAM_TOKEN"),
    ],
    ids=["no-chat", "no-token"],
)
def test_half_a_configuration_is_refused(here: Here, given: dict[str, str], missing: str) -> None:
    for name, value in given.items():
        here.monkeypatch.setenv(name, value)
    said = here("doctor")
    assert said.code == 2 and f"Set {missing}" in said.err and TOKEN not in said.err
