"""The post of a world: what tracker and forge tell the service, out of order, twice, and while it dies (law 7).

A letter is a file in ``post``; a life that takes it in moves it to ``post/told`` once the product has acknowledged it.
One that dies in between is told again by its sender, to the next life. What a letter tells may be true, late, or a lie.
"""

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.domain.event import EventType
from orchestrator.runtime.clock import stamp
from orchestrator.webhooks.receiving import content_key
from orchestrator.wiring import App
from tests.deliveries import USER, gitea_pull, gitea_push, gitea_status, plane_comment, plane_state
from tests.proofs.lives import Script
from tests.proofs.world import FastClock, World, held

WORDS = {"deploy-staging": "Confirm Deploy", "analysis": "Approved"}
ENDED = ("done", "cancelled")
HINTS = {"branch": 4, "main": 4, "status": 4, "pull": 4, "nothing": 1}
APPROVALS = "[approvals]\nanalysis = true\ndeploy = true\n"
ANN = "ann"


def ticket_of(title: str) -> str:
    """The tracker's id of a ticket."""
    return f"ticket-{title.lower()}"


@dataclass
class Post:
    """Of one scenario: the same seed writes the same letters to the same state."""

    world: World
    chance: random.Random
    _written: int = 0
    _shut: set[str] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        return self.world.root / "post"

    def open(self) -> None:
        """Have people asked: the configuration of main wants their approval from now on."""
        (self.folder / "told").mkdir(parents=True)
        config = self.world.forge.git("show", "main:.orchestrator.toml")
        self.world.outsider_pushes("approvals", ".orchestrator.toml", f"{config}\n{APPROVALS}")

    def waiting(self) -> list[Path]:
        """What has not been acknowledged."""
        return sorted(self.folder.glob("*.json"))

    def meanwhile(self) -> None:
        """Between two lives: hints of the forge, a person's hand at a pull request, a change of mind."""
        tasks = {item: row for item, row in held(self.world).items() if row["branch"]}
        for _ in range(self.chance.choice((0, 0, 1, 2))):
            self._hint(self.chance.choice(list(tasks.values())))
        free = [
            i for i, r in tasks.items() if r["stage"] not in ENDED and r["pr_number"] and i not in self._shut
        ]
        if free and self.chance.random() < 0.03:
            self.shut(self.chance.choice(free))

    def taking_in(self, *, everything: bool) -> Script:
        """A life's part: letters come in some order, some of them twice, some not yet."""
        chance = random.Random(self.chance.random())
        names = [path.name for path in self.waiting() if everything or chance.random() < 0.8]
        chance.shuffle(names)
        names += [name for name in names if chance.random() < 0.2]
        folder = self.folder

        def script(app: App) -> None:
            for name in names:
                path = folder / name
                again = not path.exists()
                letter = json.loads((folder / "told" / name if again else path).read_text())
                app.receiver.receive(letter["source"], letter["kind"], app.entropy.uuid(), letter["payload"])
                if not again:
                    path.rename(folder / "told" / name)

        return script

    def say(self, item: str) -> None:
        """A person's word for what a task shows: by the ticket's state, or by a comment; now and then taken back, or
        followed by a move of our own user."""
        row = held(self.world)[item]
        ticket, clock = ticket_of(row["title"]), FastClock()
        if self.chance.random() < 0.5:
            command = self.chance.choice(("orch approve", f"<b>orch</b> task approve {item}"))
            html = f"<p>{command}</p>"
            self._write("plane", "issue_comment", plane_comment(html, at=stamp(clock.utc()), ticket=ticket))
            return
        self._write("plane", "issue", plane_state(WORDS[row["stage"]], at=stamp(clock.utc()), ticket=ticket))
        if self.chance.random() < 0.3:
            actor = self.chance.choice(({}, {"id": USER}))
            self._write(
                "plane", "issue", plane_state("In Progress", at=stamp(clock.utc()), ticket=ticket, **actor)
            )

    def cancel(self, item: str) -> None:
        """A person moves the ticket to a state that cancels."""
        row = held(self.world)[item]
        payload = plane_state("Cancelled", at=stamp(FastClock().utc()), ticket=ticket_of(row["title"]))
        self._write("plane", "issue", payload)

    def shut(self, item: str, *, closed: bool = True) -> None:
        """A person closes a pull request at the forge, or opens it again; the forge tells of it mostly."""
        row = held(self.world)[item]
        place = self.world.forge.folder / "orch" / "pulls" / f"{row['pr_number']}.json"
        aside = place.with_suffix(".new")
        aside.write_text(json.dumps(json.loads(place.read_text()) | {"closed": closed}))
        aside.replace(place)
        (self._shut.add if closed else self._shut.discard)(item)
        if self.chance.random() < 0.8:
            self._pull(row, "closed" if closed else "reopened")

    def _hint(self, row: Mapping[str, Any]) -> None:
        git, address = self.world.forge.git, str(self.world.forge.folder)
        [kind] = self.chance.choices(list(HINTS), list(HINTS.values()))
        if kind == "branch":
            tip = git("rev-parse", f"refs/heads/{row['branch']}", check=False)
            if len(tip) == 40:
                self._write("gitea", "push", gitea_push(row["branch"], tip, address=address))
        elif kind == "main":
            self._write("gitea", "push", gitea_push("main", git("rev-parse", "main"), address=address))
        elif kind == "status":
            shown = self.world.rows("SELECT sha FROM candidates WHERE task_id = ?", row["id"])
            sha = self.chance.choice([row["head_sha"], *(one["sha"] for one in shown)])
            state = self.chance.choice(("success", "failure", "pending"))
            self._write("gitea", "status", gitea_status(sha, state, address=address))
        elif kind == "pull" and row["pr_number"]:
            self._pull(row, self.chance.choice(("closed", "reopened", "synchronized")))
        elif kind == "nothing":
            self._write(
                "gitea", "push", {"ref": self.chance.randrange(10**6)}
            )  # means nothing, and is parked

    def _pull(self, row: Mapping[str, Any], action: str) -> None:
        merged = action == "closed" and row["stage"] in ("deploy", "done")
        payload = gitea_pull(
            action, row["pr_number"], row["branch"], head=row["head_sha"], merged=merged,
            at=stamp(FastClock().utc()), address=str(self.world.forge.folder),
        )  # fmt: skip
        self._write("gitea", "pull_request", payload)

    def _write(self, source: str, kind: str, payload: Mapping[str, Any]) -> None:
        self._written += 1
        letter = {"source": source, "kind": kind, "payload": payload}
        aside = self.folder / "letter.new"
        aside.write_text(json.dumps(letter))
        aside.replace(self.folder / f"{self._written:05}.json")


