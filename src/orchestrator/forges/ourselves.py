"""Whose token it is: what our own user says of a pull request is nobody's opinion.

On failure: ``AuthorityUnreachable``; what a passing failure has left unsaid is asked for again.
"""

from http import HTTPStatus

from orchestrator.forges.others import words
from orchestrator.rest.api import RestApi, good, mapping

# What a token may not be told here says nothing of what else it may do.
_NOT_FOR_US_TO_KNOW = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


class Ourselves:
    """Our user at one server; asked for once."""

    def __init__(self, api: RestApi) -> None:
        self._api = api
        self._name: str | None = None

    def name(self) -> str:
        """Its name; empty where the token may not tell.

        :raises AuthorityUnreachable: it cannot be asked.
        """
        if self._name is None:
            told = self._api.ask("GET", "/user")
            if told.status in _NOT_FOR_US_TO_KNOW:
                self._name = ""
            else:
                self._name = words(mapping(good(told, f"Our user at {self._api.server}").body), "login")
        return self._name
