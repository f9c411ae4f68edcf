"""The ledger: intent, probe, act, probe, settle; or revoke, probe, settle (laws 3 and 4). Every branch, counted.

The double stands for an authority: it counts what reaches it and shows what it was told to show.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from orchestrator.db import effects, leases, slots
from orchestrator.db.effects import intend
from orchestrator.domain.effect import (
    Applied,
    Cause,
    EffectName,
    EffectState,
    GivingUp,
    Intent,
    NotApplied,
    Probe,
    Underway,
    Unknown,
)
from orchestrator.domain.errors import AuthorityUnreachable, ConstraintRefused, LostRace
from orchestrator.domain.ids import BootId
from orchestrator.domain.lease import Actor, Lease
from orchestrator.domain.stage import Stage
from orchestrator.domain.task import Task
from orchestrator.effects.ledger import Ledger, Open, Proof
from orchestrator.observability.redactor import Redactor
from orchestrator.ownership.term import Term
from tests.fixtures_db import REPO, Store

SECRET = "a-secret-of-the-forge"

APPLIED, NOT_APPLIED, UNKNOWN = Applied({"sha": "m"}), NotApplied({"tip": "b"}), Unknown("the forge is away")


@dataclass
class Authority:
    """One place outside. ``happened`` is its truth; ``readable`` whether it can be asked."""

    name: EffectName = EffectName.MERGE_PR
    happened: bool = False
    readable: bool = True
    underway: bool = False  # it has begun, and cannot be called back
    refuses: bool = False  # the act's answer is an error; says nothing about ``lands``
    lands: bool = True
    revocable: bool = True
    turned_by: str | None = None
    turned_unreadable: bool = False
    fenced: bool = False
    says: str = ""  # what its errors end in
    journal: list[str] = field(default_factory=list)
    on: dict[str, Callable[[], None]] = field(default_factory=dict)
    failures: list[Exception | None] = field(default_factory=list)

    def probe(self, intent: Intent) -> Probe:
        self._note("probe")
        if not self.readable:
            return replace(UNKNOWN, reason=UNKNOWN.reason + self.says)
        if self.underway:
            return Underway("it has not ended")
        return APPLIED if self.happened else NOT_APPLIED

    def act(self, intent: Intent) -> None:
        self._note("act")
        if self.lands and not self.fenced:
            self.happened = True
        if self.refuses or self.fenced:
            raise AuthorityUnreachable(f"405 try again later{self.says}")

    def turned(self, intent: Intent, failure: Exception | None) -> str | None:
        self.failures.append(failure)
        if self.turned_unreadable:
            raise AuthorityUnreachable(f"main cannot be read{self.says}")
        return self.turned_by

    def revoke(self, intent: Intent) -> None:
        self._note("revoke")
        if not self.revocable:
            raise AuthorityUnreachable(f"no answer{self.says}")
        self.fenced = True

    def _note(self, what: str) -> None:
        self.journal.append(what)
        self.on.get(what, lambda: None)()


class Points:
    """Every waypoint that was reached."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def reach(self, name: str, **data: object) -> None:
        self.names.append(name)


@dataclass
class Scene:
    """A task in deploy-staging with one intended merge, and the ledger that drives it."""

    store: Store
    task: Task
    lease: Lease
    intent: Intent
    authority: Authority
    points: Points
    ledger: Ledger
    term: Term

    def drive(self, turned: str | None = None) -> Proof | Open:
        decision = GivingUp(Cause.CANCELLED, turned) if turned is not None else None
        return self.ledger.drive(self.lease, self.task, self.stored(), turned=decision)

    def stored(self) -> Intent:
        with self.store.database.read() as tx:
            (found,) = effects.of_task(tx, self.task.id)
            return found

    def column(self, name: str) -> object:
        return self.store.rows(f"SELECT {name} FROM effects")[0][0]

    def events(self) -> list[str]:
        return [
            row[0]
            for row in self.store.rows("SELECT type FROM events WHERE type LIKE 'effect.%' ORDER BY id")
        ]

    def settle(self, proof: Proof) -> None:
        with self.store.database.write() as tx:
            self.ledger.settle(tx, self.lease, self.task, proof)

    def taken_over(self) -> Lease:
        """Another owner: the epoch has risen, nothing else has happened."""
        newer = Lease(self.task.id, Actor.RECOVERY, BootId("other"), self.lease.epoch + 1, self.lease.stage)
        with self.store.database.write() as tx:
            assert leases.raise_epoch(tx, newer)
        return newer


