"""The HTTP API of one repository at Gitea or Forgejo, as far as we use it.

No answer states a fact about main: git does. On failure: see :mod:`~orchestrator.rest.api`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

import structlog

from orchestrator.config.secret import Secret
from orchestrator.domain.errors import AuthorityUnreachable
from orchestrator.domain.ids import Sha
from orchestrator.forges.forge import PullRequest
from orchestrator.rest.api import (
    MERGE_TIMEOUT_S,
    Answer,
    RestApi,
    TooMuch,
    good,
    mapping,
    numbered,
    text,
)
from orchestrator.rules.trailers import one_line
from orchestrator.runtime.http import Http

log = structlog.get_logger(__name__)

PAGE = 50  # the most that the server gives at once; more is cut without a word
SIZES = (PAGE, 10)  # of pages, the next where one does not fit an answer; in the end each by itself
TOO_LARGE = 20  # so many are passed over in one list, and no more
PAGES = 200
LIST_TRIES = 3
CLOSED_PAGES = 4  # of the closed ones, last changed first: of the older ones nobody asks any more
FAST_FORWARD_SINCE = (1, 22)


@dataclass(frozen=True, slots=True)
class RepositoryFacts:
    """What the server says about the repository."""

    full_name: str
    default_branch: str
    fast_forward: bool  # whether it can merge by fast-forward only
    merge: bool  # whether it may make a merge commit
    archived: bool
    may_push: bool
    administered: bool  # by our user

    @property
    def merges(self) -> bool:
        """Whether it merges in a way that we can use."""
        return self.fast_forward or self.merge


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """What the server says about a branch."""

    protected: bool
    required_approvals: int
    may_merge: bool
    dismisses: bool | None = (
        None  # approvals of an older head; None: the server shows it to administrators alone
    )


class GiteaApi(RestApi):
    """One repository's API. Safe for many threads."""

    token_setting = "ORCH_GITEA_TOKEN"

    def __init__(self, http: Http, server: str, full_name: str, token: Secret) -> None:
        """``server`` is its address, such as ``https://git.example.org``; ``full_name`` is ``owner/name``."""
        super().__init__(http, server, f"{server}/api/v1", full_name, token)

    def headers(self) -> dict[str, str]:
        """What every request says."""
        return {"authorization": f"token {self._token.reveal()}", "accept": "application/json"}

    # -- questions ---------------------------------------------------------------------------------------------

    def repository(self) -> RepositoryFacts:
        """What the server says about the repository now.

        :raises AuthorityUnreachable: it cannot be asked, or there is no such repository for us.
        """
        told = mapping(self.asked("").body)
        rights = mapping(told.get("permissions") or {})
        return RepositoryFacts(
            full_name=text(told, "full_name"),
            default_branch=text(told, "default_branch"),
            fast_forward=told.get("allow_fast_forward_only_merge") is True and self._knows_fast_forward(),
            merge=told.get("allow_merge_commits") is not False,
            archived=told.get("archived") is True,
            may_push=rights.get("push") is not False,
            administered=rights.get("admin") is True,
        )

    def branch(self, name: str) -> BranchFacts:
        """What the server says about a branch now.

        :raises AuthorityUnreachable: it cannot be asked, or there is no such branch.
        """
        told = mapping(self.asked(f"/branches/{quote(name, safe='')}").body)
        approvals = told.get("required_approvals")
        required = approvals if isinstance(approvals, int) else 0
        return BranchFacts(
            protected=told.get("protected") is True,
            required_approvals=required,
            may_merge=told.get("user_can_merge") is not False,
            dismisses=self._dismisses(text(told, "effective_branch_protection_name")) if required else None,
        )

    def _dismisses(self, rule: str) -> bool | None:
        answer = self.call("GET", f"/branch_protections/{quote(rule, safe='')}")
        told = (
            answer.body.get("dismiss_stale_approvals")
            if answer.ok and isinstance(answer.body, dict)
            else None
        )
        return told if isinstance(told, bool) else None

    def pull(self, number: int, base: str) -> PullRequest | None:
        """One pull request against ``base``, None where there is none: a person may have pointed it elsewhere. Asking
        also has the server find out whether it can be merged.

        :raises AuthorityUnreachable: it cannot be asked.
        """
        answer = self.call("GET", f"/pulls/{number}")
        if answer.status == HTTPStatus.NOT_FOUND:
            self.repository()  # else a lost right would look like a pull request that is gone
            return None
        pull = mapping(good(answer, self.full_name).body)
        return self._shown(pull) if _is_against(pull, base) else None

    def pulls(self, base: str) -> dict[int, PullRequest]:
        """Every open pull request of the repository's own branches against ``base``, and the closed ones that were
        changed last.

        :raises AuthorityUnreachable: they cannot be asked for.
        """
        found = self.listed("/pulls", {"state": "open", "sort": "oldest"})
        # Afterwards: one that is closed meanwhile must not be in neither.
        found += self.listed("/pulls", {"state": "closed", "sort": "recentupdate"}, most=CLOSED_PAGES)
        shown = [self._shown(pull) for pull in found if _is_against(pull, base)]
        return {pull.number: pull for pull in shown}

    def pulls_of(self, branch: str, base: str) -> list[PullRequest]:
        """The pull requests whose head is ``branch``, oldest first; of the closed ones those that were changed last."""
        known = self.pulls(base)
        return [known[number] for number in sorted(known) if known[number].branch == branch]

    def opened(self, base: str) -> list[PullRequest]:
        """All that are open."""
        return [pull for pull in self.pulls(base).values() if pull.state == "open"]

    # -- acts --------------------------------------------------------------------------------------------------

    def open(self, branch: str, base: str, title: str, body: str) -> Answer:
        """Ask for a pull request."""
        return self.call("POST", "/pulls", {"head": branch, "base": base, "title": title, "body": body})

    def close(self, number: int) -> Answer:
        """Ask for one to be closed."""
        return self.call("PATCH", f"/pulls/{number}", {"state": "closed"})

    def merge(self, number: int, style: str, head: Sha, message: str) -> Answer:
        """Ask for the merge of exactly this head; ``message`` counts where the server makes a commit of its own."""
        title, _, rest = message.strip().partition("\n")
        asked = {"Do": style, "head_commit_id": head}
        if style == "merge":
            asked |= {"MergeTitleField": title, "MergeMessageField": rest.strip()}
        return self.call("POST", f"/pulls/{number}/merge", asked, timeout_s=MERGE_TIMEOUT_S)

    def read(self, body: object) -> PullRequest:
        """The pull request that an answer shows.

        :raises AuthorityUnreachable: it shows none.
        """
        return self._shown(mapping(body))

    def listed(
        self, path: str, query: Mapping[str, object], *, most: int = PAGES
    ) -> list[Mapping[str, object]]:
        """What is on all pages, or on the first ``most``. Where the list changes in between, pages overlap or leave
        something out: it is read anew. Where a page is too large, so many texts of strangers are on it, less is asked
        for at once; what is too large by itself is none of ours and is passed over.

        :raises AuthorityUnreachable: it cannot be read, or has no end.
        """
        for size in SIZES:
            try:
                return self._listed(path, query, size, most * PAGE // size)
            except TooMuch as error:
                log.warning("a page is too large to be read", path=path, size=size, reason=error.message)
        return self._listed(path, query, 1, most * PAGE)

    # -- private steps -----------------------------------------------------------------------------------------

    def _listed(
        self, path: str, query: Mapping[str, object], size: int, most: int
    ) -> list[Mapping[str, object]]:
        for _ in range(LIST_TRIES):
            found, totals, too_large = list[Mapping[str, object]](), set[int | None](), 0
            for page in range(1, most + 1):
                try:
                    answer = self.asked(path, {**query, "limit": size, "page": page})
                except TooMuch as error:
                    too_large += 1
                    if size > 1 or too_large > TOO_LARGE:
                        raise
                    log.warning("passed over: too large", path=path, page=page, reason=error.message)
                    continue
                if not isinstance(answer.body, list):
                    raise AuthorityUnreachable(f"{self.server} answered no list for {path}.")
                found += map(mapping, answer.body)
                totals.add(answer.total)
                # How much a page holds is the server's to say, whatever we ask for.
                if not answer.body or (answer.total is not None and len(found) >= answer.total):
                    break
            else:
                if most * size >= PAGES * PAGE:
                    raise AuthorityUnreachable(
                        f"{self.full_name}: there are too many pages to read at {path}."
                    )
            if len(totals) == 1:
                return found
        raise AuthorityUnreachable(f"{self.full_name}: {path} changes faster than it can be read.")

    def _knows_fast_forward(self) -> bool:
        told = mapping(good(self.ask("GET", "/version"), self.server).body)
        return released(text(told, "version")) >= FAST_FORWARD_SINCE

    def _shown(self, pull: Mapping[str, object]) -> PullRequest:
        head = mapping(pull.get("head"))
        branch = text(head, "ref")
        if branch.startswith("refs/pull/"):  # the branch is gone; its name is kept
            branch = text(head, "label")
        number, sha = numbered(pull, text(head, "sha"), self.server)
        state = "merged" if pull.get("merged") is True else text(pull, "state")
        # The address is put together here: the server's own may be one that only it can reach.
        url = f"{self.server}/{self.full_name}/pulls/{number}"
        return PullRequest(number, branch, sha, state, one_line(text(pull, "title")), url)


def released(version: str) -> tuple[int, ...]:
    """Which Gitea a version string stands for: Forgejo names it behind its own, as in ``12.0.0+gitea-1.22.0``."""
    _, _, gitea = version.rpartition("gitea-")
    return tuple(int(part) for part in re.findall(r"\d{1,9}", gitea)[:2])


def _is_against(pull: Mapping[str, object], branch: str) -> bool:
    """Whether a pull request would bring a branch of the repository itself, not of a fork, into this one."""
    head, base = mapping(pull.get("head")), mapping(pull.get("base"))
    return head.get("repo_id") == base.get("repo_id") and base.get("ref") == branch
