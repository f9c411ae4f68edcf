"""The laws, asked of the real database and of the outside after every step, and of both together at rest.

The names are those of the model (``tests/model/laws.py``) where it has the law as well.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from orchestrator.deploy.records import Claimant, DeployKind
from orchestrator.domain.ids import Sha
from orchestrator.domain.lease import Lease
from orchestrator.forges.local_fence import REVOKED
from orchestrator.rules.transitions import CONFIRM_DEPLOY
from tests.proofs.ledger_reader import Ledger, Row
from tests.proofs.memory_deployer import key_of
from tests.proofs.memory_world import REPO, Outside

UNSETTLED = {"intended", "revoking", "in_doubt"}
ON_THE_WAY = {"deploy-staging", "deploy"}
MERGE_SLOT = f"merge:{REPO}"


@dataclass
class Memory:
    """What the laws have to remember from one step to the next."""

    epochs: dict[int, int] = field(default_factory=dict)
    stages: dict[int, str] = field(default_factory=dict)
    rounds: dict[int, int] = field(default_factory=dict)
    settled: dict[int, str] = field(default_factory=dict)
    baseline: float = 0.0
    merges: int = 0
    ran: int = 0
    claims: set[tuple[str, Sha, int]] = field(default_factory=set)
    lessees: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scene:
    """Everything that a law may look at."""

    ledger: Ledger
    outside: Outside
    memory: Memory
    owners: dict[str, Lease]  # actors inside a transition, and what each believes to hold
    living: frozenset[str]  # processes that nobody may take for dead
    config: str

    @property
    def main(self) -> Sha:
        return self.outside.forge.heads["main"]

    def on_main(self, task_id: int) -> list[Sha]:
        """The task's candidates that are on main."""
        behind = self.outside.objects.ancestors(self.main)
        return [c["sha"] for c in self.ledger.candidates if c["task_id"] == task_id and c["sha"] in behind]

    def production_has(self, sha: Sha) -> bool:
        runs = self.outside.environments.runs.get("production")
        return runs is not None and sha in self.outside.objects.ancestors(runs)

    def task_of(self, work_item: str) -> Row:
        return next(row for row in self.ledger.tasks.values() if row["work_item"] == work_item)


Law = Callable[[Scene], Iterator[str]]


def after_every_step(scene: Scene) -> list[str]:
    """What is broken now."""
    broken = [said for law in STEP_LAWS for said in law(scene)]
    remember(scene)
    return broken


def remember(scene: Scene) -> None:
    """Take the present for the past of the next step."""
    memory, ledger, outside = scene.memory, scene.ledger, scene.outside
    memory.epochs = dict(ledger.epochs)
    memory.stages = {task: row["stage"] for task, row in ledger.tasks.items()}
    memory.rounds = {task: row["round"] for task, row in ledger.tasks.items()}
    memory.settled |= {e["id"]: e["state"] for e in ledger.effects if e["state"] not in UNSETTLED}
    memory.baseline = ledger.baselines[-1]["percent"] if ledger.baselines else 0.0
    memory.merges, memory.ran = len(outside.forge.merges), len(outside.environments.journal)
    memory.claims = {key for key, record in outside.environments.starts.items() if record.claim}
    memory.lessees = {row["task_id"]: row["owner_boot_id"] for row in ledger.leases}


# --- ownership and the ledger -----------------------------------------------------------------------------------------


def one_owner(scene: Scene) -> Iterator[str]:
    """Laws 1 and 6: at most one actor whose writes would still be taken; a living process's lease is not taken away."""
    for task, epoch in scene.ledger.epochs.items():
        if (
            len([lease for lease in scene.owners.values() if (lease.task_id, lease.epoch) == (task, epoch)])
            > 1
        ):
            yield f"two owners of task {task} at epoch {epoch}"
    for row in scene.ledger.leases:
        before = scene.memory.lessees.get(row["task_id"])
        if before in scene.living and before != row["owner_boot_id"]:
            yield f"the lease of {before}, which lives, was taken by {row['owner_boot_id']}"


