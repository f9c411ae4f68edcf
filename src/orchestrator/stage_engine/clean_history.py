"""Keeps a secret that was committed and taken out again from leaving with the history of the branch.

Nothing is lost: the files stay as they are, the old commits are rescued in our own clone, which nobody else reads.
"""

from orchestrator.domain.ids import Sha
from orchestrator.gates.secret_history import secrets_in_files, secrets_in_history
from orchestrator.stage_engine.situation import Situation

MESSAGE = "{item}: work of round {round}\n\nIn place of commits of which one had held a secret.\n"


def without_secret_history(at: Situation, head: Sha, known: tuple[str, ...]) -> Sha:
    """``head``, or one commit with the same files in place of those that the forge does not have yet.

    A secret that still stands in a file is the gate's business; so is a branch that somebody else has moved.

    :raises OutsideError: git, the forge or the workspace.
    """
    task, clone, forge = at.task, at.place.clone, at.place.forge
    pushed = forge.tip(task.branch or "") or task.base_sha
    if pushed is None or pushed == head or not clone.has(pushed) or not clone.is_ancestor(pushed, head):
        return head
    fork = clone.merge_base(head, clone.tip(clone.default_branch) or pushed) or pushed
    merged_main = not clone.is_ancestor(fork, pushed)
    base = fork if merged_main else pushed
    if secrets_in_files(clone, base, head, known) or not secrets_in_history(clone, base, head, known):
        return head
    message = MESSAGE.format(item=task.work_item, round=task.round)
    parents = [pushed, fork] if merged_main else [pushed]
    clean = clone.commit_tree(clone.tree(head), parents, message)
    clone.keep(task.work_item, clean)  # first: by that a harvest after a crash knows it for ours
    at.place.workspaces.reset_to(task.work_item, clean)
    return clean
