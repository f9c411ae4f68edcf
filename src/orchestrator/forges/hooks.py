"""The webhook by which a forge tells us of one repository: known by the address it leads to, made where there is none.

Must hold: one of ours is put right, never a second one made beside it, for a server sends an event once for each; the
ones of others are left alone. The secret is given to the server and never asked back: no server shows it.

On failure: ``AuthorityUnreachable`` where the server cannot be asked, ``NotAllowed`` where our user may not manage
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable, OutsideError
from orchestrator.rest.api import Answer, RestApi, good, mapping, refusal

PAGES = 20
_SHUT = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)  # a private repository hides that it is there


class NotAllowed(OutsideError):
    """Our user may not see or change the repository's webhooks."""


@dataclass(frozen=True, slots=True)
class HookStyle:
    """What differs between kinds of forges: which ``kind`` a webhook is of, which ``events`` are asked for, and what a
    page's size is called."""

    kind: str
    events: tuple[str, ...]
    page: tuple[str, int]


GITEA = HookStyle(
    kind="gitea",
    # Names that a version does not know are left out by it without a word.
    events=(
        *(
            "push",
            "delete",
            "pull_request_only",
            "pull_request_sync",
            "pull_request_review",
            "status",
            "workflow_run",
            "workflow_job",
        ),
        *("action_run_success", "action_run_failure", "action_run_recover"),
    ),
    page=("limit", 50),
)
GITHUB = HookStyle(
    kind="web",
    events=(
        *("push", "pull_request", "pull_request_review", "status", "check_run", "workflow_run"),
        *("issues", "issue_comment"),
    ),
    page=("per_page", 100),
)


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook that leads to us."""

    number: int
    active: bool


class Hooks:
    """Those of one repository."""

    def __init__(self, api: RestApi, style: HookStyle) -> None:
        self._api = api
        self._style = style

    def whereabouts(self) -> str:
        """What the server calls the repository now.

        :raises AuthorityUnreachable: it cannot be asked.
        """
        return self._api.whereabouts()

    def leading_to(self, address: str) -> list[Hook]:
        """Those that deliver at an address, the oldest first.

        :raises NotAllowed: our user may not see them.
        :raises AuthorityUnreachable: the server cannot be asked.
        """
        size_name, size = self._style.page
        found: list[Hook] = []
        for page in range(1, PAGES + 1):
            rows = self._rows(self._api.call("GET", "/hooks", query={size_name: size, "page": page}))
            found += [_hook(row) for row in rows if mapping(row.get("config") or {}).get("url") == address]
            if len(rows) < size:
                break
        return sorted(found, key=lambda hook: hook.number)

    def settle(self, address: str, secret: Secret) -> Sequence[Hook]:
        """Have exactly one that is ours deliver at an address: the oldest is put right, or one is made. Returns all
        that lead there; what more than one means is for a person to say.

        :raises NotAllowed: our user may not manage them.
        :raises OutsideError: the server refused.
        """
        wanted: dict[str, object] = {
            "config": {"url": address, "content_type": "json", "secret": secret.reveal()},
            "events": list(self._style.events),
            "active": True,
        }
        known = self.leading_to(address)
        if known:
            answer = self._api.call("PATCH", f"/hooks/{known[0].number}", wanted)
            what = "change its webhook"
        else:
            named = "name" if self._style.kind == "web" else "type"
            answer = self._api.call("POST", "/hooks", {named: self._style.kind, **wanted})
            what = "make a webhook"
        if answer.status in _SHUT:
            raise self._not_allowed()
        if not answer.ok:
            raise refusal(answer, what)
        return [_hook(mapping(answer.body)), *known[1:]]

    def remove(self, address: str) -> Sequence[Hook]:
        """Take away those that deliver at an address; which they were.

        :raises NotAllowed: our user may not manage them.
        :raises OutsideError: the server refused.
        """
        known = self.leading_to(address)
        for hook in known:
            answer = self._api.call("DELETE", f"/hooks/{hook.number}")
            if answer.status == HTTPStatus.FORBIDDEN:
                raise self._not_allowed()
            if not answer.ok and answer.status != HTTPStatus.NOT_FOUND:
                raise refusal(answer, "remove its webhook")
        return known

    def _rows(self, answer: Answer) -> list[Mapping[str, object]]:
        if answer.status in _SHUT:
            raise self._not_allowed()
        body = good(answer, f"{self._api.server}/{self._api.full_name}").body
        if not isinstance(body, list):
            raise AuthorityUnreachable(f"{self._api.server} answered no list of webhooks.")
        return [mapping(row) for row in body]

    def _not_allowed(self) -> NotAllowed:
        return NotAllowed(
            f"Our user may not manage the webhooks of {self._api.full_name}.",
            hint="Make its user an administrator of the repository for this, or add the webhook by hand.",
        )


def _hook(row: Mapping[str, object]) -> Hook:
    number = row.get("id")
    if not isinstance(number, int) or isinstance(number, bool):
        raise AuthorityUnreachable("The forge showed a webhook without a number.")
    return Hook(number, row.get("active") is True)