def epochs_rise(scene: Scene) -> Iterator[str]:
    """Law 2: an epoch never falls, and rises with every stage and round."""
    for task, epoch in scene.ledger.epochs.items():
        before = scene.memory.epochs.get(task, 0)
        row = scene.ledger.tasks[task]
        if epoch < before:
            yield f"the epoch of task {task} fell"
        was = scene.memory.stages.get(task, row["stage"]), scene.memory.rounds.get(task, row["round"])
        if was != (row["stage"], row["round"]) and epoch <= before:
            yield f"task {task} moved without a new epoch"
        if was[0] in ("done", "cancelled") and row["stage"] != was[0]:
            yield f"task {task} left its end"


def story_tells_the_stage(scene: Scene) -> Iterator[str]:
    """Law 11: the last stage in the story is the task's."""
    for task, stage in scene.ledger.stories.items():
        if scene.ledger.tasks[task]["stage"] != stage:
            yield f"the story of task {task} ends in {stage}, the task stands in {scene.ledger.tasks[task]['stage']}"


def settled_stays(scene: Scene) -> Iterator[str]:
    """Law 3: an outcome is never taken back; nobody ends, or moves on, with an effect unsettled."""
    for effect in scene.ledger.effects:
        known = scene.memory.settled.get(effect["id"])
        if known not in (None, effect["state"]):
            yield f"effect {effect['id']} was {known} and is {effect['state']}"
        stage = scene.ledger.tasks[effect["task_id"]]["stage"]
        if effect["state"] in UNSETTLED and stage in ("done", "cancelled"):
            yield "ended with an unsettled effect"
        moved = scene.memory.stages.get(effect["task_id"], stage) != stage
        if moved and effect["state"] in UNSETTLED and effect["name"] != "deploy_undo":
            yield "a stage written over an unsettled effect"


def baseline_rises(scene: Scene) -> Iterator[str]:
    """The ratchet never falls, and counts a merge once."""
    if scene.ledger.baselines and scene.ledger.baselines[-1]["percent"] < scene.memory.baseline:
        yield "the baseline fell"
    merged = [row["merged_sha"] for row in scene.ledger.baselines]
    if len(merged) != len(set(merged)):
        yield "the baseline was raised twice for one merge"


# --- merges -----------------------------------------------------------------------------------------------------------


def merged_once_and_forward(scene: Scene) -> Iterator[str]:
    """One merge, never given up, never without its ledger."""
    for task, row in scene.ledger.tasks.items():
        landed = scene.on_main(task)
        applied = [e for e in scene.ledger.effects_of(task, "merge_pr") if e["state"] == "applied"]
        if len(landed) > 1 or len(applied) > 1:
            yield "two merges of one task"
        if landed and row["stage"] not in (*ON_THE_WAY, "done"):
            yield f"merged and given up: task {task} is on main and in {row['stage']}"
        if row["stage"] in ("deploy", "done") and not (landed and applied):
            yield f"deploy without the merge: task {task} is in {row['stage']}"


def merges_as_judged(scene: Scene) -> Iterator[str]:
    """Each merge: intended before, built on main as it was, tested on staging, confirmed where that is asked for."""
    objects = scene.outside.objects
    for before, sha in scene.outside.forge.merges[scene.memory.merges :]:
        candidate = scene.ledger.candidate(sha)
        if objects.get(sha).parents[0] != before:
            yield "main moved to an M that was not built on it"
        if candidate is None or not scene.ledger.effects_of(candidate["task_id"], "merge_pr", sha):
            yield f"an effect without a durable intent: merge of {sha}"
            continue
        if "[staging]" in scene.config and scene.outside.environments.runs.get("staging") != sha:
            yield "merged, staging runs something else"
        confirmed = [
            word for word in scene.ledger.inbox if (word["kind"], word["subject"]) == (CONFIRM_DEPLOY, sha)
        ]
        if "[approvals]" in scene.config and not confirmed:
            yield "merged without a person's word about this very candidate"


def revoked_only_when_given_up(scene: Scene) -> Iterator[str]:
    """Law 4: a fence is moved only after giving up, the merge or the preparing of M, was decided durably."""
    for task, fence in scene.outside.forge.fences.items():
        if fence.state != REVOKED:
            continue
        fenced = [
            c for c in scene.ledger.candidates if (c["task_id"], c["sequence"]) == (task, fence.sequence)
        ]
        merges = [e for c in fenced for e in scene.ledger.effects_of(task, "merge_pr", c["sha"])]
        pushes = [e for c in fenced for e in scene.ledger.effects_of(task, "push", f"candidate:{c['sha']}")]
        given_up = any(e["state"] in ("revoking", "revoked", "applied") for e in merges)
        if not given_up and not any(e["state"] in ("revoking", "revoked") for e in pushes):
            yield "revoked at the authority, but not given up in the ledger"
    for task, sequence in scene.outside.forge.pushes_given_up.items():
        rows = [e for e in scene.ledger.effects if (e["task_id"], e["sequence"]) == (task, sequence)]
        if not any(e["state"] in ("revoking", "revoked", "applied") for e in rows):
            yield "a push was revoked at the authority, but not given up in the ledger"


