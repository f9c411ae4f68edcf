"""Checks and reviews at Gitea and Forgejo: commit statuses, which its own Actions write too, and reviews."""

from collections.abc import Mapping, Sequence

from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.domain.ids import Sha
from orchestrator.domain.others import CheckState, ForgeCheck, ForgeReview, Remark, ReviewState
from orchestrator.forges.gitea_api import GiteaApi
from orchestrator.forges.others import REMARKS, login, whole, words
from orchestrator.forges.ourselves import Ourselves
from orchestrator.rest.api import mapping

# As the server itself has it since 1.25; a word that it does not know has passed nothing.
_STATES = {"success": CheckState.PASSED, "skipped": CheckState.PASSED, "pending": CheckState.PENDING}
_OPINIONS = {"APPROVED": ReviewState.APPROVED, "REQUEST_CHANGES": ReviewState.CHANGES}


class GiteaOthers:
    """Implements :class:`~orchestrator.forges.others.Others`. Safe for many threads."""

    def __init__(self, api: GiteaApi) -> None:
        self._api = api
        self._ourselves = Ourselves(api)

    def page(self, number: int) -> str:
        """Where people find a pull request."""
        return f"{self._api.server}/{self._api.full_name}/pulls/{number}"

    def checks(self, sha: Sha) -> Sequence[ForgeCheck]:
        """Every status of the commit."""
        rows = self._api.listed(f"/commits/{sha}/statuses", {"sort": "leastindex"})
        return [self._check(row) for row in rows]

    def findings(self, check: ForgeCheck) -> Sequence[Remark]:
        """None: a status has its words and its link."""
        return ()

    def reviews(self, number: int) -> Sequence[ForgeReview]:
        """People's opinions; only an official one counts: whoever can read may write a review."""
        pull = mapping(self._api.asked(f"/pulls/{number}").body)
        aside = {"", login(pull, "user"), self._ourselves.name()}
        rows = self._api.listed(f"/pulls/{number}/reviews", {})
        return [
            self._review(row)
            for row in rows
            if row.get("state") in _OPINIONS and login(row, "user") not in aside
        ]

    def remarks(self, number: int, review: int) -> Sequence[Remark]:
        """The review's comments on lines."""
        body = self._api.asked(f"/pulls/{number}/reviews/{review}/comments").body
        rows = [mapping(row) for row in body[:REMARKS]] if isinstance(body, list) else []
        return [
            Remark(
                words(row, "body"),
                words(row, "path"),
                whole(row, "position") or whole(row, "original_position"),
            )
            for row in rows
        ]

    def _check(self, row: Mapping[str, object]) -> ForgeCheck:
        order, said = whole(row, "id"), words(row, "status")
        if order is None:
            raise AuthorityUnreachable(f"{self._api.server} showed a status without a number.")
        state = _STATES.get(said, CheckState.FAILED)
        summary, url = words(row, "description"), words(row, "target_url")
        return ForgeCheck(words(row, "context"), "status", order, state, said, summary, url)

    def _review(self, row: Mapping[str, object]) -> ForgeReview:
        number = whole(row, "id")
        if number is None:
            raise AuthorityUnreachable(f"{self._api.server} showed a review without a number.")
        gone = row.get("dismissed") is True
        return ForgeReview(
            number,
            login(row, "user"),
            ReviewState.WITHDRAWN if gone else _OPINIONS[words(row, "state")],
            words(row, "commit_id"),
            row.get("official") is True,
            words(row, "body"),
            words(row, "html_url"),
        )
