"""The HTTP API of one repository at GitHub, as far as we use it.

No answer states a fact about main: git does. On failure: see :mod:`~orchestrator.rest.api`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

from orchestrator.domain.ids import Sha
from orchestrator.forges.forge import PullRequest
from orchestrator.rest.api import MERGE_TIMEOUT_S, Answer, good, mapping, numbered, text
from orchestrator.rest.github import LARGE_PAGE, PAGE, GitHubRest
from orchestrator.rules.trailers import one_line


@dataclass(frozen=True, slots=True)
class RepositoryFacts:
    """What the server says about the repository."""

    full_name: str
    default_branch: str
    merge: bool  # whether it may make a merge commit
    archived: bool
    may_push: bool
    administered: bool  # by our user


@dataclass(frozen=True, slots=True)
class BranchFacts:
    """What the server says about a branch; ``rules`` are those of rulesets, by their names."""

    protected: bool
    rules: frozenset[str]
    required_approvals: int


class GitHubApi(GitHubRest):
    """One repository's API. Safe for many threads."""

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
            merge=told.get("allow_merge_commit") is not False,
            archived=told.get("archived") is True or told.get("disabled") is True,
            may_push=rights.get("push") is not False,
            administered=rights.get("admin") is True,
        )

    def branch(self, name: str) -> BranchFacts:
        """What the server says about a branch now.

        :raises AuthorityUnreachable: it cannot be asked, or there is no such branch.
        """
        told = mapping(self.asked(f"/branches/{quote(name, safe='')}").body)
        rules = self._rules(name)
        asked = [
            mapping(rule.get("parameters") or {}) for rule in rules if rule.get("type") == "pull_request"
        ]
        approvals = [one.get("required_approving_review_count") for one in asked]
        return BranchFacts(
            protected=told.get("protected") is True,
            rules=frozenset(text(rule, "type") for rule in rules),
            required_approvals=max([0, *(count for count in approvals if isinstance(count, int))]),
        )

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

    def pulls_of(self, branch: str, base: str) -> list[PullRequest]:
        """The pull requests whose head is ``branch``, oldest first.

        :raises AuthorityUnreachable: they cannot be asked for.
        """
        owner = self.full_name.partition("/")[0]
        found = self._list("/pulls", {"head": f"{owner}:{branch}", "state": "all"}, base)
        return [pull for pull in found if pull.branch == branch]

    def opened(self, base: str) -> list[PullRequest]:
        """All that are open, oldest first.

        :raises AuthorityUnreachable: they cannot be asked for.
        """
        return self._list("/pulls", {"state": "open"}, base)

    # -- acts --------------------------------------------------------------------------------------------------

    def open(self, branch: str, base: str, title: str, body: str) -> Answer:
        """Ask for a pull request."""
        return self.call("POST", "/pulls", {"head": branch, "base": base, "title": title, "body": body})

    def close(self, number: int) -> Answer:
        """Ask for one to be closed."""
        return self.call("PATCH", f"/pulls/{number}", {"state": "closed"})

    def merge(self, number: int, head: Sha, message: str) -> Answer:
        """Ask for the merge of exactly this head, by a commit of the server's own."""
        title, _, rest = message.strip().partition("\n")
        asked = {
            "merge_method": "merge",
            "sha": head,
            "commit_title": title,
            "commit_message": rest.strip(),
        }
        return self.call("PUT", f"/pulls/{number}/merge", asked, timeout_s=MERGE_TIMEOUT_S)

    def read(self, body: object) -> PullRequest:
        """The pull request that an answer shows.

        :raises AuthorityUnreachable: it shows none.
        """
        return self._shown(mapping(body))

    # -- private steps -----------------------------------------------------------------------------------------

    def _list(self, path: str, query: Mapping[str, object], base: str) -> list[PullRequest]:
        """What is on all pages, oldest first: what is added meanwhile comes last."""
        order = {"base": base, "sort": "created", "direction": "asc"}
        shown = [
            self._shown(pull)
            for pull in self.rows(path, {**query, **order}, size=LARGE_PAGE)
            if _is_against(pull, base)
        ]
        found = {pull.number: pull for pull in shown}
        return [found[number] for number in sorted(found)]

    def _rules(self, branch: str) -> list[Mapping[str, object]]:
        answer = self.call("GET", f"/rules/branches/{quote(branch, safe='')}", query={"per_page": PAGE})
        if answer.status == HTTPStatus.NOT_FOUND:
            return []  # an Enterprise Server that knows no rulesets yet
        body = good(answer, f"{self.server}/{self.full_name}").body
        return [mapping(rule) for rule in body] if isinstance(body, list) else []

    def _shown(self, pull: Mapping[str, object]) -> PullRequest:
        head = mapping(pull.get("head"))
        number, sha = numbered(pull, text(head, "sha"), self.server)
        # A list does not say `merged`.
        merged = pull.get("merged") is True or isinstance(pull.get("merged_at"), str)
        state = "merged" if merged else text(pull, "state")
        url = f"{self.server}/{self.full_name}/pull/{number}"
        return PullRequest(number, text(head, "ref"), sha, state, one_line(text(pull, "title")), url)


def _is_against(pull: Mapping[str, object], branch: str) -> bool:
    """Whether a pull request would bring a branch of the repository itself, not of a fork, into this one."""
    head, base = mapping(pull.get("head")), mapping(pull.get("base"))
    if base.get("ref") != branch or head.get("repo") is None:  # its fork is gone
        return False
    return mapping(head["repo"]).get("id") == mapping(base.get("repo")).get("id")
