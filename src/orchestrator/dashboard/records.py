"""What the pages are made of: plain records, ready to be shown."""

from dataclasses import dataclass

from orchestrator.domain.task import Hold
from orchestrator.operations.reading import Why

NEEDS_A_PERSON = frozenset({Hold.ESCALATED, Hold.PERSON})


@dataclass(frozen=True, slots=True)
class Card:
    """One task on the board."""

    work_item: str
    title: str
    repo: str
    track: str
    round: int
    age: str
    hold: str
    hold_words: str
    hold_reason: str
    owner: str
    work: str  # what is being done for it now

    @property
    def needs_person(self) -> bool:
        """True where nothing happens until a person decides."""
        return self.hold in NEEDS_A_PERSON


@dataclass(frozen=True, slots=True)
class Column:
    """One stage."""

    stage: str
    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Running:
    """One job at work."""

    task: str
    kind: str
    attempt: object
    age: str


@dataclass(frozen=True, slots=True)
class Frozen:
    """One repository that takes no new work."""

    repo: str
    reason: str
    task: str
    age: str
    lent_to: str


@dataclass(frozen=True, slots=True)
class Board:
    """The first page."""

    columns: tuple[Column, ...]
    needs_person: tuple[Card, ...]
    running: tuple[Running, ...]
    queued: int
    frozen: tuple[Frozen, ...]
    open_tasks: int
    more: bool  # there are more open tasks than are shown


@dataclass(frozen=True, slots=True)
class Line:
    """One event as people read it."""

    at: str
    clock: str
    type: str
    actor: str
    text: str
    tone: str  # "good", "bad", "busy" or ""


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run and its price."""

    kind: str
    agent: str
    model: str
    attempt: int
    outcome: str
    tokens: str
    cost: str
    took: str
    summary: str


@dataclass(frozen=True, slots=True)
class EffectLine:
    """One effect."""

    name: str
    key: str
    state: str
    round: int
    number: int  # the one that `orch effect resolve` takes
    age: str


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A task's story."""

    card: Card
    stage: str
    heading: str
    title: str
    body: str
    labels: tuple[str, ...]
    why: Why
    steps: tuple[str, ...]  # commands that a person chooses from
    guide: str  # what to read before, or nothing
    facts: tuple[tuple[str, str], ...]
    lines: tuple[Line, ...]
    effects: tuple[EffectLine, ...]
    runs: tuple[RunLine, ...]
    documents: tuple[tuple[str, str], ...]
    spent: str
    more_events: bool