@pytest.fixture
def scene(store: Store) -> Scene:
    task = store.new_task(stage=Stage.DEPLOY_STAGING)
    lease = Lease(task.id, Actor.MONITOR, BootId("me"), task.epoch, task.stage)
    with store.database.write() as tx:
        intent = intend(
            tx, lease, EffectName.MERGE_PR, "m", task.round, token="t1", judged={"head": "h", "base": "b"}
        )
    authority, points = Authority(), Points()
    term = Term(store.clock, 30.0)
    term.renew(store.clock.boottime())
    ledger = Ledger(
        store.database,
        {EffectName.MERGE_PR: authority},
        term=term,
        waypoints=points,
        redactor=Redactor([SECRET]),
    )
    return Scene(store, task, lease, intent, authority, points, ledger, term)


def proven(result: Proof | Open) -> Proof:
    assert isinstance(result, Proof), result
    return result


def unproven(result: Proof | Open) -> Open:
    assert isinstance(result, Open), result
    return result


@pytest.mark.parametrize("refuses", ["act", "turned", "probe", "revoke", "probe after revoke"])
def test_what_an_authority_says_is_stored_and_told_without_secrets(scene: Scene, refuses: str) -> None:
    at = scene.authority
    at.says = f" of https://me:{SECRET}@forge"
    at.readable = refuses != "probe"
    at.turned_unreadable = refuses == "turned"
    at.refuses, at.lands = refuses == "act", False
    at.revocable = refuses != "revoke"
    if refuses == "probe after revoke":
        at.on["revoke"] = lambda: setattr(at, "readable", False)
    told = unproven(scene.drive("a cancel" if "revoke" in refuses else None))
    assert "of https://me:***" in told.reason
    assert not scene.store.rows("SELECT 1 FROM events WHERE data LIKE :s", {"s": f"%{SECRET}%"})
    assert SECRET not in str(scene.column("reason"))


def test_an_intent_keeps_what_was_judged(scene: Scene) -> None:
    stored = scene.stored()
    assert stored == scene.intent
    assert (stored.state, stored.token, stored.actor) == (EffectState.INTENDED, "t1", "monitor")
    assert stored.judged == {"head": "h", "base": "b"}
    assert stored.sequence == 1


def test_the_same_intent_twice_is_one_row(scene: Scene) -> None:
    with scene.store.database.write() as tx:
        again = intend(
            tx, scene.lease, EffectName.MERGE_PR, "m", scene.task.round, token="t2", judged={"head": "other"}
        )
    assert again == scene.intent
    assert scene.stored() == scene.intent


def test_another_round_is_another_act(scene: Scene) -> None:
    with scene.store.database.write() as tx:
        other = intend(tx, scene.lease, EffectName.MERGE_PR, "m", 2, token="t2", judged={})
    assert other.effect_id != scene.intent.effect_id
    assert other.sequence > scene.intent.sequence


def test_an_intent_needs_the_newest_lease(scene: Scene) -> None:
    scene.taken_over()
    with pytest.raises(LostRace), scene.store.database.write() as tx:
        intend(tx, scene.lease, EffectName.PUSH, "p", 1, token="t", judged={})
    assert len(scene.store.rows("SELECT id FROM effects")) == 1


def test_applied_at_once_is_never_acted_again(scene: Scene) -> None:
    """A crash between act and settle: the next owner looks before it acts."""
    scene.authority.happened = True
    proof = proven(scene.drive())
    assert (proof.state, proof.fact) == (EffectState.APPLIED, APPLIED.fact)
    assert scene.authority.journal == ["probe"]


def test_act_then_applied(scene: Scene) -> None:
    proof = proven(scene.drive())
    assert proof.state is EffectState.APPLIED
    assert scene.authority.journal == ["probe", "act", "probe"]
    assert scene.points.names == [
        "merge_pr.before_probe",
        "merge_pr.after_probe",
        "merge_pr.before_act",
        "merge_pr.after_act",
        "merge_pr.before_probe",
        "merge_pr.after_probe",
    ]


