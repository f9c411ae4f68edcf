"""The oracle: whether what the outside saw and what the ledger says agree.

It reads the outside's own journals (git's history and reflog of main, what the deploy command wrote down, the artefact
store, the files of tracker and notifier) and the database, and never asks the product. :func:`at_any_moment` holds
between any two steps, whoever is dead, frozen or under way; :func:`at_the_end` once nothing moves any more, every
frozen process has woken and every late call has landed.

Each finding begins with the name of what it breaks.

In a world whose database was put back from a copy, all of that holds with these exceptions, and nothing more:

- until a person has accepted, the copy does not know what was merged and started since: those starts have no intent in
  it, and a task may be merged and before staging there. In that time the service does nothing outside at all;
- once accepted, a task may be merged and before staging until it has been told, by a signal under its lease;
- events and messages since the copy are lost. The tickets keep what they were told then; but no message that was
  written since has the number of one of those and says something else, for it would not be heard;
- the ratchet lacks merges of the time that was lost, never another one.

At the end, acceptance and every signal are behind: of these the last two alone are left.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.images.content import digest_of
from orchestrator.rules.trailers import TASK, trailers
from tests.proofs import letters, restores, servers
from tests.proofs.world import World

BEFORE_STAGING = ("created", "analysis", "architecture", "development", "review", "testing", "cancelled")
AFTER_MERGE = ("deploy", "done")
IN_STAGING = ("deploy-staging", "deploy")
ENDED = ("done", "cancelled")
Row = Mapping[str, Any]  # its columns
MAIN = "refs/heads/main"
EXPECTED = {"DatabaseError", "AuthorityUnreachable", "OutsideError", "GitError", "RefsRefused", "LostRace"}


@dataclass(frozen=True)
class Start:
    """One line of the deploy command's journal."""

    environment: str
    sha: str
    generation: int
    kind: str
    token: int
    digest: str
    installs: str
    work_item: str
    ended: bool


@dataclass(frozen=True)
class Commit:
    """A commit on first-parent main."""

    sha: str
    parents: Sequence[str]
    task: str | None  # of whom it is the candidate, by its trailer


class Seen:
    """Everything that there is to see of a world, read once; ``end``: nothing is under way any more."""

    def __init__(self, world: World, *, end: bool = False) -> None:
        self.world = world
        self._end = end
        world.settle()
        self.tasks: Mapping[str, Row] = {
            row["work_item"]: row for row in world.rows("SELECT * FROM tasks ORDER BY id")
        }

    @cached_property
    def main(self) -> Sequence[Commit]:
        """First-parent main, oldest first."""
        listed = self.world.forge.git(
            "log", "--first-parent", "--reverse", "--format=%H%x1f%P%x1f%B%x1e", MAIN
        )
        found = []
        for record in filter(None, (part.strip("\n") for part in listed.split("\x1e"))):
            sha, parents, message = record.split("\x1f")
            found.append(Commit(sha, parents.split(), trailers(message).get(TASK)))
        return found

    @cached_property
    def moves(self) -> Sequence[tuple[str, str]]:
        """Every move of main, oldest first: from, to."""
        reflog = self.world.forge.folder / "logs" / MAIN
        lines = reflog.read_text().splitlines() if reflog.exists() else ()
        return [(line.split()[0], line.split()[1]) for line in lines]

    @cached_property
    def merges(self) -> Mapping[str, Sequence[str]]:
        """Work item → its merges on main."""
        found: dict[str, list[str]] = defaultdict(list)
        for commit in self.main:
            if commit.task is not None:
                found[commit.task].append(commit.sha)
        return found

    @cached_property
    def starts(self) -> Sequence[Start]:
        """What the deploy command has noted, in order."""
        lines = self.world.lines("deploys.log")
        ended = Counter(tuple(words[1:]) for words in lines if words[0] == "end")
        found = []
        for word, *rest in lines:
            if word == "start":
                env, sha, gen, kind, token, digest, installs, item = rest
                over = ended[tuple(rest)] > 0
                found.append(Start(env, sha, int(gen), kind, int(token), digest, installs, item, over))
        return found

    @cached_property
    def effects(self) -> Sequence[Row]:
        """The ledger with each effect's work item."""
        return self.world.rows(
            "SELECT e.*, t.work_item, t.stage FROM effects e JOIN tasks t ON t.id = e.task_id ORDER BY e.id"
        )

    @cached_property
    def unaccepted(self) -> bool:
        """A copy was put back, and what it does not know is not known yet."""
        return not self._end and restores.not_accepted(self.world)

    @cached_property
    def untold(self) -> set[str]:
        """Tasks of which a copy that was put back need not know yet that they were merged."""
        if self._end or not self.world.lost:
            return set()
        if self.unaccepted:
            return {*self.tasks, *self.merges}
        return {row["work_item"] for row in self.world.rows(UNTOLD)}

    @cached_property
    def prepared(self) -> set[tuple[str, str, int]]:
        """Undos that were drawn with a start of ourselves: its runner performs them before anybody can intend them. At
        the end whatever took place is in the ledger by itself."""
        found = set[tuple[str, str, int]]()
        for effect in () if self._end else self.effects:
            undo = json.loads(effect["evidence"]).get("conditional_undo")
            if effect["name"] == "deploy_init" and undo is not None:
                environment, sha, _ = _key(effect)
                found.add((environment, sha, int(undo["judged"]["generation"])))
        return found

    def of_lost_time(self, question: str) -> set[str]:
        """Answers that databases which were lost gave, and the copy does not."""
        if not self.world.lost:
            return set()
        known = {row[0] for row in self.world.rows(question, of=self.world.backup)}
        return {row[0] for path in self.world.lost for row in self.world.rows(question, of=path)} - known

    def contains(self, descendant: str, ancestor: str) -> bool:
        """Ancestry, as git has it."""
        if descendant == ancestor:
            return True
        base = self.world.forge.git("merge-base", descendant, ancestor, check=False)
        return base == ancestor


