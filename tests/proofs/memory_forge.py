"""A forge in memory that refuses exactly what the local forge refuses; see the tests that both have to pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.domain.errors import AuthorityUnreachable, InstallationChanged, OutsideError
from orchestrator.domain.ids import RepoName, Sha, TaskId
from orchestrator.domain.installation import InstallationMark, SeenCandidate
from orchestrator.domain.task import Candidate, Landed
from orchestrator.forges.forge import PullRequest, PushCall
from orchestrator.forges.local_fence import REVOKED, Fence, fence_of
from orchestrator.rules.trailers import NONCE, trailers
from tests.proofs.memory_git import Objects
from tests.proofs.wire import DirectWire, Wire


class Refused(OutsideError):
    """A reference is not where it was expected."""


@dataclass
class ForgeState:
    """What the forge holds; shared by everybody who talks to it."""

    objects: Objects
    heads: dict[str, Sha] = field(default_factory=dict)
    fences: dict[TaskId, Fence] = field(default_factory=dict)
    pushes_given_up: dict[TaskId, int] = field(default_factory=dict)
    kept: dict[tuple[TaskId, int], Sha] = field(default_factory=dict)
    pulls: list[PullRequest] = field(default_factory=list)
    merges: list[tuple[Sha | None, Sha]] = field(default_factory=list)  # main before, and the M it moved to
    unreachable: bool = False
    mark: InstallationMark | None = None


class MemoryForge:
    """One actor's connection to the forge; see :class:`~orchestrator.forges.forge.Forge`."""

    def __init__(self, repo: RepoName, state: ForgeState, wire: Wire | None = None) -> None:
        self.repo = repo
        self.default_branch = "main"
        self.state = state
        self._wire = wire or DirectWire()

    def fetch_url(self) -> str:
        return "/nowhere/forge.git"

    # -- facts -------------------------------------------------------------------------------------------------

    def tip(self, branch: str) -> Sha | None:
        return self._wire.ask("forge.tip", lambda: self._heads().get(branch))

    def pull_request(self, number: int) -> PullRequest | None:
        return self._wire.ask(
            "forge.pull_request",
            lambda: next((self._shown(one) for one in self._reachable().pulls if one.number == number), None),
        )

    def pull_requests(self, branch: str) -> Sequence[PullRequest]:
        return self._wire.ask(
            "forge.pull_requests",
            lambda: [self._shown(pull) for pull in self._reachable().pulls if pull.branch == branch],
        )

    def prepared(self, candidate: Candidate) -> bool:
        def look() -> bool:
            state = self._reachable()
            fence = state.fences.get(candidate.task_id)
            kept = state.kept.get((candidate.task_id, candidate.round))
            return kept == candidate.sha and fence == fence_of(candidate)

        return self._wire.ask("forge.prepared", look)

    def landed(self, candidates: Sequence[Candidate]) -> Landed | None:
        def look() -> Landed | None:
            main = self._heads().get(self.default_branch)
            if main is None:
                raise AuthorityUnreachable("There is no branch main.")
            found = (landing(self.state.objects, main, one) for one in reversed(candidates))
            return next((one for one in found if one is not None), None)

        return self._wire.ask("forge.landed", look)

    def contains(self, descendant: Sha, ancestor: Sha) -> bool:
        return self._wire.ask("forge.contains", lambda: self._contains(descendant, ancestor))

    def installation(self) -> InstallationMark | None:
        return self._wire.ask("forge.installation", lambda: self._reachable().mark)

    def merged_since(self, known: Sequence[Sha]) -> Sequence[SeenCandidate]:
        """Nobody restores a database in this world."""
        return []

    def candidates(self) -> Sequence[SeenCandidate]:
        return []

    def highest_fence(self, tasks: Sequence[TaskId] | None = None) -> int:
        return 0

    # -- acts --------------------------------------------------------------------------------------------------

    def claim_installation(self, held: InstallationMark | None, mark: InstallationMark) -> None:
        def call() -> None:
            if self._reachable().mark != held:
                raise InstallationChanged("Another installation has claimed the repository.")
            self.state.mark = mark

        self._wire.act("forge.claim_installation", call)

    def push(
        self, source: Path, sha: Sha, branch: str, expected: Sha | None, *, call: PushCall | None = None
    ) -> None:
        if branch == self.default_branch:
            raise OutsideError(f"{branch} is moved by merging alone.")

        def move() -> None:
            given_up = self._reachable().pushes_given_up
            if (
                call is not None
                and self._heads().get(branch) != sha
                and given_up.get(call.task_id, 0) >= call.sequence
            ):
                raise Refused(f"Push {call.sequence} of task {call.task_id} was given up.")
            self._move(branch, expected, sha)

        self._wire.act("forge.push", move)

    def revoke_push(self, call: PushCall, token: str, *, held: InstallationMark | None = None) -> None:
        def revoke() -> None:
            self._same_installation(held)
            given_up = self._reachable().pushes_given_up
            given_up[call.task_id] = max(call.sequence, given_up.get(call.task_id, 0))

        self._wire.act("forge.revoke_push", revoke)

    def delete_branch(self, branch: str, expected: Sha) -> None:
        if branch == self.default_branch:
            raise OutsideError(f"{branch} is never removed.")

        def call() -> None:
            if branch in self._heads():
                self._move(branch, expected, None)

        self._wire.act("forge.delete_branch", call)

    def open_pr(self, branch: str, title: str, body: str) -> PullRequest:
        def call() -> PullRequest:
            state = self._reachable()
            head = state.heads.get(branch)
            if head is None:
                raise OutsideError(f"There is no branch {branch} to open a pull request for.")
            already = [pull for pull in state.pulls if pull.branch == branch and pull.state == "open"]
            if already:
                return self._shown(already[0])
            number = len(state.pulls) + 1
            state.pulls.append(PullRequest(number, branch, head, "open", title, f"memory:{number}"))
            return self._shown(state.pulls[-1])

        return self._wire.act("forge.open_pr", call)

    def close_pr(self, number: int) -> None:
        def call() -> None:
            pulls = self._reachable().pulls
            if not 1 <= number <= len(pulls):
                raise OutsideError(f"There is no pull request {number}.")
            pulls[number - 1] = replace(pulls[number - 1], state="closed")

        self._wire.act("forge.close_pr", call)

    def prepare_merge(
        self, candidate: Candidate, source: Path, branch: str, *, held: InstallationMark | None = None
    ) -> None:
        self._wire.act("forge.prepare_merge", lambda: self._prepare(candidate, held))

    def merge(
        self, candidate: Candidate, pr_number: int | None, *, held: InstallationMark | None = None
    ) -> None:
        self._wire.act("forge.merge", lambda: self._merge(candidate, held))

    def revoke_merge(self, candidate: Candidate, token: str, *, held: InstallationMark | None = None) -> None:
        def call() -> None:
            self._same_installation(held)
            fence = self._reachable().fences.get(candidate.task_id)
            if fence is None or not fence.excludes(candidate):
                self.state.fences[candidate.task_id] = Fence(REVOKED, candidate.sequence, token)

        self._wire.act("forge.revoke_merge", call)

    # -- what the authority itself does ------------------------------------------------------------------------

    def _prepare(self, candidate: Candidate, held: InstallationMark | None) -> None:
        state = self._reachable()
        self._same_installation(held)
        self._verify(candidate)
        key = candidate.task_id, candidate.round
        if state.kept.get(key) not in (None, candidate.sha):
            raise OutsideError(f"Round {candidate.round} already has another candidate.")
        fence = state.fences.get(candidate.task_id)
        if fence is None or not fence.prepared(candidate):
            state.fences[candidate.task_id] = fence_of(candidate)
        state.kept[key] = candidate.sha

    def _merge(self, candidate: Candidate, held: InstallationMark | None) -> None:
        state = self._reachable()
        self._same_installation(held)
        self._verify(candidate)
        if state.fences.get(candidate.task_id) != fence_of(candidate):
            raise Refused("The fence does not stand at this candidate.")
        before = state.heads.get(self.default_branch)
        self._move(self.default_branch, candidate.base_sha, candidate.sha)
        state.merges.append((before, candidate.sha))

    def _move(self, branch: str, expected: Sha | None, sha: Sha | None) -> None:
        heads = self._heads()
        if sha is not None and heads.get(branch) == sha and branch != self.default_branch:
            return
        if heads.get(branch) != expected:
            raise Refused(f"{branch} is at {heads.get(branch)}, not at {expected}.")
        if sha is None:
            del heads[branch]
        else:
            self.state.objects.get(sha)
            heads[branch] = sha
        self.state.pulls[:] = [
            replace(pull, head_sha=sha) if pull.branch == branch and pull.state == "open" and sha else pull
            for pull in self.state.pulls
        ]

    def _same_installation(self, held: InstallationMark | None) -> None:
        if held is not None and self._reachable().mark != held:
            raise InstallationChanged("Another installation has claimed the repository.")

    def _verify(self, candidate: Candidate) -> None:
        if self.state.objects.get(candidate.sha).parents != (candidate.base_sha, candidate.head_sha):
            raise OutsideError(f"{candidate.sha} is not the merge of its head into its base.")

    def _shown(self, pull: PullRequest) -> PullRequest:
        main = self.state.heads.get(self.default_branch)
        if main is not None and pull.state != "closed" and self._contains(main, pull.head_sha):
            return replace(pull, state="merged")
        return pull

    def _contains(self, descendant: Sha, ancestor: Sha) -> bool:
        return ancestor in self._reachable().objects.ancestors(descendant)

    def _heads(self) -> dict[str, Sha]:
        return self._reachable().heads

    def _reachable(self) -> ForgeState:
        if self.state.unreachable:
            raise AuthorityUnreachable("The forge does not answer.")
        return self.state


def landing(objects: Objects, main: Sha, candidate: Candidate) -> Landed | None:
    """The commit of main's line that brought a candidate there: itself, by its nonce, or as an ancestor."""
    behind = objects.ancestors(candidate.base_sha) if candidate.base_sha in objects.commits else frozenset()
    line = [commit for commit in reversed(objects.first_parents(main)) if commit.sha not in behind]
    told = [c for c in line if c.sha == candidate.sha or trailers(c.message).get(NONCE) == candidate.nonce]
    brought = [commit for commit in line if candidate.sha in objects.ancestors(commit.sha)]
    return next((Landed(candidate, commit.sha, commit.tree) for commit in told or brought), None)
