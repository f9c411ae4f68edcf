"""The effect ``merge_pr``: main moves to the candidate M, once per task. The point of no return (DESIGN §3, §6)."""

from collections.abc import Callable, Mapping, Sequence

from orchestrator.domain.effect import Applied, EffectName, Intent, NotApplied, Probe, Unknown
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import TaskId
from orchestrator.domain.task import Candidate
from orchestrator.effects import judged
from orchestrator.effects.marks import Marks, under_mark
from orchestrator.places import Places


class MergeEffect:
    """Fast-forwards main to M from M's own first parent, while M's fence stands."""

    name = EffectName.MERGE_PR

    def __init__(
        self, places: Places, candidates: Callable[[TaskId], Sequence[Candidate]], marks: Marks
    ) -> None:
        """``candidates`` names every candidate a task ever had: any of them may be what landed (H13)."""
        self._places = places
        self._candidates = candidates
        self._marks = marks

    def probe(self, intent: Intent) -> Probe:
        """Look on main for any candidate the task ever had."""
        try:
            forge = self._places.of(judged.text(intent, "repo")).forge
            landed = forge.landed(self._candidates(intent.task_id))
            tip = forge.tip(forge.default_branch)
        except OutsideError as error:
            return Unknown(str(error))
        if landed is None:
            return NotApplied({"main": tip})
        merged = landed.candidate
        fact = {"merged": merged.sha, "round": merged.round, "commit": landed.sha, "tree": landed.tree}
        return Applied({**fact, "main": tip})

    def act(self, intent: Intent) -> None:
        """Merge, carrying M, its first parent, its fence and our mark."""
        repo = judged.text(intent, "repo")
        number = _pull_request(intent)
        with under_mark(self._marks, repo) as held:
            self._places.of(repo).forge.merge(judged.candidate(intent), number, held=held)

    def said(self, intent: Intent) -> Mapping[str, object] | None:
        """M itself: a merge is a fast-forward to it."""
        candidate = judged.candidate(intent)
        return {"merged": candidate.sha, "tree": candidate.tree, "round": candidate.round}

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        """Main has left M's first parent, the branch its judged head, or a person has closed the pull request over
        which a merge was refused (law 3)."""
        forge = self._places.of(judged.text(intent, "repo")).forge
        candidate = judged.candidate(intent)
        main = forge.tip(forge.default_branch)
        if main != candidate.base_sha:
            return f"main moved to {main} after the candidate was built"
        head = forge.tip(judged.text(intent, "branch"))
        if head not in (candidate.head_sha, candidate.sha):
            return f"the branch moved to {head} after it was gated"
        number = _pull_request(intent)
        if failure is not None and number is not None:
            pull = forge.pull_request(number)
            if pull is not None and pull.state == "closed":
                return f"its pull request {number} was closed"
        return None

    def revoke(self, intent: Intent) -> None:
        """Move the fence: every merge call ever sent for this candidate is refused from now on."""
        repo = judged.text(intent, "repo")
        with under_mark(self._marks, repo) as held:
            forge = self._places.of(repo).forge
            forge.revoke_merge(judged.candidate(intent), f"revoked-{intent.token}", held=held)


def _pull_request(intent: Intent) -> int | None:
    return judged.number(intent, "pr_number") if intent.judged.get("pr_number") else None


def why_not_as_tested(candidate: Candidate, fact: Mapping[str, object]) -> str | None:
    """What is wrong with what main shows of a merge, measured by the candidate that was tested; None where it is that.

    A merge commit of the forge's own is as good as M while its tree is M's; an earlier candidate never is: what was
    tested last is another one (DESIGN §3).
    """
    if fact["merged"] != candidate.sha:
        return (
            f"main has {fact['merged']}, an earlier candidate, and not {candidate.sha}, which was tested last"
        )
    if fact.get("tree", candidate.tree) != candidate.tree:
        return f"the tree that main has since {fact.get('commit')} is not that of {candidate.sha}, which was tested"
    return None
