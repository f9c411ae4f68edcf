"""What `orch doctor` looks at outside: whether alerts reach people. Nothing is sent."""

from collections.abc import Iterator

from orchestrator.cli.findings import Finding, Level
from orchestrator.config import Settings
from orchestrator.domain.errors import OutsideError
from orchestrator.notifications.telegram import BotApi, TelegramSettings
from orchestrator.runtime.http import Http

ABOUT = "telegram"


def channels(settings: Settings, http: Http) -> Iterator[Finding]:
    """Whether the bot is known and sees its chat; nothing where none is configured."""
    chat = settings.telegram_chat
    if not settings.telegram_token or chat is None:
        return
    api = BotApi(http, TelegramSettings(settings.telegram_url, settings.telegram_token, chat))
    try:
        bot = api.call("getMe")
        if not bot.ok:
            hint = "Correct ORCH_TELEGRAM_TOKEN; BotFather shows it, and makes a new one."
            yield Finding(Level.WARNING, ABOUT, f"The bot is not known: {bot.description}.", hint)
            return
        place = api.call("getChat", chat_id=chat)
    except OutsideError as error:
        yield Finding(
            Level.WARNING, ABOUT, error.message, "Alerts wait, and are tried again for about an hour."
        )
        return
    name = f"@{_name(bot.result, 'username')}"
    if place.ok:
        yield Finding(
            Level.OK,
            ABOUT,
            f"{name} sends alerts to {_name(place.result, 'title', 'username', 'first_name')}",
        )
    elif (moved := place.parameters.get("migrate_to_chat_id")) is not None:
        yield Finding(
            Level.WARNING, ABOUT, "The group has become another chat.", f"Set ORCH_TELEGRAM_CHAT to {moved}."
        )
    else:
        text = f"{name} does not see the chat: {place.description}."
        hint = (
            "Let the bot into the group, or press Start in the chat with it; then correct ORCH_TELEGRAM_CHAT."
        )
        yield Finding(Level.WARNING, ABOUT, text, hint)


def _name(result: object, *fields: str) -> str:
    """What the other side calls something, fit for a terminal."""
    found = [result.get(field) for field in fields] if isinstance(result, dict) else []
    said = next((name for name in found if isinstance(name, str) and name), "the chat")
    return "".join(char if char.isprintable() else " " for char in said)[:100]