UNTOLD = (
    "SELECT work_item FROM tasks t JOIN inbox i ON i.task_id = t.id "
    "WHERE i.kind = 'restored' AND i.handled_at IS NULL"
)


def at_any_moment(world: World) -> list[str]:
    """What must hold between any two steps."""
    return _always(Seen(world))


def _always(seen: Seen) -> list[str]:
    return [
        *_merges(seen),
        *_main(seen),
        *_starts(seen),
        *_forward(seen),
        *_slots(seen),
        *_story(seen),
        *_ledger(seen),
        *_guard(seen),
    ]


def at_the_end(world: World) -> list[str]:
    """What must hold once nothing moves any more."""
    seen = Seen(world, end=True)
    return [
        *_always(seen),
        *_converged(seen),
        *_agreement(seen),
        *_production(seen),
        *_ratchet(seen),
        *_images(seen),
        *_messages(seen),
        *_pull_requests(seen),
        *_faults(seen),
        *letters.findings(world),
        *servers.findings(world),
    ]


# --- at any moment ----------------------------------------------------------------------------------------------


def _merges(seen: Seen) -> Iterator[str]:
    for item, merges in seen.merges.items():
        if len(merges) > 1:
            yield f"one-merge: {item} was merged {len(merges)} times: {merges}"
        task = seen.tasks.get(item)
        stage = task["stage"] if task is not None else "nowhere"
        if (task is None or stage in BEFORE_STAGING) and item not in seen.untold:
            yield f"agreement: {item} is in {stage}, and {merges[0]} of it is on main"


def _main(seen: Seen) -> Iterator[str]:
    for old, new in seen.moves:
        parents = seen.world.forge.git("show", "-s", "--format=%P", new).split()
        if not parents or parents[0] != old:
            yield f"main: moved from {old} to {new}, which was built on {parents[:1]}"


def _starts(seen: Seen) -> Iterator[str]:
    counted = Counter((s.environment, s.sha, s.generation) for s in seen.starts)
    for key, times in counted.items():
        if times > 1:
            yield f"one-start: {key} was started {times} times"
    known = {(e["name"], *_key(e)): e for e in seen.effects if e["name"] in ("deploy_init", "deploy_undo")}
    tokens: dict[str, int] = defaultdict(int)
    for start in seen.starts:
        name = "deploy_undo" if start.kind == "undo" else "deploy_init"
        effect = known.get((name, start.environment, start.sha, start.generation))
        if effect is None:
            if not seen.unaccepted and (start.environment, start.sha, start.generation) not in seen.prepared:
                yield f"intent: {start} was started without an intent"
        elif effect["state"] == "revoked":
            yield f"revoked: {start} was started, and the ledger says that it was given up"
        if start.token <= tokens[start.environment]:
            yield f"fence: {start} came after token {tokens[start.environment]}"
        tokens[start.environment] = max(start.token, tokens[start.environment])


