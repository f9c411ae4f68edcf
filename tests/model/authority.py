"""What the authorities do with a call, and what they show to a probe.

The forge is git's reference transaction: main moves from M's first parent while the task's fence stands at M. The
environment is the runner's: a start of a generation is claimed once, and the claim is the fact; of an undo it is the
end of its command.
"""

from tests.model.guards import Guards
from tests.model.pipeline import DEPLOY, MERGES, PREPARES, STAGES, STARTS, UNDOES
from tests.model.state import Call, Main, State, Task, commit_of, landed

REVOKES = "revoke"
COMMAND = "command"  # a claimed start's command that has not done its work yet
UNDOING = "undo command"  # the same of an undo
ENVIRONMENT = frozenset({STARTS, UNDOES})
LATE = frozenset({MERGES, STARTS, UNDOES, PREPARES, REVOKES})  # these calls may outlive their time-out


def shows(state: State, task: int, what: str, key: int, guards: Guards) -> bool:
    """What a probe sees: the fact, never an answer."""
    if what == MERGES:
        if guards.probe_every_candidate:
            return landed(state.world.main, task) > 0
        return commit_of(task, key) in state.world.main
    kept = state.tasks[task]
    if what in ENVIRONMENT:
        ended = what == STARTS or not guards.undo_settled_at_its_end or not undoing(state, task)
        return ended and bool(kept.claimed >> key & 1)
    if what == STAGES:
        return bool(kept.staged >> key & 1)
    if what == PREPARES:
        return kept.fence >= 2 * key
    return bool(kept.shown >> key & 1)


def undoing(state: State, task: int) -> bool:
    """Whether the command of an undo is at work."""
    return any((call.what, call.task) == (UNDOING, task) for call in state.calls)


def hopeless(state: State, call: Call, guards: Guards) -> bool:
    """Whether the call can never land any more, so that it need not be carried along."""
    kept = state.tasks[call.task]
    if call.what == MERGES:
        fenced = guards.act_leaves_fence and kept.fence > 2 * call.key
        return fenced or (guards.merge_once and call.carried[1] != state.world.main)
    if call.what == REVOKES:
        return kept.fence > 2 * call.key
    if call.what == PREPARES:
        return kept.fence >= 2 * call.key
    if call.what in (COMMAND, UNDOING):
        return False
    once = guards.claim_once if call.what == STARTS else guards.undo_claim_once
    return once and bool(kept.claimed >> call.key & 1)


def lands(state: State, call: Call, guards: Guards, *, slow: bool = False) -> tuple[State, bool]:
    """The authority meets a call; whether it was accepted. Breaking a law is noted in the state.

    ``slow``: a start or an undo is claimed, but its command has yet to do its work.
    """
    if call.what == MERGES:
        return _merge(state, call, guards)
    if call.what == STARTS:
        return _start(state, call, guards, slow)
    if call.what == UNDOES:
        return _undo(state, call, guards, slow)
    if call.what == COMMAND:
        return _run(state, call), True
    if call.what == UNDOING:
        return _run_undo(state, call), True
    kept = state.tasks[call.task]
    if call.what == STAGES:
        return _stage(state, call)
    if call.what == REVOKES:
        if kept.fence > 2 * call.key:
            return state, False
        fence = 2 * call.key + (1 if guards.revoke_newer_token else 0)
        return put(state, call.task, kept._replace(fence=fence)), True
    if call.what == PREPARES:
        if kept.fence >= 2 * call.key:
            return state, False
        return put(state, call.task, kept._replace(fence=2 * call.key)), True
    if any(row.what == call.what and row.key == call.key for row in kept.rows):
        kept = kept._replace(shown=kept.shown | 1 << call.key)
    return put(state, call.task, kept), True


def put(state: State, task: int, new: Task) -> State:
    """The state with one task changed."""
    tasks = state.tasks
    return state._replace(tasks=(*tasks[:task], new, *tasks[task + 1 :]))


def broken(state: State, law: str) -> State:
    """Note a law that a step breaks."""
    return state._replace(broken=(*state.broken, law))


def _merge(state: State, call: Call, guards: Guards) -> tuple[State, bool]:
    kept, main = state.tasks[call.task], state.world.main
    parent, old = call.carried
    if not guards.act_leaves_fence and kept.fence <= 2 * call.key + 1:
        kept = kept._replace(fence=2 * call.key)
        state = put(state, call.task, kept)
    if kept.fence != 2 * call.key:
        return state, False
    if guards.merge_once and main != old:
        return state, False
    commit = commit_of(call.task, call.key)
    if kept.intended < call.key:
        state = broken(state, "an effect without a durable intent")
    if landed(main, call.task):
        state = broken(state, "two merges of one task")
    if main != parent:
        state = broken(state, "main moved to an M that was not built on it")
    return state._replace(world=state.world._replace(main=(*parent, commit))), True


def _start(state: State, call: Call, guards: Guards, slow: bool) -> tuple[State, bool]:
    kept = state.tasks[call.task]
    if kept.claimed >> call.key & 1:
        if guards.claim_once:
            return state, False
        state = broken(state, "two starts of one generation")
    if kept.generation < call.key:
        state = broken(state, "an effect without a durable intent")
    state = put(state, call.task, kept._replace(claimed=kept.claimed | 1 << call.key))
    if slow:
        return state._replace(calls=(*state.calls, call._replace(what=COMMAND))), True
    return _run(state, call), True


def _run(state: State, call: Call) -> State:
    """The command does its work: production runs what was started."""
    started: Main = call.carried[0]
    now = state.world.production
    if state.world.main[: len(started)] != started:
        state = broken(state, "production runs what is not on main")
    elif len(started) < len(now):
        state = broken(state, "an older M over a newer one")
    elif state.tasks[call.task].hold:
        state = broken(state, "an undone deploy runs again")
    return state._replace(world=state.world._replace(production=started))


def _undo(state: State, call: Call, guards: Guards, slow: bool) -> tuple[State, bool]:
    kept = state.tasks[call.task]
    if kept.claimed >> call.key & 1:
        if guards.undo_claim_once:
            return state, False
        state = broken(state, "a deploy is undone twice")
    if kept.generation < call.key:
        state = broken(state, "an effect without a durable intent")
    state = put(state, call.task, kept._replace(claimed=kept.claimed | 1 << call.key))
    if guards.undo_ends_command:
        left = tuple(other for other in state.calls if (other.what, other.task) != (COMMAND, call.task))
        state = state._replace(calls=left)
    if slow:
        return state._replace(calls=(*state.calls, call._replace(what=UNDOING))), True
    return _run_undo(state, call), True


def _run_undo(state: State, call: Call) -> State:
    """The command of an undo does its work: production runs what ran before."""
    if state.tasks[call.task].stage != DEPLOY:
        state = broken(state, "done and its deploy undone")
    mine, before = call.carried
    if state.world.production not in (mine, before):
        state = broken(state, "an undo rolls back another task's deploy")
    return state._replace(world=state.world._replace(production=before))


def _stage(state: State, call: Call) -> tuple[State, bool]:
    kept = state.tasks[call.task]
    if kept.staged >> call.key & 1:
        return state, False
    commit = commit_of(call.task, call.key)
    if state.world.staging_slot != call.task + 1:
        state = broken(state, "staging started without its slot")
    state = put(state, call.task, kept._replace(staged=kept.staged | 1 << call.key))
    return state._replace(world=state.world._replace(staging=commit)), True
