"""Alerts to a chat of Telegram, through the Bot API.

What must hold: the token, which is part of every address, is in no error, log or stored text; a chat is sent to no
faster than Telegram asks for, and not at all while it said "later"; whatever markup is refused is sent once more
without it. A lost answer may mean that the message has arrived: it is repeated, and bears the same mark.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from orchestrator.config import Secret
from orchestrator.domain.errors import OutsideError
from orchestrator.notifications.notifier import NotNow, Undeliverable
from orchestrator.notifications.telegram_text import Shown, shown
from orchestrator.observability.redactor import Redactor
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.http import Http, HttpFailed

log = structlog.get_logger(__name__)

NAME = "telegram"
TIMEOUT_S = 10.0
PERSON_SPACING_S = 1.0  # about one message a second to one chat
GROUP_SPACING_S = 3.0  # twenty a minute to a group or channel
UNSAID_PAUSE_S = 30.0  # where "later" comes without a number
MAX_PAUSE_S = 24 * 3600.0
AWAY_S, AWAY_AT_MOST_S = 5.0, 300.0  # until it is asked again after the first fault, and after many
_REASON_LIMIT = 300

Chat = int | str


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """Whose bot speaks, and where. ``topic`` is one of a forum group."""

    url: str
    token: Secret
    chat: Chat
    topic: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the Bot API said."""

    status: int
    ok: bool  # it did what was asked
    result: Any
    description: str
    parameters: Mapping[str, Any]
    telegrams_own: bool  # and no page of a proxy, or a server that is out of order


class BotApi:
    """Calls methods of one bot."""

    def __init__(self, http: Http, settings: TelegramSettings) -> None:
        self._http = http
        self._base = f"{settings.url}/bot{settings.token.reveal()}"
        self._redactor = Redactor([settings.token])

    def call(self, method: str, **fields: object) -> Answer:
        """Call a method; any answer is one.

        :raises OutsideError: no answer came; what was asked may have been done all the same.
        """
        body = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
        headers = {"content-type": "application/json"}
        failed = ""
        try:
            answer = self._http.request(
                "POST", f"{self._base}/{method}", headers=headers, body=body, timeout_s=TIMEOUT_S
            )
        except HttpFailed as error:
            failed = self._redactor.text(error.message)
        if failed:  # raised out here: what the other error holds, and what caused it, shows the token
            raise OutsideError(f"Telegram: {failed}")
        said = _object(answer.body)
        description = self._redactor.text(str(said.get("description") or f"status {answer.status}"))
        parameters = said.get("parameters")
        return Answer(
            answer.status,
            answer.status == 200 and said.get("ok") is True,
            said.get("result"),
            description[:_REASON_LIMIT],
            parameters if isinstance(parameters, dict) else {},
            said.get("ok") is True if answer.status == 200 else answer.status < 500 and "error_code" in said,
        )


class TelegramNotifier:
    """Implements ``notifications.notifier.Notifier``. Used by one thread."""

    name = NAME

    def __init__(self, http: Http, settings: TelegramSettings, clock: Clock, redactor: Redactor) -> None:
        self._api = BotApi(http, settings)
        self._chat = settings.chat
        self._topic = settings.topic
        self._clock = clock
        self._redactor = redactor
        self._closed_until = 0.0  # by the clock's boottime
        self._faults = 0  # in a row

    def send(self, text: str, *, work_item: str | None, url: str | None, message_id: str) -> None:
        """Send; see :class:`~orchestrator.notifications.notifier.Notifier`."""
        self.send_telegram(
            shown(self._redactor.text(text), work_item=work_item, url=url, message_id=message_id)
        )

    def send_telegram(self, message: Shown) -> None:
        """Send a message, without its markup where that is refused.

        :raises NotNow: the chat takes nothing yet, or nobody answers for Telegram: whether it has arrived is not known
            then.
        :raises Undeliverable: the token, the chat or the message is not taken.
        :raises OutsideError: it is refused in another way.
        """
        wait_s = self._closed_until - self._clock.boottime()
        if wait_s > 0:
            raise NotNow("Telegram: it is too early for the next message.", after_s=wait_s)
        answer = self._post(message.html, "HTML")
        if answer.status == 400 and isinstance(moved := answer.parameters.get("migrate_to_chat_id"), int):
            log.warning("telegram chat has moved", hint=f"set ORCH_TELEGRAM_CHAT to {moved}")
            self._chat = moved
            answer = self._post(message.html, "HTML")
        if answer.status == 400 and _about_the_text(answer.description):
            log.warning("telegram refused the markup", reason=answer.description)
            answer = self._post(message.plain, None)
        if not answer.ok:
            raise self._failure(answer)

    def _post(self, text: str, mode: str | None) -> Answer:
        group = isinstance(self._chat, str) or self._chat < 0
        self._close_for(GROUP_SPACING_S if group else PERSON_SPACING_S)
        try:
            answer = self._api.call(
                "sendMessage",
                chat_id=self._chat,
                message_thread_id=self._topic,
                text=text,
                parse_mode=mode,
                link_preview_options={"is_disabled": True},
            )
        except OutsideError as error:
            raise self._away(error.message) from error
        if not answer.telegrams_own:
            raise self._away(f"Telegram is out of order: {answer.description}.")
        self._faults = 0
        return answer

    def _away(self, why: str) -> NotNow:
        """Nobody answers for Telegram: it is asked ever more seldom, and no message loses an attempt by it."""
        self._faults += 1
        self._close_for(min(AWAY_S * 2 ** min(self._faults - 1, 10), AWAY_AT_MOST_S))
        after_s = self._closed_until - self._clock.boottime()
        log.warning("telegram is away", reason=why, again_after_s=round(after_s))
        return NotNow(why, after_s=after_s)

    def _failure(self, answer: Answer) -> OutsideError:
        why = f"Telegram refused the message: {answer.description}."
        if answer.status == 429:
            pause = answer.parameters.get("retry_after")
            if not isinstance(pause, int) or pause <= 0:
                pause = UNSAID_PAUSE_S
            self._close_for(min(pause, MAX_PAUSE_S))
            return NotNow(why, after_s=self._closed_until - self._clock.boottime())
        if answer.status in (401, 404):
            return Undeliverable(why, hint="The token is wrong or revoked: correct ORCH_TELEGRAM_TOKEN.")
        if answer.status == 403:
            return Undeliverable(why, hint="Let the bot into the chat, or press Start in it.")
        if answer.status == 400:
            return Undeliverable(why, hint="Correct ORCH_TELEGRAM_CHAT; `orch doctor` looks it up.")
        return OutsideError(why)

    def _close_for(self, seconds: float) -> None:
        self._closed_until = self._clock.boottime() + seconds


def _about_the_text(description: str) -> bool:
    """Whether other words for the same might be taken. The texts are not part of the API: matched loosely."""
    said = description.lower()
    return any(word in said for word in ("parse", "entit", "too long", "tag", "text is empty"))


def _object(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
