"""Alerts to a Bot API over real HTTP: what is sent, what is repeated, when, and that the token shows nowhere."""

import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import Secret
from orchestrator.db import alerts
from orchestrator.domain.errors import OutsideError
from orchestrator.notifications import telegram
from orchestrator.notifications.notifier import NotNow, Undeliverable
from orchestrator.notifications.telegram import TelegramNotifier, TelegramSettings
from orchestrator.observability.redactor import Redactor
from orchestrator.observability.telemetry import Telemetry
from orchestrator.played.telegram import (
    CHAT,
    TOKEN,
    FakeTelegram,
    breaks_off,
    fails_after,
    fake_telegram,
    says,
)
from orchestrator.runtime.http import SystemHttp
from tests.clock import FakeClock
from tests.fixtures_db import Store
from tests.unit.daemons.test_outbox import postman

URL = "https://orch.example.org/board/SHOP-7"
SECRET = "a-secret-of-the-installation"


@pytest.fixture
def fake() -> Iterator[FakeTelegram]:
    with fake_telegram() as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


Open = Callable[..., TelegramNotifier]


@pytest.fixture
def channel(fake: FakeTelegram, clock: FakeClock) -> Open:
    def opened(
        chat: int | str = CHAT, topic: int | None = None, url: str = "", token: str = TOKEN
    ) -> TelegramNotifier:
        settings = TelegramSettings(url or fake.url, Secret(token), chat, topic)
        return TelegramNotifier(SystemHttp(), settings, clock, Redactor([SECRET]))

    return opened


def send(to: TelegramNotifier, text: str = "SHOP-7 review: look at it", message_id: str = "m-1") -> None:
    to.send(text, work_item="SHOP-7", url=URL, message_id=message_id)


def shows_no_token(error: BaseException) -> None:
    """Not in what it says, nor in anything that it hangs on to."""
    seen: BaseException | None = error
    while seen is not None:
        assert TOKEN not in f"{seen!s} {seen!r}" and TOKEN.split(":")[1] not in repr(vars(seen))
        seen = seen.__cause__ or seen.__context__
    assert TOKEN not in "".join(traceback.format_exception(error))


class TestSending:
    def test_the_work_item_is_a_link(self, fake: FakeTelegram, channel: Open) -> None:
        send(channel(topic=7))
        [asked] = fake.sends()
        assert (asked["chat_id"], asked["message_thread_id"], asked["parse_mode"]) == (CHAT, 7, "HTML")
        assert asked["link_preview_options"] == {"is_disabled": True}
        assert f'<a href="{URL}">SHOP-7</a>' in asked["text"]
        assert fake.shown[0].startswith("SHOP-7 review: look at it\n#")

    def test_without_a_topic_none_is_named(self, fake: FakeTelegram, channel: Open) -> None:
        send(channel())
        assert "message_thread_id" not in fake.sends()[0]

    def test_hostile_words_are_words_and_secrets_are_masked(self, fake: FakeTelegram, channel: Open) -> None:
        send(channel(), f"<b>&</b> <a href='x'>{SECRET}")
        assert fake.shown[0].startswith("SHOP-7: <b>&</b> <a href='x'>***\n#")

    @pytest.mark.parametrize(
        "description",
        ["Bad Request: can't parse entities: byte offset 3", "Bad Request: message is too long"],
    )
    def test_refused_markup_is_sent_as_plain_text_once(
        self, fake: FakeTelegram, channel: Open, description: str
    ) -> None:
        fake.faults = [says(400, description)]
        send(channel())
        assert [asked.get("parse_mode") for asked in fake.sends()] == ["HTML", None]
        assert fake.shown[0].startswith(f"SHOP-7 ({URL}) review: look at it")

    def test_a_group_that_has_become_another_chat_is_followed(
        self, fake: FakeTelegram, channel: Open
    ) -> None:
        fake.chats[-7] = {"moved_to": CHAT}
        to = channel(chat=-7)
        send(to)
        assert [asked["chat_id"] for asked in fake.sends()] == [-7, CHAT]
        assert len(fake.shown) == 1


class TestPacing:
    @pytest.mark.parametrize(("chat", "spacing"), [(42, 1.0), (CHAT, 3.0), ("@deliveries", 3.0)])
    def test_a_chat_is_given_its_time(
        self, fake: FakeTelegram, channel: Open, clock: FakeClock, chat: Any, spacing: float
    ) -> None:
        fake.chats[chat] = {"id": chat}
        to = channel(chat=chat)
        send(to)
        with pytest.raises(NotNow) as early:
            send(to)
        assert early.value.after_s == pytest.approx(spacing)
        clock.advance(spacing)
        send(to)
        assert len(fake.shown) == 2

    @pytest.mark.parametrize(
        ("parameters", "pause"),
        [
            ({"retry_after": 37}, 37),
            ({}, 30),
            ({"retry_after": "soon"}, 30),
            ({"retry_after": 10**9}, 24 * 3600),
        ],
        ids=range(4),
    )
    def test_later_is_later(
        self, fake: FakeTelegram, channel: Open, clock: FakeClock, parameters: dict[str, Any], pause: float
    ) -> None:
        fake.faults = [says(429, "Too Many Requests: retry after 37", **parameters)]
        to = channel()
        with pytest.raises(NotNow) as refused:
            send(to)
        assert refused.value.after_s == pytest.approx(pause)
        clock.advance(pause - 1)
        with pytest.raises(NotNow):
            send(to)
        assert len(fake.sends()) == 1  # nobody was asked meanwhile
        clock.advance(1)
        send(to)
        assert len(fake.shown) == 1


