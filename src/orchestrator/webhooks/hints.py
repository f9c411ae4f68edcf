"""What every forge's webhooks are: hints that a branch, a check, a review or a pull request may have changed (S-11).

They write no stage and believe nothing: what is told of a task is noted in its story and the task is woken; the engine
reads the truth at the forge through the ordinary door. Our own pushes and merges are known by the ledger's commits,
whatever account they came from.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from orchestrator.db import effects, events, evidence, mail, repositories, tasks
from orchestrator.db.database import Tx
from orchestrator.db.inbox import Delivery
from orchestrator.domain.effect import EffectName
from orchestrator.domain.event import EventType
from orchestrator.domain.ids import RepoName, Sha
from orchestrator.domain.lease import Actor
from orchestrator.domain.task import Signal, Task
from orchestrator.stage_engine.signals import PULL_REQUEST
from orchestrator.webhooks import fields
from orchestrator.webhooks.envelope import Envelope
from orchestrator.webhooks.fields import MalformedDelivery
from orchestrator.webhooks.handler import Handled

HEADS = "refs/heads/"
NONE = "0" * 40  # a commit that is none: the branch is new, or gone
UNFINISHED = frozenset({"pending", "queued", "waiting", "requested", "in_progress", "running"})
UNKNOWN_REPOSITORY = Handled("about no repository of ours")
NOT_OURS = Handled("about no task of ours")
ENDED = Handled("the task has ended")
OUR_OWN = Handled("our own push")
NOTHING = Handled("nothing to do")
STALE = Handled("about a commit that no task shows now")


class ForgeHandler(ABC):
    """Deliveries about branches, checks and pull requests; of others nothing follows. A forge says what it calls them,
    and where it writes the commit that a check is about."""

    source: str
    envelope: Envelope
    pulls: frozenset[str]  # kinds that are about pull requests
    reviews: frozenset[str]  # kinds that tell of a person's review of one

    @abstractmethod
    def is_check(self, kind: str) -> bool:
        """Whether a kind tells of a check."""

    @abstractmethod
    def commit(self, kind: str, payload: object) -> Sha:
        """The commit that a check is about.

        :raises MalformedDelivery: there is none.
        """

    @abstractmethod
    def said(self, kind: str, payload: object) -> tuple[str, str]:
        """A check's name and what it says; one that has not ended says how far it is."""

    def task_of(self, tx: Tx, kind: str, payload: object) -> Task | None:
        """By branch, by number, or by commit, whatever the kind tells."""
        repo = self.repository(tx, payload)
        if repo is None:
            return None
        if kind in ("push", "delete"):
            return tasks.newest_by_branch(tx, repo, _branch(kind, payload))
        if kind in self.pulls or kind in self.reviews:
            return _task_of_pull_request(tx, repo, payload)
        if self.is_check(kind):
            try:
                return tasks.open_at_commit(tx, repo, self.commit(kind, payload))
            except MalformedDelivery:
                return None
        return None

    def read(self, kind: str, payload: object) -> object:
        """See :class:`~orchestrator.webhooks.handler.WebhookHandler`."""
        return None

    def handle(self, tx: Tx, delivery: Delivery, task: Task | None) -> Handled:
        """See :class:`~orchestrator.webhooks.handler.WebhookHandler`."""
        deal = self._deal_with(delivery.kind)
        if deal is None:
            return NOTHING
        repo = self.repository(tx, delivery.payload)
        if repo is None and _shown(delivery.payload) is None:
            raise MalformedDelivery("The delivery names no repository.")
        if repo is None:
            return UNKNOWN_REPOSITORY
        return deal(tx, delivery, task, repo)

    def _deal_with(self, kind: str) -> Callable[[Tx, Delivery, Task | None, RepoName], Handled] | None:
        if kind in ("push", "delete"):
            return self.handle_push
        if kind in self.pulls:
            return self.handle_pr
        if kind in self.reviews:
            return self.handle_review
        return self.handle_ci_status if self.is_check(kind) else None

    def handle_push(self, tx: Tx, delivery: Delivery, task: Task | None, repo: RepoName) -> Handled:
        """A branch was moved or removed: a task's, or the default one that all of them build on."""
        payload, branch = delivery.payload, _branch(delivery.kind, delivery.payload)
        if not branch:
            return NOTHING  # a tag
        after = NONE if delivery.kind == "delete" else fields.sha(payload, "after")
        if task is None and branch == fields.text(payload, "repository", "default_branch"):
            return _default_branch_moved(tx, repo, Sha(after))
        if task is None:
            return NOT_OURS
        if task.stage.terminal:
            return ENDED
        if _ours(tx, task, after):
            return Handled(OUR_OWN.outcome, (task.id,))
        went = "removed" if set(after) == {"0"} else f"moved to {after}"
        return _noted(tx, delivery, task, f"the branch was {went}")

    def handle_ci_status(self, tx: Tx, delivery: Delivery, task: Task | None, repo: RepoName) -> Handled:
        """A check has said something about a commit; it counts for the head or the candidate of this moment only."""
        commit = self.commit(delivery.kind, delivery.payload)
        shows = tasks.open_at_commit(tx, repo, commit)
        if shows is None:
            return STALE
        check, state = self.said(delivery.kind, delivery.payload)
        if state in UNFINISHED:
            return NOTHING
        return _noted(tx, delivery, shows, f"{check} said {state} about {commit}")

    def handle_pr(self, tx: Tx, delivery: Delivery, task: Task | None, repo: RepoName) -> Handled:
        """A pull request was closed, merged, opened again, or got another head. The engine looks at it itself."""
        payload = delivery.payload
        number = fields.number(payload, "pull_request", "number")
        action = fields.text(payload, "action")
        if task is None or _from_a_fork(payload):
            return NOT_OURS
        if task.stage.terminal:
            return ENDED
        if action in ("synchronized", "synchronize", "opened"):
            head = fields.sha(payload, "pull_request", "head", "sha")
            if _ours(tx, task, head):
                return Handled(OUR_OWN.outcome, (task.id,))
            return _noted(tx, delivery, task, f"pull request {number} has the head {head}")
        if action not in ("closed", "reopened", "deleted"):
            return NOTHING
        merged = fields.at(payload, "pull_request", "merged") is True
        what = f"pull request {number} was {'merged' if merged and action == 'closed' else action}"
        return _look_at_pull_request(tx, delivery, task, what)

    def handle_review(self, tx: Tx, delivery: Delivery, task: Task | None, repo: RepoName) -> Handled:
        """Somebody has reviewed a pull request, or taken a review back. What was said is read at the forge."""
        number = fields.number(delivery.payload, "pull_request", "number")
        if task is None or _from_a_fork(delivery.payload):
            return NOT_OURS
        if task.stage.terminal:
            return ENDED
        return _noted(tx, delivery, task, f"pull request {number} was reviewed")

    def repository(self, tx: Tx, payload: object) -> RepoName | None:
        """By any of the addresses under which the forge shows it."""
        shown = _shown(payload)
        if shown is None:
            return None
        told = [fields.text(shown, name) for name in ("full_name", "html_url", "clone_url", "ssh_url")]
        addresses = {form for one in told if one for form in (one, one.removesuffix(".git"))}
        known = repositories.by_address(tx, self.source, sorted(addresses))
        return known.name if known else None