# --- deploys ----------------------------------------------------------------------------------------------------------


def starts_are_intended_and_have_their_slot(scene: Scene) -> Iterator[str]:
    """Each new claim of a child: an intent that is older, and the slot of the place."""
    for key, record in scene.outside.environments.starts.items():
        if record.claim is None or record.start is None or key in scene.memory.claims:
            continue
        known = [e for e in scene.ledger.effects if e["sequence"] == record.claim.sequence]
        if not known:
            yield f"an effect without a durable intent: start {key}"
            continue
        if record.claim.by is Claimant.REVOKER or record.start.kind is DeployKind.UNDO:
            continue
        needed = [f"environment:{key[0]}"] + ([MERGE_SLOT] if key[0] == "production" else [])
        if any(scene.ledger.slots.get(slot, {}).get("task_id") != known[0]["task_id"] for slot in needed):
            yield f"{key[0]} started without its slot"


def environments_go_forward(scene: Scene) -> Iterator[str]:
    """What each command did to production, seen from the others'."""
    objects, journal = scene.outside.objects, scene.outside.environments.journal
    for number in range(scene.memory.ran, len(journal)):
        ran = journal[number]
        if len([1 for other in journal if key_of(other.start) == key_of(ran.start)]) > 1:
            yield "two starts of one generation"
        if ran.start.environment != "production":
            continue
        undone = [
            other.start for other in journal[:number]
            if other.start.kind is DeployKind.UNDO and other.start.environment == ran.start.environment
        ]  # fmt: skip
        if ran.start.kind is DeployKind.DEPLOY:
            if ran.start.sha not in objects.ancestors(scene.main):
                yield "production runs what is not on main"
            if any(int(ran.start.token) < int(undo.token) for undo in undone):
                yield "an undone deploy runs again"
            if ran.before and ran.before != ran.after and ran.after in objects.ancestors(ran.before):
                yield "an older M over a newer one"
        elif ran.before not in (ran.start.sha, ran.after):
            yield "an undo rolls back another task's deploy"


def newest_start_is_not_refused(scene: Scene) -> Iterator[str]:
    """Law 5: a token that rises with the environment tells old from new; a target that compares it refuses the old."""
    places = scene.outside.environments
    for start in places.refused:
        ran = [one.start.sequence for one in places.journal if one.start.environment == start.environment]
        if start.sequence > max(ran, default=0):
            yield "a target that compares tokens has refused the newest start"


def settled_is_true(scene: Scene) -> Iterator[str]:
    """Law 4: what is settled as applied has taken place, and what is settled as revoked never will."""
    claims = {
        record.claim.sequence: record.claim.by
        for record in scene.outside.environments.starts.values()
        if record.claim is not None
    }
    for effect in scene.ledger.effects:
        if effect["name"] in ("deploy_init", "deploy_undo") and effect["state"] not in UNSETTLED:
            by = claims.get(effect["sequence"])
            if (by is Claimant.CHILD) is not (effect["state"] == "applied"):
                yield f"{effect['name']} is settled as {effect['state']}, and its start is claimed by {by}"
        given_up = (effect["name"], effect["state"]) == ("merge_pr", "revoked")
        if given_up and effect["key"] in scene.on_main(effect["task_id"]):
            yield "a merge is settled as revoked and is on main"


def done_runs(scene: Scene) -> Iterator[str]:
    """Done and undone never: production contains the M of every done task."""
    if "[production]" not in scene.config:
        return
    for task, row in scene.ledger.tasks.items():
        if row["stage"] == "done" and not any(scene.production_has(sha) for sha in scene.on_main(task)):
            yield "done, but production does not contain it"


# --- slots ------------------------------------------------------------------------------------------------------------