def test_driving_settles_nothing_and_settling_is_once(scene: Scene) -> None:
    proof = proven(scene.drive())
    assert scene.stored().state is EffectState.INTENDED
    scene.settle(proof)
    assert scene.stored().state is EffectState.APPLIED
    assert scene.stored().fact == APPLIED.fact
    assert scene.column("settled_at") == "2026-01-05T10:00:00.000000Z"
    assert scene.events() == ["effect.settled"]
    with pytest.raises(LostRace, match="already settled"):
        scene.settle(proof)
    assert scene.events() == ["effect.settled"]


def test_the_intent_is_durable_before_the_act(scene: Scene) -> None:
    seen: list[object] = []
    scene.authority.on["act"] = lambda: seen.append(scene.column("state"))
    scene.drive()
    assert seen == ["intended"]


def test_a_refusal_is_believed_by_nobody(scene: Scene) -> None:
    """The answer was an error and the act had landed all the same."""
    scene.authority.refuses = True
    assert proven(scene.drive()).state is EffectState.APPLIED


def test_a_refusal_that_did_not_land_stays_open(scene: Scene) -> None:
    scene.authority.refuses, scene.authority.lands = True, False
    still = unproven(scene.drive())
    assert (still.in_doubt, still.reason) == (False, "405 try again later")
    assert scene.stored().state is EffectState.INTENDED
    assert isinstance(scene.authority.failures[-1], AuthorityUnreachable)
    scene.authority.refuses, scene.authority.lands = False, True
    assert proven(scene.drive()).state is EffectState.APPLIED
    assert scene.authority.journal.count("act") == 2


def test_an_act_that_is_not_to_be_seen_yet_stays_open(scene: Scene) -> None:
    scene.authority.lands = False
    still = unproven(scene.drive())
    assert not still.in_doubt
    assert "does not show it yet" in still.reason


def test_unknown_is_held_and_stored_once(scene: Scene) -> None:
    scene.authority.readable = False
    for _ in range(3):
        still = unproven(scene.drive())
        assert (still.in_doubt, still.reason) == (True, "the forge is away")
    assert scene.stored().state is EffectState.IN_DOUBT
    assert scene.authority.journal == ["probe"] * 3
    assert scene.events() == ["effect.in_doubt"]
    assert scene.column("reason") == "the forge is away"


def test_unknown_then_later_intended_then_applied(scene: Scene) -> None:
    scene.authority.readable = False
    scene.drive()
    scene.authority.readable = True
    seen: list[object] = []
    scene.authority.on["act"] = lambda: seen.append(scene.column("state"))
    scene.settle(proven(scene.drive()))
    assert seen == ["intended"]
    assert scene.stored().state is EffectState.APPLIED
    assert scene.events() == ["effect.in_doubt", "effect.intended", "effect.settled"]


def test_unknown_then_it_turns_out_to_have_happened(scene: Scene) -> None:
    scene.authority.readable = False
    scene.drive()
    scene.authority.readable, scene.authority.happened = True, True
    scene.settle(proven(scene.drive()))
    assert scene.stored().state is EffectState.APPLIED
    assert "act" not in scene.authority.journal


def test_unknown_after_the_act_is_held(scene: Scene) -> None:
    def vanish() -> None:
        scene.authority.readable = False

    scene.authority.on["act"] = vanish
    assert unproven(scene.drive()).in_doubt
    assert scene.stored().state is EffectState.IN_DOUBT
    scene.authority.readable = True
    assert proven(scene.drive()).state is EffectState.APPLIED
    assert scene.authority.journal.count("act") == 1


@pytest.mark.parametrize("failed", [False, True], ids=["before_the_act", "after_a_refusal"])
def test_where_turning_cannot_be_judged_it_is_held(scene: Scene, failed: bool) -> None:
    if failed:
        scene.authority.refuses, scene.authority.lands = True, False

        def vanish() -> None:
            scene.authority.turned_unreadable = True

        scene.authority.on["act"] = vanish
    else:
        scene.authority.turned_unreadable = True
    assert unproven(scene.drive()).in_doubt
    assert scene.stored().state is EffectState.IN_DOUBT
    assert scene.authority.journal.count("act") == (1 if failed else 0)
    assert "revoke" not in scene.authority.journal