def _forward(seen: Seen) -> Iterator[str]:
    """By ancestry deploys of production only go forward: what is older is brought back by an undo and by nothing else.
    Nor is anything intended to start there once a later merge is on main."""
    newest = None
    for start in seen.starts:
        if start.environment != "production" or start.kind != "deploy":
            continue
        if newest is not None and not seen.contains(start.sha, newest):
            yield f"redeploy: {start} was started after {newest}, which it does not contain"
        newest = start.sha
    if seen.world.lost:
        return  # what is found again after a restore is numbered anew
    merges = [e for e in seen.effects if e["name"] == "merge_pr" and e["state"] == "applied"]
    for effect in seen.effects:
        if effect["name"] == "deploy_init" and effect["key"].startswith("production:"):
            sha = _key(effect)[1]
            for merge in merges:
                later = merge["sequence"] < effect["sequence"] and merge["key"] != sha
                if later and seen.contains(merge["key"], sha):
                    yield f"redeploy: {effect['key']} was intended when {merge['key']} had been merged on top of it"


def _slots(seen: Seen) -> Iterator[str]:
    for row in seen.world.rows(
        "SELECT s.name, t.work_item, t.stage FROM slots s JOIN tasks t ON t.id = s.task_id"
    ):
        if row["stage"] not in IN_STAGING:
            yield f"slot: {row['name']} is held by {row['work_item']}, which is in {row['stage']}"
    held = {r["name"]: r["task_id"] for r in seen.world.rows("SELECT * FROM slots")}
    for item, task in seen.tasks.items():
        if task["stage"] == "deploy-staging" and held.get(f"merge:{task['repo']}") != task["id"]:
            yield f"slot: {item} is in deploy-staging without the merge slot"


def _story(seen: Seen) -> Iterator[str]:
    """Law 11: the events tell the whole story, in order, and rebuild the stage; epochs rise along them."""
    stages = dict.fromkeys(seen.tasks, "created")
    epochs = dict.fromkeys(seen.tasks, -1)
    for row in seen.world.rows(
        "SELECT e.*, t.work_item FROM events e JOIN tasks t ON t.id = e.task_id "
        "WHERE e.type = 'stage.changed' ORDER BY e.id"
    ):
        item = row["work_item"]
        if row["stage"] != stages[item]:
            yield f"law-11: {item} left {row['stage']}, but its events had brought it to {stages[item]}"
        stages[item] = row["to_stage"]
        if row["epoch"] <= epochs[item]:
            yield f"epoch: {item} moved at epoch {row['epoch']} after {epochs[item]}"
        epochs[item] = row["epoch"]
    for item, task in seen.tasks.items():
        if stages[item] != task["stage"]:
            yield f"law-11: the events of {item} lead to {stages[item]}, it is in {task['stage']}"


def _ledger(seen: Seen) -> Iterator[str]:
    """What is settled is true outside."""
    for effect in seen.effects:
        if effect["name"] != "merge_pr":
            continue
        landed = effect["key"] in seen.merges.get(effect["work_item"], ())
        if effect["state"] == "applied" and not seen.merges.get(effect["work_item"]):
            yield f"ledger: {effect['work_item']}'s merge of {effect['key']} is applied, and not on main"
        if effect["state"] == "revoked" and landed:
            yield f"ledger: {effect['work_item']}'s merge of {effect['key']} was given up, and is on main"


def _guard(seen: Seen) -> Iterator[str]:
    """Only what was put back is closed, and then nothing is done outside before a person has accepted."""
    for row in seen.world.rows("SELECT * FROM installation_marks WHERE cause IS NOT NULL"):
        if not seen.world.lost or row["cause"] != "database":
            yield f"guard: {row['repo']} is closed: {row['reason']}"
    acted = seen.world.root / "acted"
    for line in acted.read_text().splitlines() if acted.exists() else ():
        yield f"guard: before anybody had accepted, the service came to {line}"


# --- at the end -------------------------------------------------------------------------------------------------


def _converged(seen: Seen) -> Iterator[str]:
    for effect in seen.effects:
        if effect["state"] not in ("applied", "revoked"):
            yield f"unsettled: {effect['name']} {effect['key']} of {effect['work_item']} is {effect['state']}"
    for item, task in seen.tasks.items():
        if task["stage"] not in ENDED:  # people have helped until nothing moved
            yield f"lost: {item} is in {task['stage']}, {task['hold']}: {task['hold_reason']}"


def _agreement(seen: Seen) -> Iterator[str]:
    for item, task in seen.tasks.items():
        merged, stage = seen.merges.get(item, ()), task["stage"]
        if merged and stage != "done" and not (stage == "deploy" and task["hold"] == "escalated"):
            yield f"agreement: {item} is merged, and is in {stage} ({task['hold']})"
        if not merged and stage in AFTER_MERGE:
            yield f"agreement: {item} is in {stage}, and nothing of it is on main"
        head = task["head_sha"]
        if not merged and head and head != task["base_sha"] and seen.contains(seen.main[-1].sha, head):
            yield f"agreement: {item} is in {stage}, and its branch is on main"