def slots_go_with_the_stage(scene: Scene) -> Iterator[str]:
    """Slots are held on the way through deploy-staging and deploy, and by a freeze while there is one."""
    ledger = scene.ledger
    for name, slot in ledger.slots.items():
        if slot["task_id"] is not None and ledger.tasks[slot["task_id"]]["stage"] not in ON_THE_WAY:
            yield f"a slot held by a task that has no use for it: {name}"
    holder = ledger.slots.get(MERGE_SLOT)
    for task, row in ledger.tasks.items():
        if (
            row["stage"] in ON_THE_WAY
            and task not in ledger.froze
            and (not holder or holder["task_id"] != task)
        ):
            yield f"{row['stage']} without the merge slot: task {task}"
    if ledger.freezes and holder is None:
        yield "frozen, but the merge slot is free"
    if holder and holder["holder"] == "freeze" and not ledger.freezes:
        yield "the merge slot is kept for a freeze that is gone"


STEP_LAWS: tuple[Law, ...] = (
    one_owner,
    epochs_rise,
    story_tells_the_stage,
    settled_stays,
    baseline_rises,
    merged_once_and_forward,
    merges_as_judged,
    revoked_only_when_given_up,
    starts_are_intended_and_have_their_slot,
    environments_go_forward,
    newest_start_is_not_refused,
    settled_is_true,
    done_runs,
    slots_go_with_the_stage,
)


# --- at rest ----------------------------------------------------------------------------------------------------------


def at_rest(scene: Scene) -> list[str]:
    """Nobody works and every call has landed: outside and ledger agree, and nothing is held that nobody will free."""
    return [said for law in (comes_to_rest, merges_agree, production_agrees) for said in law(scene)]


def comes_to_rest(scene: Scene) -> Iterator[str]:
    """Every task has ended, or waits for somebody who is named; no lease, effect, job or word of a person is left."""
    ledger = scene.ledger
    for task, row in ledger.tasks.items():
        queued = any(job["task_id"] == task and job["status"] == "queued" for job in ledger.jobs)
        waits = row["hold"] is not None or (row["stage"] == "development" and queued)
        if row["stage"] not in ("done", "cancelled") and not waits:
            yield f"STUCK: task {task} stays in {row['stage']}"
    for effect in ledger.effects:
        if effect["state"] in UNSETTLED:
            yield f"STUCK: {effect['name']} of task {effect['task_id']} stays {effect['state']}"
    for lease in ledger.leases:
        yield f"a lease is left: task {lease['task_id']} of {lease['owner']}"
    for job in ledger.jobs:
        if job["status"] == "running":
            yield f"a job is left running: {job['kind']} of task {job['task_id']}"
    for word in ledger.inbox:
        if word["handled_at"] is None:
            yield f"a person's {word['kind']} was not answered"


def merges_agree(scene: Scene) -> Iterator[str]:
    """Each merge on main: its task is done, or shown to a person as broken; and it was counted by the ratchet once."""
    counted = [row["merged_sha"] for row in scene.ledger.baselines]
    for task, row in scene.ledger.tasks.items():
        landed = scene.on_main(task)
        if landed and not (
            row["stage"] == "done" or (row["stage"] == "deploy" and row["hold"] == "escalated")
        ):
            yield f"merged, but task {task} is in {row['stage']} ({row['hold']})"
        if landed and counted.count(landed[0]) != 1:
            yield "a merge was not counted by the ratchet"
        applied = [e for e in scene.ledger.effects_of(task, "merge_pr") if e["state"] == "applied"]
        if bool(applied) != bool(landed):
            yield f"ledger and main disagree about task {task}"


def production_agrees(scene: Scene) -> Iterator[str]:
    """Each environment runs what the ledger's last settled start says; production the newest done merge, or what an
    undo has restored."""
    for environment, runs in scene.outside.environments.runs.items():
        journal = [ran for ran in scene.outside.environments.journal if ran.start.environment == environment]
        settled = {e["sequence"]: e["state"] for e in scene.ledger.effects if e["name"].startswith("deploy_")}
        if journal and settled.get(journal[-1].start.sequence) != "applied":
            yield f"{environment} was changed by a start that the ledger has not settled as applied"
        if (
            environment == "production"
            and runs is not None
            and runs not in scene.outside.objects.ancestors(scene.main)
        ):
            yield "production runs what is not on main"