# --- what must have come of them --------------------------------------------------------------------------------------


def unheard(world: World) -> list[str]:
    """At rest: a task that still asks a person for what it was told already, in this very stage and round."""
    rows = world.rows(
        "SELECT t.work_item, t.stage, t.round, i.outcome FROM tasks t JOIN inbox i ON i.task_id = t.id "
        "JOIN deliveries ON inbox_id = i.id WHERE t.hold = 'person' AND t.stage = 'deploy-staging' "
        "AND i.outcome = 'stored as confirm-deploy' AND i.stage = t.stage AND i.round = t.round"
    )
    return [
        f"letter: {row['work_item']} was told {row['outcome']} in round {row['round']}, and asks"
        for row in rows
    ]


def findings(world: World) -> Iterator[str]:
    """At the end: what was acknowledged is stored once and dealt with once, and every word has its answer."""
    told = [json.loads(path.read_text()) for path in sorted((world.root / "post" / "told").glob("*.json"))]
    rows = {
        row["dedup_key"]: row for row in world.rows("SELECT * FROM inbox JOIN deliveries ON inbox_id = id")
    }
    words = {
        row["dedup_key"]: row for row in world.rows("SELECT * FROM inbox WHERE dedup_key LIKE '%:word:%'")
    }
    answers = Counter(row["stable_id"] for row in world.rows("SELECT stable_id FROM outbox"))
    ended: Counter[int] = Counter()
    for letter in told:
        payload = letter["payload"]
        row = rows.get(content_key(letter["source"], letter["kind"], payload))
        if row is None:
            yield f"letter: acknowledged and not stored: {letter}"
        elif row["handled_at"] is None and not isinstance(payload.get("ref"), int):
            yield f"letter: {row['id']} was acknowledged, and nobody deals with it: {row['error']}"
    for row in rows.values():
        source = str(row["source"]).removesuffix("-read")  # what was read at Plane is said at Plane
        outcome, word = str(row["outcome"]), words.get(f"{source}:word:{row['id']}")
        if outcome.startswith("stored as") and (word is None or word["handled_at"] is None):
            yield f"letter: the word of {row['id']} ({outcome}) was lost"
        if outcome.startswith("refused") and answers[f"answer:{row['id']}"] != 1:
            yield f"answer: {row['id']} was refused, and nobody told"
        ended[row["task_id"]] += source == "plane" and outcome.startswith(("stored as", "refused"))
    kinds = [kind.value for kind in (EventType.SIGNAL_APPLIED, EventType.SIGNAL_REFUSED)]
    for row in world.rows(
        "SELECT task_id, count(*) AS times FROM events WHERE type IN (?, ?) AND json_extract(data, '$.person') = ? "
        "AND json_extract(data, '$.outcome') IS NOT NULL GROUP BY task_id", *kinds, ANN,
    ):  # fmt: skip
        if row["times"] != ended[row["task_id"]]:
            yield f"letter: {ended[row['task_id']]} words for task {row['task_id']} had {row['times']} outcomes"