@pytest.mark.parametrize("by", ["the_effect", "a_cancel"])
def test_turned_is_durable_before_it_is_revoked(scene: Scene, by: str) -> None:
    seen: list[object] = []
    scene.authority.on["revoke"] = lambda: seen.append((scene.column("state"), scene.column("reason")))
    if by == "the_effect":
        scene.authority.turned_by = "main has moved"
    proof = proven(scene.drive(None if by == "the_effect" else "main has moved"))
    assert seen == [("revoking", "main has moved")]
    assert (proof.state, proof.fact, proof.reason) == (
        EffectState.REVOKED,
        NOT_APPLIED.fact,
        "main has moved",
    )
    assert scene.authority.journal == ["probe", "revoke", "probe"]
    scene.settle(proof)
    assert scene.stored().state is EffectState.REVOKED
    assert scene.events() == ["effect.revoking", "effect.settled"]


def test_a_cancel_comes_too_late_for_what_has_happened(scene: Scene) -> None:
    scene.authority.happened = True
    assert proven(scene.drive("cancelled by a person")).state is EffectState.APPLIED
    assert scene.authority.journal == ["probe"]
    assert scene.stored().state is EffectState.INTENDED


def test_turned_after_a_refused_act_is_revoked(scene: Scene) -> None:
    scene.authority.refuses, scene.authority.lands = True, False

    def turn() -> None:
        scene.authority.turned_by = "the head has moved"

    scene.authority.on["act"] = turn
    assert proven(scene.drive()).state is EffectState.REVOKED
    assert scene.authority.journal == ["probe", "act", "probe", "revoke", "probe"]


def test_it_landed_before_it_could_be_revoked(scene: Scene) -> None:
    """A call that was on its way arrives between the last look and the fence: applied after all."""

    def late() -> None:
        scene.authority.happened = True

    scene.authority.on["revoke"] = late
    proof = proven(scene.drive("cancelled"))
    assert proof.state is EffectState.APPLIED
    scene.settle(proof)
    assert scene.stored().state is EffectState.APPLIED
    assert scene.column("reason") == "it had taken place before it could be revoked"


def test_after_a_revoke_no_call_lands(scene: Scene) -> None:
    proof = proven(scene.drive("cancelled"))
    with pytest.raises(AuthorityUnreachable):
        scene.authority.act(scene.intent)
    assert not scene.authority.happened
    assert proof.state is EffectState.REVOKED


def test_an_unreachable_authority_keeps_it_revoking_and_the_next_owner_finishes(scene: Scene) -> None:
    """Giving up is a decision like any other: whoever takes over finishes it, and does not act."""
    scene.authority.revocable = False
    for _ in range(2):
        still = unproven(scene.drive("cancelled"))
        assert still.in_doubt
        assert "could not be revoked" in still.reason
        assert scene.stored().state is EffectState.REVOKING
    scene.lease = scene.taken_over()
    scene.authority.revocable = True
    proof = proven(scene.drive())  # the cancel is not told again
    assert proof.state is EffectState.REVOKED
    scene.settle(proof)
    assert "act" not in scene.authority.journal
    assert scene.events() == ["effect.revoking", "effect.settled"]
    assert scene.column("reason") == "cancelled"


def test_unreadable_after_the_revoke_keeps_it_revoking(scene: Scene) -> None:
    def vanish() -> None:
        scene.authority.readable = False

    scene.authority.on["revoke"] = vanish
    assert unproven(scene.drive("cancelled")).in_doubt
    assert scene.stored().state is EffectState.REVOKING
    scene.authority.on.clear()
    scene.authority.readable = True
    assert proven(scene.drive()).state is EffectState.REVOKED
    assert "act" not in scene.authority.journal