def _default_branch_moved(tx: Tx, repo: RepoName, tip: Sha) -> Handled:
    merged = evidence.task_of_candidate(tx, tip)
    if merged is not None:
        return Handled("our own merge", (merged,))
    waiting = tasks.before_the_merge(tx, repo)
    return Handled(f"the default branch was moved to {tip}", tuple(waiting))


def _ours(tx: Tx, task: Task, sha: str) -> bool:
    """Whether a commit came to the forge by our own hand: the ledger names it."""
    if sha in (task.head_sha, task.base_sha) or sha in evidence.own_commits(tx, task.id):
        return True
    if any(candidate.sha == sha for candidate in evidence.candidates(tx, task.id)):
        return True
    return any(e.name is EffectName.PUSH and e.judged.get("sha") == sha for e in effects.of_task(tx, task.id))


def _noted(tx: Tx, delivery: Delivery, task: Task, what: str) -> Handled:
    """Tell the task's story, and have the engine look."""
    data = {"told_by": delivery.source, "what": what, "person": _person(delivery.payload)}
    events.append(tx, EventType.NOTE, Actor.WEBHOOK, task=task, data=data)
    return Handled(what, (task.id,))


def _look_at_pull_request(tx: Tx, delivery: Delivery, task: Task, what: str) -> Handled:
    """A word that says nothing but "look": it survives a crash, and the engine answers it with what it finds."""
    signal = Signal(PULL_REQUEST, task.stage, task.round, None, _person(delivery.payload), what)
    mail.receive(
        tx, task, signal, source=delivery.source, dedup_key=f"{delivery.source}:word:{delivery.inbox_id}"
    )
    return _noted(tx, delivery, task, what)


def _shown(payload: object) -> Mapping[str, object] | None:
    for found in (fields.at(payload, "repository"), fields.at(payload, "run", "repository")):
        if isinstance(found, dict):
            return found
    return None


def _branch(kind: str, payload: object) -> str:
    """The branch's name, empty where it is none. Only ever compared with the names that we gave ourselves."""
    ref = fields.text(payload, "ref")
    if kind == "delete":
        is_branch = fields.text(payload, "ref_type") == "branch"
        return ref.removeprefix(HEADS) if is_branch else ""
    return ref.removeprefix(HEADS) if ref.startswith(HEADS) else ""


def _task_of_pull_request(tx: Tx, repo: RepoName, payload: object) -> Task | None:
    try:
        number = fields.number(payload, "pull_request", "number")
    except MalformedDelivery:
        return None
    if (by_number := tasks.newest_by_pull_request(tx, repo, number)) is not None:
        return by_number
    # Once the branch is gone its `ref` is the pull request's own; the label keeps its name.
    names = (fields.text(payload, "pull_request", "head", name) for name in ("ref", "label"))
    return next((task for name in names if (task := tasks.newest_by_branch(tx, repo, name))), None)


def _from_a_fork(payload: object) -> bool:
    """Gitea names the repositories by their ids, GitHub shows them; a fork that is gone is none of ours either."""
    head, base = (fields.at(payload, "pull_request", end) for end in ("head", "base"))
    ours = fields.at(base, "repo_id") or fields.at(base, "repo", "id")
    theirs = fields.at(head, "repo_id") or fields.at(head, "repo", "id")
    return isinstance(ours, int) and theirs != ours


def _person(payload: object) -> str:
    return fields.text(payload, "sender", "login") or "somebody at the forge"
