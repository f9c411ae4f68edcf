"""Where a person of ``orch demo --stack`` files tickets and answers: a played Plane, or issues of a played GitHub."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Protocol

from orchestrator.demo.proof import Proof
from orchestrator.demo.run import PREFIX
from orchestrator.domain.task import Ticket
from orchestrator.played.github import Repository
from orchestrator.played.github.issues import Issue
from orchestrator.played.github.server import BOT, PERSON
from orchestrator.played.plane import FakePlane, Item, Project
from orchestrator.played.plane.server import KEY

CALLS = 2_000  # in a minute: nobody else shares this Plane
APPROVED, CONFIRM = "Approved", "Confirm Deploy"


class TicketPlace(Protocol):
    """One place."""

    @property
    def called(self) -> str:
        """How people call it."""
        ...

    @property
    def person(self) -> str:
        """Who files and answers there."""
        ...

    @property
    def init(self) -> Sequence[str]:
        """What `orch init` is told of it."""
        ...

    @property
    def connect(self) -> str | None:
        """What is connected apart from the forge."""
        ...

    def secrets(self) -> dict[str, tuple[str, str]]:
        """What is kept in files: by the setting's name, what the file is called and holds."""
        ...

    def settings(self) -> dict[str, str]:
        """What else the service is told."""
        ...

    def hook(self, address: str) -> dict[str, tuple[str, str]]:
        """Paste a webhook where a person has to; what is kept of it, as of :meth:`secrets`."""
        ...

    def file(self, ticket: Ticket) -> None:
        """A person files a ticket."""
        ...

    def answer(self, title: str, what: str) -> None:
        """A person answers in the ticket of this title."""
        ...

    def all_done(self) -> bool:
        """Whether every ticket shows that it is done."""
        ...

    def prove(self, proof: Proof) -> int:
        """Look at every ticket as the place shows it; how many there are."""
        ...


@dataclass
class AtPlane:
    """Tickets are work items of a project."""

    plane: FakePlane
    called = "Plane"
    person = "Ann"
    init = ("--plane", f"acme/{PREFIX}")
    connect = "plane"
    items: list[Item] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project: Project = self.plane.project(PREFIX, "Greeter")

    def secrets(self) -> dict[str, tuple[str, str]]:
        """Our key."""
        return {"ORCH_PLANE_TOKEN_FILE": ("plane-key", KEY)}

    def settings(self) -> dict[str, str]:
        """Its address, and how often it may be asked."""
        return {"ORCH_PLANE_URL": self.plane.url, "ORCH_PLANE_CALLS_PER_MINUTE": str(CALLS)}

    def hook(self, address: str) -> dict[str, tuple[str, str]]:
        """Plane shows the secret once."""
        made = self.plane.hook(f"{address}/webhooks/plane")
        return {"ORCH_PLANE_WEBHOOK_SECRET_FILE": ("plane-webhook", made.secret)}

    def file(self, ticket: Ticket) -> None:
        """With the label that has it taken."""
        html = "".join(f"<p>{escape(line)}</p>" for line in ticket.body.splitlines())
        self.items.append(self.plane.ticket(self.project, ticket.title, "orch", html=html))

    def answer(self, title: str, what: str) -> None:
        """By moving it to the state of this name."""
        [item] = [item for item in self.items if item.name == title]
        self.plane.move(item, what)

    def all_done(self) -> bool:
        """By its state's group."""
        return all(item.state.group == "completed" for item in self.items)

    def prove(self, proof: Proof) -> int:
        """Each in a state of the right group, with each comment of ours once."""
        for item in self.items:
            proof.claim(
                item.state.group == "completed", f"{item.name!r} is in {item.state.name} ({item.state.group})"
            )
            ours = [comment.external_id for comment in item.comments if comment.actor == self.plane.bot]
            proof.claim(
                bool(ours) and len(ours) == len(set(ours)), f"it has {len(ours)} comments of ours, none twice"
            )
        return len(self.items)


@dataclass
class AtGitHub:
    """Tickets are the issues of the repository; nothing is connected apart from the forge."""

    there: Repository
    called = "GitHub"
    person = "Dana"
    init = ("--issues",)
    connect = None
    issues: list[Issue] = field(default_factory=list)

    def secrets(self) -> dict[str, tuple[str, str]]:
        """The forge's token does."""
        return {}

    def settings(self) -> dict[str, str]:
        """Nothing more than the forge's."""
        return {}

    def hook(self, address: str) -> dict[str, tuple[str, str]]:
        """`orch connect github` has made it."""
        return {}

    def file(self, ticket: Ticket) -> None:
        """With the label that has it taken."""
        self.issues.append(self.there.issues.file(ticket.title, "orch", body=ticket.body, by=PERSON))

    def answer(self, title: str, what: str) -> None:
        """By a comment: there are no states to move it to."""
        [issue] = [issue for issue in self.issues if issue.title == title]
        self.there.issues.comment(issue, "orch approve", by=PERSON)

    def all_done(self) -> bool:
        """By its being closed."""
        return all((issue.state, issue.reason) == ("closed", "completed") for issue in self.issues)

    def prove(self, proof: Proof) -> int:
        """Each closed as completed at its end and not before, with each comment of ours once."""
        for issue in self.issues:
            closings = [event for event in issue.events if event.kind == "closed"]
            proof.claim(
                (issue.state, issue.reason, len(closings)) == ("closed", "completed", 1),
                f"#{issue.number} {issue.title!r} is {issue.state} as {issue.reason}",
            )
            left = [label for label in issue.labels if label.startswith("orch: ")]
            proof.claim(not left, "no label shows a stage any more")
            ours = [comment.body for comment in issue.comments if comment.user == BOT]
            proof.claim(
                bool(ours) and len(ours) == len(set(ours)), f"it has {len(ours)} comments of ours, none twice"
            )
        return len(self.issues)
