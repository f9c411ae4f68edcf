"""What git says of a push to main that a rule refuses, and of one that has lost a race."""

import pytest

from orchestrator.domain.errors import GitError
from orchestrator.forges.mirror import PushRefused
from orchestrator.forges.remote_git import declined

MAIN = "refs/heads/main"


@pytest.mark.parametrize(
    ("refs", "stderr", "rule"),
    [
        ([f"{MAIN} [remote rejected] (protected branch hook declined)"], "", True),
        ([f"{MAIN} [remote rejected] (push declined due to repository rule violations)"], "", True),
        ([f"{MAIN} [remote rejected] (pre-receive hook declined)"], "", True),
        ([f"{MAIN} [remote rejected] (atomic push failure)"], "remote: error: GH006: Protected", True),
        ([f"{MAIN} [remote rejected] (failed)"], "remote: error: GH013: Repository rule violations", True),
        ([f"{MAIN} [rejected] (stale info)"], "", False),
        ([f"{MAIN} [remote rejected] (cannot lock ref)", "refs/orch/x [rejected] (declined)"], "", False),
        ([f"{MAIN}-2 [remote rejected] (hook declined)"], "", False),
    ],
)
def test_a_rule_is_told_from_a_race(refs: list[str], stderr: str, rule: bool) -> None:
    refused = PushRefused("https://github.com/acme/shop", refs, GitError("git push failed", stderr=stderr))
    assert declined(refused, MAIN) is rule