class TestFailing:
    @pytest.mark.parametrize(
        ("status", "description", "hint"),
        [
            (401, "Unauthorized", "ORCH_TELEGRAM_TOKEN"),
            (404, "Not Found", "ORCH_TELEGRAM_TOKEN"),
            (403, "Forbidden: bot was kicked from the group chat", "into the chat"),
            (400, "Bad Request: chat not found", "ORCH_TELEGRAM_CHAT"),
            (400, "Bad Request: message thread not found", "ORCH_TELEGRAM_CHAT"),
        ],
    )
    def test_what_will_not_get_better_says_what_to_mend(
        self, fake: FakeTelegram, channel: Open, status: int, description: str, hint: str
    ) -> None:
        fake.faults = [says(status, description)]
        with pytest.raises(Undeliverable, match=description) as refused:
            send(channel())
        assert hint in refused.value.hint and len(fake.sends()) == 1

    @pytest.mark.parametrize(
        ("fault", "taken"),
        [
            (fails_after(502), 1),
            (breaks_off(after=True), 1),
            (breaks_off(after=False), 0),
            (says(500, "x"), 0),
        ],
        ids=["502-after", "broken-after", "broken-before", "500"],
    )
    def test_a_lost_answer_is_repeated_and_a_person_can_tell(
        self, fake: FakeTelegram, channel: Open, clock: FakeClock, fault: Any, taken: int
    ) -> None:
        fake.faults = [fault]
        to = channel()
        with pytest.raises(NotNow) as lost:
            send(to)
        shows_no_token(lost.value)
        assert len(fake.shown) == taken
        clock.advance(lost.value.after_s)
        send(to)
        assert len(fake.shown) == taken + 1 and len(set(fake.shown)) == 1

    def test_a_slow_server_is_given_up(
        self, fake: FakeTelegram, channel: Open, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(telegram, "TIMEOUT_S", 2.0)
        over = threading.Event()

        def waits(handler: Any, do: Any) -> None:
            over.wait(60)
            handler.close_connection = True

        fake.faults = [waits]
        with pytest.raises(NotNow, match="did not answer within") as lost:
            send(channel())
        over.set()
        shows_no_token(lost.value)

    def test_nobody_is_there(self, channel: Open) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(NotNow) as lost:
            send(channel(url=url))
        shows_no_token(lost.value)

    @pytest.mark.parametrize("body", [{}, {"ok": False}, {"ok": "yes"}], ids=range(3))
    def test_an_answer_that_does_not_say_yes_is_none(
        self, fake: FakeTelegram, channel: Open, body: dict[str, Any]
    ) -> None:
        """A page of some gateway, with status 200."""
        fake.faults = [lambda handler, do: (200, body)]
        with pytest.raises(NotNow, match="out of order"):
            send(channel())

    def test_a_refusal_of_another_kind_may_get_better(self, fake: FakeTelegram, channel: Open) -> None:
        fake.faults = [says(409, "Conflict")]
        with pytest.raises(OutsideError, match="Conflict") as refused:
            send(channel())
        assert not isinstance(refused.value, NotNow | Undeliverable)

    @pytest.mark.parametrize("status", [400, 401, 403, 404, 429])
    def test_a_page_of_a_proxy_is_no_refusal_of_telegrams(
        self, fake: FakeTelegram, channel: Open, clock: FakeClock, status: int
    ) -> None:
        fake.faults = [lambda handler, do: (status, {"detail": "page not found"})]
        to = channel()
        with pytest.raises(NotNow) as away:
            send(to)
        clock.advance(away.value.after_s)
        send(to)
        assert len(fake.shown) == 1

    def test_hours_without_an_answer_cost_no_alert_an_attempt(
        self, fake: FakeTelegram, channel: Open, store: Store, tmp_path: Path
    ) -> None:
        """Whoever is called while Telegram is down is called when it is back; it is asked ever more seldom."""
        notifier = TelegramNotifier(
            SystemHttp(), TelegramSettings(fake.url, Secret(TOKEN), CHAT), store.clock, Redactor()
        )
        outbox = postman(store, tmp_path, notifier, Telemetry())
        with store.database.write() as tx:
            for name in ("one", "two"):
                alerts.call(tx, f"production is ill: {name}", name)
        down = [says(500, "x"), breaks_off(after=False), lambda handler, do: (502, {})] * 100
        fake.faults = list(down)
        until = store.clock.utc() + timedelta(hours=3)
        while store.clock.utc() < until:
            outbox.run_once()
            store.clock.advance(outbox.interval_s)
        asked = len(down) - len(fake.faults)
        assert 20 < asked < 60
        fake.faults = []
        for _ in range(3):
            store.clock.advance(300)
            outbox.run_once()
        assert [text.split("\n")[0] for text in fake.shown] == [
            "production is ill: one",
            "production is ill: two",
        ]

    def test_a_server_that_repeats_the_token_is_not_repeated(self, fake: FakeTelegram, channel: Open) -> None:
        fake.faults = [says(400, f"Bad Request: /bot{TOKEN}/sendMessage is odd")]
        with pytest.raises(Undeliverable) as refused:
            send(channel())
        shows_no_token(refused.value)

    def test_a_wrong_token_is_refused(self, fake: FakeTelegram, channel: Open) -> None:
        with pytest.raises(Undeliverable, match="Unauthorized"):
            send(channel(token="123456:another-token-of-a-bot-0001"))