def _production(seen: Seen) -> Iterator[str]:
    """Production runs the newest delivered M, or what an undo has restored; by ancestry, not by time."""
    runs = seen.world.installed("production")
    ended = {item for item, task in seen.tasks.items() if task["stage"] == "done"}
    done = [c.sha for c in seen.main if c.task in ended]
    for sha in done:
        if runs is None or not seen.contains(runs, sha):
            yield f"production: {sha} is delivered, and production runs {runs}"
    if not done:
        return
    later = seen.main[[c.sha for c in seen.main].index(done[-1]) + 1 :]
    broken = [c.sha for c in later if c.task is not None]  # merged after it, and escalated
    if runs != done[-1] and runs not in broken:
        yield f"production: runs {runs}, the newest that is delivered is {done[-1]}"


def _ratchet(seen: Seen) -> Iterator[str]:
    rows = Counter(r["merged_sha"] for r in seen.world.rows("SELECT merged_sha FROM coverage_baseline"))
    wanted = Counter(sha for merges in seen.merges.values() for sha in merges)
    lost = seen.of_lost_time("SELECT key FROM effects WHERE name = 'merge_pr'")
    for sha in lost - rows.keys():
        del wanted[sha]
    if rows != wanted:
        yield f"ratchet: rows {dict(rows)}, merges {dict(wanted)}"


def _images(seen: Seen) -> Iterator[str]:
    """What runs is what was tested, and still is what its digest says."""
    tested = {s.sha: s.digest for s in seen.starts if s.environment == "staging"}
    for start in seen.starts:
        if start.environment == "production" and start.kind == "deploy":
            if tested.get(start.sha) != start.digest:
                yield f"image: {start} runs another artefact than was tested: {tested.get(start.sha)}"
            folder = seen.world.home / "images" / "objects" / start.digest.removeprefix("sha256:")
            if not folder.is_dir() or digest_of(folder) != start.digest:
                yield f"image: {start.digest} in the store is not what it says"


def _messages(seen: Seen) -> Iterator[str]:
    """At least once, with a stable id, in order for each task."""
    told: dict[str, list[str]] = {}
    for path in (seen.world.home / "tickets").glob("*.jsonl"):
        told[path.stem] = [json.loads(line)["message_id"] for line in path.read_text().splitlines()]
    alerts = seen.world.home / "alerts.jsonl"
    called = (
        [json.loads(line)["message_id"] for line in alerts.read_text().splitlines()]
        if alerts.exists()
        else []
    )
    expected: dict[str, list[str]] = defaultdict(list)
    lost = seen.of_lost_time("SELECT stable_id FROM outbox")
    said = seen.of_lost_time("SELECT stable_id || payload FROM outbox")
    for row in seen.world.rows(
        "SELECT o.*, t.work_item FROM outbox o LEFT JOIN tasks t ON t.id = o.task_id ORDER BY o.id"
    ):
        if row["stable_id"] in lost:
            if row["stable_id"] + row["payload"] in said:
                continue
            yield f"message: {row['stable_id']} was sent in the time that is lost, and is not heard again"
        elif row["parked_at"] is not None:
            yield f"message: {row['stable_id']} was given up: {row['error']}"
        elif row["kind"] == "alert" and row["stable_id"] not in called:
            if row["sent_at"] is None and row["stable_id"].startswith("alert:inbox:"):
                continue  # nobody waits until what means nothing has been looked at often enough
            yield f"message: the alert {row['stable_id']} never arrived"
        elif row["kind"] != "alert":
            expected[row["work_item"]].append(row["stable_id"])
    for item, ids in expected.items():
        arrived = [one for one in told.get(item, ()) if one not in lost]
        if arrived != ids:
            yield f"message: of {item} arrived {arrived}, expected {ids}"


def _pull_requests(seen: Seen) -> Iterator[str]:
    folder = seen.world.forge.folder / "orch" / "pulls"
    records = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    for item, task in seen.tasks.items():
        ours = [r for r in records if r["branch"] == task["branch"]]
        if sum(not r["closed"] for r in ours) > 1:
            yield f"pull-request: {item} has more than one that is open"


def _faults(seen: Seen) -> Iterator[str]:
    """What law 9 has kept from stopping the queue, and is a mistake of ours all the same."""
    log = seen.world.root / "lives.log"
    for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
        found = re.search(r'safe default returned .*reason="?(\w+)', line)
        if found is not None and found[1] not in EXPECTED:
            yield f"fault: {line}"


def _key(effect: Row) -> tuple[str, str, int]:
    environment, sha, generation = effect["key"].split(":")
    return environment, sha, int(generation)
