"""The effect ``push``: a branch, or the candidate M with its fence, made known to the forge."""

from collections.abc import Mapping

from orchestrator.domain.effect import Applied, EffectName, Intent, NotApplied, Probe, Unknown
from orchestrator.domain.errors import OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.effects import judged
from orchestrator.effects.marks import Marks, under_mark
from orchestrator.forges.forge import PushCall
from orchestrator.places import Places


class PushEffect:
    """Sets a branch with a lease on its old value. The forge's own ref is the fact."""

    name = EffectName.PUSH

    def __init__(self, places: Places, marks: Marks) -> None:
        self._places = places
        self._marks = marks

    def probe(self, intent: Intent) -> Probe:
        """Ask the forge for the ref."""
        try:
            place = self._places.of(judged.text(intent, "repo"))
            if "candidate" in intent.judged:
                candidate = judged.candidate(intent)
                fact: dict[str, object] = {"candidate": candidate.sha}
                return Applied(fact) if place.forge.prepared(candidate) else NotApplied(fact)
            tip = place.forge.tip(judged.text(intent, "branch"))
            return Applied({"tip": tip}) if tip == judged.text(intent, "sha") else NotApplied({"tip": tip})
        except OutsideError as error:
            return Unknown(str(error))

    def act(self, intent: Intent) -> None:
        """Push with a lease on the old value."""
        place = self._places.of(judged.text(intent, "repo"))
        branch = judged.text(intent, "branch")
        if "candidate" in intent.judged:
            with under_mark(self._marks, place.repo) as held:
                place.forge.prepare_merge(judged.candidate(intent), place.clone.path, branch, held=held)
        else:
            expected = judged.optional_text(intent, "expected")
            place.forge.push(
                place.clone.path,
                Sha(judged.text(intent, "sha")),
                branch,
                Sha(expected) if expected else None,
                call=_call(intent),
            )

    def said(self, intent: Intent) -> Mapping[str, object] | None:
        """What was pushed."""
        if "candidate" in intent.judged:
            return {"candidate": judged.candidate(intent).sha}
        return {"tip": judged.text(intent, "sha")}

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        """Somebody else has moved the branch: the lease on its old value will be refused for ever."""
        if "candidate" in intent.judged:
            return None
        branch, wanted = judged.text(intent, "branch"), judged.text(intent, "sha")
        tip = self._places.of(judged.text(intent, "repo")).forge.tip(branch)
        if tip in (wanted, judged.optional_text(intent, "expected")):
            return None
        return f"the branch {branch} was moved to {tip or 'nothing'} by somebody else"

    def revoke(self, intent: Intent) -> None:
        """Fence it: the branch may still have the old value, and a call may still be under way (law 4)."""
        repo, token = judged.text(intent, "repo"), f"revoked-{intent.token}"
        with under_mark(self._marks, repo) as held:
            forge = self._places.of(repo).forge
            if "candidate" in intent.judged:
                forge.revoke_merge(judged.candidate(intent), token, held=held)
            else:
                forge.revoke_push(_call(intent), token, held=held)


def _call(intent: Intent) -> PushCall:
    return PushCall(intent.task_id, intent.sequence)