def test_giving_up_on_what_is_in_doubt_revokes_first(scene: Scene) -> None:
    scene.authority.readable = False
    scene.drive()
    scene.authority.readable = True
    assert proven(scene.drive("cancelled")).state is EffectState.REVOKED
    assert scene.events() == ["effect.in_doubt", "effect.revoking"]
    assert "act" not in scene.authority.journal


def test_not_applied_alone_is_never_enough_to_give_up(scene: Scene) -> None:
    """No path leads from a probe to revoked: the schema refuses it too."""
    proof = Proof(scene.intent, EffectState.REVOKED, NOT_APPLIED.fact, "it was not there")
    with pytest.raises(ConstraintRefused, match="does not move that way"):
        scene.settle(proof)
    assert scene.stored().state is EffectState.INTENDED


def test_a_stale_owner_does_not_act(scene: Scene) -> None:
    """The epoch rises between the first look and the act: nothing is sent and nothing is stored."""
    taken: list[Lease] = []

    def take_over() -> None:
        if not taken:
            taken.append(scene.taken_over())

    scene.authority.on["probe"] = take_over
    with pytest.raises(LostRace):
        scene.drive()
    assert scene.authority.journal == ["probe"]
    assert scene.stored() == scene.intent
    assert scene.events() == []


@pytest.mark.parametrize("branch", ["give_up", "doubt", "settle", "in_doubt_to_intended"])
def test_a_stale_owner_stores_nothing(scene: Scene, branch: str) -> None:
    scene.authority.happened = branch == "settle"
    if branch == "in_doubt_to_intended":
        scene.authority.readable = False
        scene.drive()
        scene.authority.readable = True
    if branch == "doubt":
        scene.authority.readable = False
    proof = scene.drive() if branch == "settle" else None
    before, events = scene.stored(), scene.events()
    scene.taken_over()
    with pytest.raises(LostRace):
        if branch == "settle":
            scene.settle(proven(proof or scene.drive()))
        else:
            scene.drive("cancelled" if branch == "give_up" else None)
    assert scene.stored() == before
    assert scene.events() == events
    assert "act" not in scene.authority.journal
    assert "revoke" not in scene.authority.journal


def test_two_owners_and_one_act(scene: Scene) -> None:
    """A is frozen after its act left; B takes over, sees it applied and settles; A wakes and changes nothing."""
    results: list[Proof | Open] = []

    def frozen() -> None:
        scene.authority.on.clear()
        older, scene.lease = scene.lease, scene.taken_over()
        result = scene.drive()
        scene.settle(proven(result))
        results.append(result)
        scene.lease = older

    scene.authority.lands = True
    scene.authority.on["act"] = lambda: None
    original = scene.authority.act

    def act(intent: Intent) -> None:
        original(intent)
        frozen()

    scene.authority.act = act  # type: ignore[method-assign]
    late = proven(scene.drive())
    with pytest.raises(LostRace):
        scene.settle(late)
    assert scene.authority.journal.count("act") == 1
    assert [row["state"] for row in scene.store.rows("SELECT state FROM effects")] == ["applied"]


def test_an_unsettled_effect_comes_with_the_task(scene: Scene) -> None:
    with scene.store.database.write() as tx:
        assert effects.unsettled(tx, scene.task.id) == [scene.intent]
        assert effects.all_unsettled(tx) == [scene.intent]
        assert effects.applied(tx, scene.task.id, EffectName.MERGE_PR) is None
    scene.settle(proven(scene.drive()))
    with scene.store.database.write() as tx:
        assert effects.unsettled(tx, scene.task.id) == []
        merged = effects.applied(tx, scene.task.id, EffectName.MERGE_PR)
        assert merged is not None
        assert merged.effect_id == scene.intent.effect_id
        assert effects.find(tx, scene.task.id, EffectName.MERGE_PR, "m", 1) == merged
        assert effects.find(tx, scene.task.id, EffectName.MERGE_PR, "m", 9) is None


def start(scene: Scene, key: str, facts: Mapping[str, object]) -> Intent:
    with scene.store.database.write() as tx:
        place = slots.environment_slot(str(facts["environment"]))
        assert slots.take_all(tx, REPO, scene.task.id, [place]) is None
        return intend(tx, scene.lease, EffectName.DEPLOY_INIT, key, 1, token="1", judged=facts)


