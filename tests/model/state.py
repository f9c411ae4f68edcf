"""A state of the model: what the database holds, what the authorities show, what is under way, where each actor stands.

Epochs need no numbers. All that is ever asked is whether an actor's epoch still is the task's, so an actor is *current*
or not, for ever; and a lease is live exactly while a current actor stands somewhere. A frozen actor needs no state
either: any actor may simply not be scheduled. That keeps the space finite without a bound on acquisitions.
"""

from typing import Any, NamedTuple

Main = tuple[int, ...]  # main's first-parent history: what `commit_of` names, STRANGER for an outsider's push
STRANGER = 0
FREEZE = 9  # the merge slot is the freeze's


class Row(NamedTuple):
    """An unsettled row of the ledger."""

    what: str
    key: int  # the candidate, the generation of a start, or the step
    judged: tuple[Main, ...]  # merge: the first parent; start and undo: what is started, what ran before
    state: str


class Task(NamedTuple):
    """One task: its rows in the database, then what the authorities keep under its name."""

    stage: str
    step: int = 0
    rows: tuple[Row, ...] = ()
    merged: bool = False  # merge_pr is settled as applied
    candidate: int = 0
    base: Main = ()
    intended: int = 0  # newest candidate whose merge was ever intended
    generation: int = 0  # newest generation ever intended in production
    before: Main = ()  # what production ran when the start was intended
    hold: str = ""  # "" | "escalated" | "broken": after its undo, under the freeze
    cancel: bool = False  # a person's cancel waits in the inbox
    away: bool = False  # somebody has moved the branch
    rejected: int = 0
    renewed: int = 0
    fence: int = 0  # authority: 2 × candidate, + 1 once that one is revoked
    claimed: int = 0  # authority: bits of the generations whose STARTED exists
    staged: int = 0  # authority: bits of the candidates started in staging
    shown: int = 0  # authority: bits of this stage's plain effects (push, pull request, image)


class World(NamedTuple):
    """What is shared by the tasks of a repository."""

    main: Main = (STRANGER,)
    production: Main = (STRANGER,)  # history of the commit that runs there
    merge_slot: int = 0  # 0 free, task + 1, FREEZE
    staging_slot: int = 0
    staging: int = 0  # the commit that runs there
    freeze: int = 0  # task + 1 that broke the repository
    lent: int = 0  # task + 1 that may pass the freeze


class Actor(NamedTuple):
    """One actor's locals; a crash forgets them."""

    at: str = ""
    task: int = 0
    current: bool = False
    what: tuple[Any, ...] = ()


class Call(NamedTuple):
    """A call that left its sender and lands any time later, or never."""

    what: str
    task: int
    key: int
    carried: tuple[Main, ...]


class Budget(NamedTuple):
    """How often the world may still misbehave."""

    steals: int = 0  # a live owner is taken over (frozen, hung: the backstop)
    crashes: int = 0
    late: int = 0  # calls that time out and land later
    pushes: int = 0  # an outsider moves main
    strays: int = 0  # a person moves the task's branch, or back
    cancels: int = 0
    fails: int = 0  # a gate says no
    sick: int = 0  # production is found unhealthy
    silent: int = 0  # a person does not confirm in time
    retries: int = 0  # a person has a broken deploy started again
    outages: int = 0  # an authority cannot be read


class State(NamedTuple):
    """Everything."""

    tasks: tuple[Task, ...]
    world: World
    calls: tuple[Call, ...]
    actors: tuple[Actor, ...]
    budget: Budget
    broken: tuple[str, ...] = ()  # the laws that the step into this state has broken


IDLE = Actor()


def commit_of(task: int, candidate: int) -> int:
    """The name of a task's candidate M."""
    return 10 * (task + 1) + candidate


def owner_of(commit: int) -> int:
    """Whose candidate a commit is; -1 for an outsider's."""
    return commit // 10 - 1


def landed(main: Main, task: int) -> int:
    """How many candidates of a task are on main."""
    return sum(1 for commit in main if commit // 10 == task + 1)
