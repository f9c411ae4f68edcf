"""Alerts to any other service, through the library Apprise; an extra, not installed unasked.

What must hold: an address, which holds keys, is in no error or log of ours. Where one of several services has not taken
an alert, all get it again: it bears the same mark.
"""

import logging
from collections.abc import Sequence

from orchestrator.config import Secret
from orchestrator.domain.errors import ConfigError, OutsideError
from orchestrator.notifications.telegram_text import shown
from orchestrator.observability.redactor import Redactor

NAME = "apprise"
TALKERS = ("apprise", "urllib3")  # their logs show addresses; what matters we say ourselves


class AppriseNotifier:
    """Implements ``notifications.notifier.Notifier``. Used by one thread."""

    name = NAME

    def __init__(self, urls: Sequence[Secret], redactor: Redactor) -> None:
        """``urls`` are addresses of services in the library's form, such as ``ntfys://alerts``.

        :raises ConfigError: the library is not there, or knows no such service.
        """
        try:
            import apprise
        except ImportError as error:
            raise ConfigError(
                "ORCH_APPRISE_URLS is set, and the package apprise is not installed.",
                hint="Install it beside orchestrator (its extra is called apprise), or leave the setting out.",
            ) from error
        self._services = apprise.Apprise()
        self._form = apprise.NotifyFormat.TEXT
        self._redactor = redactor
        for number, url in enumerate(urls, 1):
            if not self._services.add(url.reveal()):
                raise ConfigError(
                    f"Address {number} in ORCH_APPRISE_URLS is of no service that Apprise knows.",
                    hint="Its documentation lists how they are written.",
                )
        for talker in TALKERS:
            logging.getLogger(talker).setLevel(logging.CRITICAL)

    def send(self, text: str, *, work_item: str | None, url: str | None, message_id: str) -> None:
        """Send; see :class:`~orchestrator.notifications.notifier.Notifier`."""
        said = shown(self._redactor.text(text), work_item=work_item, url=url, message_id=message_id)
        if not self._services.notify(body=said.plain, title="", body_format=self._form):
            raise OutsideError("Apprise: not every service of ORCH_APPRISE_URLS has taken the alert.")