def test_a_generation_is_drawn_while_no_start_is_unsettled(scene: Scene) -> None:
    def draw(sha: str = "a") -> tuple[int, int] | None:
        with scene.store.database.write() as tx:
            return effects.draw_generation(tx, "production", sha)

    assert draw() == (1, 1)
    facts = {"environment": "production", "sha": "a", "generation": 1}
    intent = start(scene, "production/a/1", facts)
    assert draw() is None
    with scene.store.database.write() as tx:
        assert effects.draw_generation(tx, "staging", "a") == (1, 1)
        assert effects.last_start(tx, "production") is None
        effects.settle(tx, scene.lease, intent, EffectState.APPLIED, {}, "")
        last = effects.last_start(tx, "production")
        assert last is not None
        assert last.key == "production/a/1"
    assert draw() == (2, 2)
    assert draw("b") == (1, 3)  # a SHA's own generation, the environment's own token


def frozen(scene: Scene, *, heartbeat: bool) -> None:
    """Our process stood still for longer than its term; with ``heartbeat`` a first one has been stored again."""
    scene.store.clock.advance(scene.term.length_s)
    if heartbeat:
        scene.term.renew(scene.store.clock.boottime())


@pytest.mark.parametrize("heartbeat", [False, True], ids=["still silent", "heard of again"])
def test_whose_own_term_has_ended_does_not_act(scene: Scene, heartbeat: bool) -> None:
    """Nobody has taken over yet, so that the epoch says nothing; but somebody might at any moment (law 12)."""
    scene.authority.on["probe"] = lambda: frozen(scene, heartbeat=heartbeat)
    with pytest.raises(LostRace, match="term of this process's leases has ended"):
        scene.drive()
    assert scene.authority.journal == ["probe"]
    assert scene.stored().state is EffectState.INTENDED


def test_whose_own_term_has_ended_does_not_revoke(scene: Scene) -> None:
    """The decision to give up is durable; whoever comes next revokes."""
    scene.authority.turned_by = "main has moved"
    scene.authority.on["probe"] = lambda: frozen(scene, heartbeat=False)
    with pytest.raises(LostRace, match="term of this process's leases has ended"):
        scene.drive()
    assert scene.authority.journal == ["probe"]
    assert scene.stored().state is EffectState.REVOKING


def test_without_a_lease_there_is_no_term_to_end(scene: Scene) -> None:
    """Out of scope nobody takes over because of silence (FR-7)."""
    scene.authority.on["probe"] = lambda: frozen(scene, heartbeat=False)
    out_of_scope = replace(scene.lease, durable=False)
    assert proven(scene.ledger.drive(out_of_scope, scene.task, scene.intent)).state is EffectState.APPLIED


def test_what_is_under_way_is_neither_acted_again_nor_settled_nor_doubted(scene: Scene) -> None:
    scene.authority.underway = True
    seen = scene.drive()
    assert isinstance(seen, Open)
    assert (seen.in_doubt, seen.reason, scene.column("state")) == (False, "it has not ended", "intended")
    assert scene.authority.journal == ["probe"]
    scene.authority.underway, scene.authority.happened = False, True
    assert isinstance(scene.drive(), Proof)


def test_doubt_ends_where_it_is_seen_to_be_under_way(scene: Scene) -> None:
    scene.authority.readable = False
    assert isinstance(scene.drive(), Open)
    assert scene.column("state") == "in_doubt"
    scene.authority.readable, scene.authority.underway = True, True
    assert isinstance(scene.drive(), Open)
    assert scene.column("state") == "intended"


def test_what_is_under_way_when_it_is_given_up_is_settled_at_its_end(scene: Scene) -> None:
    scene.authority.underway = True
    seen = scene.ledger.give_up(
        scene.lease, scene.task, scene.stored(), GivingUp(Cause.FACTS, "no longer wanted")
    )
    assert isinstance(seen, Open)
    assert (seen.in_doubt, scene.column("state")) == (False, "revoking")
    scene.authority.underway, scene.authority.happened = False, True
    ended = scene.drive()
    assert isinstance(ended, Proof)
    assert ended.state is EffectState.APPLIED
