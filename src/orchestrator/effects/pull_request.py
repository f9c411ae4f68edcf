"""The effect ``open_pr``: exactly one open pull request per task."""

from collections.abc import Mapping

from orchestrator.domain.effect import Applied, EffectName, Intent, NotApplied, Probe, Unknown
from orchestrator.domain.errors import OutsideError
from orchestrator.effects import judged
from orchestrator.forges.forge import Forge, PullRequest
from orchestrator.places import Places


class OpenPrEffect:
    """Opens the task's pull request or adopts the one that is there; extras are closed."""

    name = EffectName.OPEN_PR

    def __init__(self, places: Places) -> None:
        self._places = places

    def probe(self, intent: Intent) -> Probe:
        """Open pull requests of the branch; the oldest is the task's."""
        try:
            found = _open(self._forge(intent), judged.text(intent, "branch"))
        except OutsideError as error:
            return Unknown(str(error))
        if not found:
            return NotApplied({"open": 0})
        return Applied({"number": found[0].number, "url": found[0].url})

    def act(self, intent: Intent) -> None:
        """Open it, then close what a late call of an earlier owner may have opened beside it."""
        forge, branch = self._forge(intent), judged.text(intent, "branch")
        if not _open(forge, branch):
            forge.open_pr(branch, judged.text(intent, "title"), judged.text(intent, "body"))
        for extra in _open(forge, branch)[1:]:
            forge.close_pr(extra.number)

    def said(self, intent: Intent) -> Mapping[str, object] | None:
        """Its number is the forge's to tell."""
        return None

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        """Nothing turns it."""
        return None

    def revoke(self, intent: Intent) -> None:
        """Close what is open. A call still on its way may open one; the cleaner closes it after a cancel."""
        forge = self._forge(intent)
        for opened in _open(forge, judged.text(intent, "branch")):
            forge.close_pr(opened.number)

    def _forge(self, intent: Intent) -> Forge:
        return self._places.of(judged.text(intent, "repo")).forge


def _open(forge: Forge, branch: str) -> list[PullRequest]:
    return [found for found in forge.pull_requests(branch) if found.state == "open"]
