"""Checks and reviews at GitHub: commit statuses, check runs, which its Actions write, and reviews."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from urllib.parse import quote

from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.domain.ids import Sha
from orchestrator.domain.others import CheckState, ForgeCheck, ForgeReview, Remark, ReviewState
from orchestrator.forges.github_api import GitHubApi
from orchestrator.forges.others import REMARKS, login, whole, words
from orchestrator.forges.ourselves import Ourselves
from orchestrator.rest.api import good, mapping

STATUS = "status"  # who reports by one
_STATES = {"success": CheckState.PASSED, "pending": CheckState.PENDING}
# What ended counts as the server's own rules have it; what was ended says nothing of the change.
_CONCLUSIONS = {
    **dict.fromkeys(("success", "neutral", "skipped"), CheckState.PASSED),
    **dict.fromkeys(("cancelled", "stale", "action_required", "startup_failure"), CheckState.STOPPED),
}
_OPINIONS = {
    "APPROVED": ReviewState.APPROVED,
    "CHANGES_REQUESTED": ReviewState.CHANGES,
    "DISMISSED": ReviewState.WITHDRAWN,
}
_MAY_APPROVE = frozenset({"admin", "write"})


class GitHubOthers:
    """Implements :class:`~orchestrator.forges.others.Others`. Safe for many threads."""

    def __init__(self, api: GitHubApi) -> None:
        self._api = api
        self._ourselves = Ourselves(api)

    def page(self, number: int) -> str:
        """Where people find a pull request."""
        return f"{self._api.server}/{self._api.full_name}/pull/{number}"

    def checks(self, sha: Sha) -> Sequence[ForgeCheck]:
        """Every status and the newest check runs of the commit."""
        statuses = self._api.rows(f"/commits/{sha}/statuses", {})
        runs = self._api.rows(f"/commits/{sha}/check-runs", {"filter": "latest"}, within="check_runs")
        return [*map(self._status, statuses), *map(self._run, runs)]

    def findings(self, check: ForgeCheck) -> Sequence[Remark]:
        """The annotations of a run."""
        if check.source == STATUS:
            return ()
        body = self._api.asked(f"/check-runs/{check.order}/annotations", {"per_page": REMARKS}).body
        rows = [mapping(row) for row in body[:REMARKS]] if isinstance(body, list) else []
        return [
            Remark(
                " ".join(filter(None, (words(row, "title"), words(row, "message")))),
                words(row, "path"),
                whole(row, "start_line"),
            )
            for row in rows
            if words(row, "annotation_level") != "notice"
        ]

    def reviews(self, number: int) -> Sequence[ForgeReview]:
        """People's opinions; of those who may write to the repository, for on a public one anybody may have one."""
        pull = mapping(self._api.asked(f"/pulls/{number}").body)
        aside = {"", login(pull, "user"), self._ourselves.name()}
        rows = list(self._api.rows(f"/pulls/{number}/reviews", {}))
        told = [row for row in rows if row.get("state") in _OPINIONS and login(row, "user") not in aside]
        people = {login(row, "user") for row in told if not _is_program(row)}
        may = {person for person in people if self._may_approve(person)}
        return [self._review(row, login(row, "user") in may) for row in told]

    def remarks(self, number: int, review: int) -> Sequence[Remark]:
        """The review's comments on lines."""
        body = self._api.asked(f"/pulls/{number}/reviews/{review}/comments", {"per_page": REMARKS}).body
        rows = [mapping(row) for row in body[:REMARKS]] if isinstance(body, list) else []
        return [
            Remark(words(row, "body"), words(row, "path"), whole(row, "line", "original_line"))
            for row in rows
        ]

    def _status(self, row: Mapping[str, object]) -> ForgeCheck:
        said = words(row, "state")
        state = _STATES.get(said, CheckState.FAILED)
        summary, url = words(row, "description"), words(row, "target_url")
        return ForgeCheck(words(row, "context"), STATUS, self._number(row), state, said, summary, url)

    def _run(self, row: Mapping[str, object]) -> ForgeCheck:
        ended = words(row, "conclusion") if row.get("status") == "completed" else ""
        state = _CONCLUSIONS.get(ended, CheckState.FAILED) if ended else CheckState.PENDING
        app, output = row.get("app"), row.get("output")
        by = whole(app, "id") if isinstance(app, dict) else None
        told = [words(output, name) for name in ("title", "summary")] if isinstance(output, dict) else []
        return ForgeCheck(
            words(row, "name"),
            f"app {by}",
            self._number(row),
            state,
            ended or words(row, "status"),
            "\n".join(filter(None, told)),
            words(row, "html_url") or words(row, "details_url"),
        )

    def _review(self, row: Mapping[str, object], counts: bool) -> ForgeReview:
        state, commit = _OPINIONS[words(row, "state")], words(row, "commit_id")
        number, person = self._number(row), login(row, "user")
        return ForgeReview(number, person, state, commit, counts, words(row, "body"), words(row, "html_url"))

    def _number(self, row: Mapping[str, object]) -> int:
        number = whole(row, "id")
        if number is None:
            raise AuthorityUnreachable(f"{self._api.server} showed a check or a review without a number.")
        return number

    def _may_approve(self, person: str) -> bool:
        answer = self._api.call("GET", f"/collaborators/{quote(person, safe='')}/permission")
        if answer.status == HTTPStatus.NOT_FOUND:
            return False
        told = mapping(good(answer, f"What {person} may do in {self._api.full_name}").body)
        return told.get("permission") in _MAY_APPROVE


def _is_program(row: Mapping[str, object]) -> bool:
    user = row.get("user")
    return isinstance(user, dict) and user.get("type") == "Bot"
