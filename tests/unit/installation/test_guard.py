"""The installation's guard beside a service at work: what happens while it looks, what cannot be read, what hangs."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from orchestrator.db import effects, installation, repositories, restored
from orchestrator.deploy.deployer import Deployer
from orchestrator.deploy.records import (
    START_FILE,
    STARTED_FILE,
    Claimant,
    ConditionalUndo,
    DeployKind,
    DeployStart,
    Started,
    start_folder,
    to_bytes,
)
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.errors import AuthorityUnreachable, InstallationChanged
from orchestrator.domain.ids import BootId, RepoName, Sha, TaskId, WorkItem
from orchestrator.domain.installation import Cause, Finding, InstallationMark, SeenCandidate
from orchestrator.effects.deploy import prepared_undo
from orchestrator.forges.forge import Forge
from orchestrator.installation.acceptance import Acceptance
from orchestrator.installation.claims import Claims
from orchestrator.installation.closings import Closings
from orchestrator.installation.comparison import Comparison
from orchestrator.installation.guard import InstallationGuard
from orchestrator.installation.survey import Surveyor
from orchestrator.places import Folders, Place
from orchestrator.runtime.entropy import SeededEntropy
from orchestrator.runtime.process import SystemProcesses
from tests.fixtures_db import REPO, Store
from tests.fixtures_pipeline import Points
from tests.waiting import wait_until

OTHER = RepoName("other")
BEFORE, M = Sha("a" * 40), Sha("b" * 40)


@dataclass
class Shown:
    """What one forge shows; ``asked`` is called whenever it is read, after ``down`` has had its say."""

    repo: RepoName
    default_branch: str = "main"
    mark: InstallationMark | None = None
    main: Sha = BEFORE
    merged: list[SeenCandidate] = field(default_factory=list)
    fences: dict[TaskId, int] = field(default_factory=dict)
    down: bool = False
    asked: Callable[[str], object] = lambda what: None

    def _read(self, what: str) -> None:
        if self.down:
            raise AuthorityUnreachable("The forge does not answer.")
        self.asked(what)

    def installation(self) -> InstallationMark | None:
        self._read("mark")
        return self.mark

    def claim_installation(self, held: InstallationMark | None, mark: InstallationMark) -> None:
        self._read("claim")
        if self.mark != held:
            raise InstallationChanged("It is another one.")
        self.mark = mark

    def merged_since(self, known: Sequence[Sha]) -> Sequence[SeenCandidate]:
        self._read("merged")
        return list(self.merged)

    def candidates(self) -> Sequence[SeenCandidate]:
        return []

    def highest_fence(self, tasks: Sequence[TaskId] | None = None) -> int:
        self._read("fence")
        return max((n for task, n in self.fences.items() if tasks is None or task in tasks), default=0)

    def tip(self, branch: str) -> Sha:
        main = self.main
        self._read("main")
        return main

    def contains(self, descendant: Sha, ancestor: Sha) -> bool:
        return any(one.sha == ancestor for one in self.merged) and descendant != BEFORE


class WatchedFolders(Folders):
    """The state folder; ``looked`` is called when somebody is about to look into it."""

    def __init__(self, home: Path, looked: Callable[[], object]) -> None:
        super().__init__(home)
        object.__setattr__(self, "looked", looked)

    @property
    def runs(self) -> Path:
        self.looked()  # type: ignore[attr-defined]
        return self.home / "runs"


@dataclass
class Bench:
    """A database, two forges, and a guard for each life of the process."""

    store: Store
    home: Path
    forges: dict[RepoName, Shown]
    points: Points = field(default_factory=Points)
    entropy: SeededEntropy = field(default_factory=SeededEntropy)
    looked: Callable[[], object] = lambda: None

    def of(self, repo: str) -> Place:
        shown = self.forges[RepoName(repo)]
        return replace(_PLACE, forge=cast(Forge, shown), repo=shown.repo)

    def life(self) -> InstallationGuard:
        folders = WatchedFolders(self.home, lambda: self.looked())
        comparison = Comparison(self.store.database, self, folders)
        claims = Claims(self.store.database, comparison, entropy=self.entropy, waypoints=self.points)
        return InstallationGuard(comparison, claims, Closings(self.store.database))

    def closed(self) -> dict[RepoName, Finding]:
        """What the database says."""
        with self.store.database.read() as tx:
            return {one.repo: one.closed for one in installation.states(tx) if one.closed is not None}

    def merge(self, *, known: bool, sequence: int = 1) -> SeenCandidate:
        """A merge of ours stands on the sample's main."""
        task = self.store.new_task()
        with self.store.database.write() as tx:
            ours = installation.identity(tx)
            seen = SeenCandidate(M, M, BEFORE, M, "T", task.work_item, f"n{sequence}", ours, sequence)
            if known:
                restored.add_candidate(tx, task, seen)
        self.forges[REPO].merged.append(seen)
        self.forges[REPO].main = M
        return seen

    def settle(self) -> None:
        """The ledger settles a merge of M."""
        task = self.store.new_task()
        with self.store.database.write() as tx:
            state, fact = EffectState.APPLIED, {"merged": M}
            assert restored.add_effect(
                tx, task, EffectName.MERGE_PR, M, 1, state, token="t", judged={}, fact=fact, sequence=7
            )


_PLACE = Place(REPO, cast(Forge, None), None, None)  # type: ignore[arg-type]


@pytest.fixture
def bench(store: Store, tmp_path: Path) -> Bench:
    with store.database.write() as tx:
        repositories.add(tx, repositories.Repository(OTHER, "local", "/nowhere", "OTH"))
    return Bench(store, tmp_path / "home", {name: Shown(name) for name in (REPO, OTHER)})


def once(wanted: str, act: Callable[[], object]) -> Callable[[str], None]:
    """Act when this is asked for the first time."""
    left = [act]

    def asked(what: str) -> None:
        if what == wanted and left:
            left.pop()()

    return asked


# -- the service is at work meanwhile -----------------------------------------------------------------------------


def test_a_merge_of_ours_while_it_looks_is_no_restore(bench: Bench) -> None:
    bench.forges[REPO].asked = once("mark", lambda: bench.merge(known=True))
    assert bench.life().start() == {}


def test_a_fence_of_ours_while_it_looks_is_no_restore(bench: Bench) -> None:
    task = bench.store.new_task()

    def fence() -> None:
        with bench.store.database.write() as tx:
            restored.lift_sequence(tx, 9)
        bench.forges[REPO].fences[task.id] = 9

    bench.forges[REPO].asked = once("main", fence)
    assert bench.life().start() == {}


def test_a_run_of_ours_while_it_looks_is_no_restore(bench: Bench) -> None:
    def run() -> None:
        with bench.store.database.write() as tx:
            restored.accept_trace(tx, "SMP-1-1-1-ab")
        folder = bench.home / "runs" / "SMP-1-1-1-ab"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "STARTED").touch()

    bench.looked = run
    assert bench.life().start() == {}


def test_a_merge_settled_while_it_looks_is_not_lost(bench: Bench) -> None:
    bench.forges[REPO].asked = once("main", bench.settle)
    assert bench.life().start() == {}


def test_a_start_of_another_process_of_ours_while_it_looks_is_no_restore(bench: Bench) -> None:
    bench.life().start()
    bench.forges[REPO].asked = once("mark", lambda: bench.life().start())
    assert bench.life().start() == {}


def test_what_it_does_not_know_is_a_restore(bench: Bench) -> None:
    bench.merge(known=False)
    assert {one.cause for one in bench.life().start().values()} == {Cause.DATABASE}
    assert bench.closed().keys() == {REPO, OTHER}


def test_the_fence_of_every_open_task_counts(bench: Bench) -> None:
    last = [bench.store.new_task(f"Task {n}").id for n in range(205)][-1]
    bench.forges[REPO].fences[last] = 9
    assert bench.life().start()[REPO].cause is Cause.DATABASE


def acceptance_of(bench: Bench, guard: InstallationGuard) -> Acceptance:
    database = bench.store.database
    folders = Folders(bench.home)
    return Acceptance(
        database,
        Surveyor(database, folders, Comparison(database, bench, folders)),
        guard,
        cast(Deployer, None),
        boot_id=BootId("one"),
        entropy=bench.entropy,
        wake=lambda ids: None,
    )


def test_accepting_lifts_the_ledger_above_the_fences_of_tasks_that_it_has_lost(bench: Bench) -> None:
    """Their numbers are given to new tasks: what those push would be refused as given up."""
    bench.merge(known=False)
    bench.forges[REPO].fences[TaskId(99)] = 500
    guard = bench.life()
    guard.start()
    acceptance, database = acceptance_of(bench, guard), bench.store.database
    acceptance.accept(person="Ann", reason="the disk was lost")
    with database.write() as tx:
        sequence, _ = effects.next_sequence(tx)
    assert sequence > 500


def test_numbers_that_nobody_can_have_given_are_accepted_and_lift_nothing(bench: Bench) -> None:
    """Whoever pushes to main can write a merge like ours; it must not keep the restore from being accepted."""
    seen = bench.merge(known=False)
    bench.forges[REPO].merged[:] = [replace(seen, work_item=WorkItem("SMP-" + "9" * 30))]
    guard = bench.life()
    guard.start()
    assert acceptance_of(bench, guard).accept(person="Ann", reason="x")["opened"] == {REPO: True, OTHER: True}
    with bench.store.database.write() as tx:
        assert len(repositories.next_work_item(tx, REPO)) < 10


def test_a_start_of_ourselves_keeps_its_undo_and_that_undos_numbers(bench: Bench) -> None:
    """Its runner may be at work: until it is called off the task is not done, and its numbers are nobody else's."""
    with bench.store.database.read() as tx:
        ours = installation.identity(tx)
    forward = DeployStart(
        "production", M, 1, None, None, "7", ("deploy",), 5.0, WorkItem("SMP-1"), 40, ours
    )  # fmt: skip
    back = replace(forward, generation=2, token="8", sequence=41, kind=DeployKind.UNDO, argv=("undo",),
                   env={"ORCH_PREVIOUS_SHA": BEFORE})  # fmt: skip
    folder = start_folder(bench.home / "deploys", "production", M, 1)
    folder.mkdir(parents=True)
    (folder / START_FILE).write_bytes(to_bytes(replace(forward, undo=ConditionalUndo(back, 60.0))))
    somebody = SystemProcesses().own()
    claim = Started(Claimant.CHILD, forward.installation, 40, "7", "now", "here", somebody, somebody)
    (folder / STARTED_FILE).write_bytes(to_bytes(claim))
    guard = bench.life()
    guard.start()
    acceptance_of(bench, guard).accept(person="Ann", reason="the disk was lost")
    with bench.store.database.write() as tx:
        known = effects.last_start(tx, "production")
        assert known is not None
        prepared = prepared_undo(known)
        assert prepared is not None
        assert prepared.start() == back
        assert prepared.judged["restored_sha"] == BEFORE
        assert effects.draw_generation(tx, "production", M) is None  # the runner decides first
        assert effects.next_sequence(tx)[0] > 41
        assert effects.raise_environment(tx, "production") > 8


def test_what_closes_everything_is_not_overtaken_by_an_opening(bench: Bench) -> None:
    guard = bench.life()

    def everything_closes() -> None:
        bench.merge(known=False)
        guard.why_closed(REPO)

    bench.points.on("installation.before_claim", everything_closes, repo=OTHER)
    assert "does not know" in str(guard.why_closed(OTHER))
    assert guard.open_repositories() == frozenset()
    assert bench.closed().keys() == {REPO, OTHER}


# -- what cannot be read ------------------------------------------------------------------------------------------


def test_closed_and_then_unreadable_it_stays_closed_until_it_is_read(bench: Bench) -> None:
    guard = bench.life()
    bench.forges[REPO].mark = InstallationMark("theirs", 3, "x")
    guard.start()
    bench.forges[REPO].down = True
    assert guard.look_again() == 0
    assert "another database" in str(guard.why_closed(REPO))
    bench.forges[REPO].down, bench.forges[REPO].mark = False, None
    assert guard.look_again() == 1
    assert guard.why_closed(REPO) is None


def test_what_an_earlier_life_closed_stays_closed_until_it_is_read(bench: Bench) -> None:
    bench.forges[REPO].mark = InstallationMark("theirs", 3, "x")
    bench.life().start()
    bench.forges[REPO].down = True
    guard = bench.life()
    assert guard.start()[REPO].cause is Cause.STRANGER
    assert guard.open_repositories() == {OTHER}


def test_one_that_showed_a_restore_and_cannot_be_read_keeps_the_others_closed(bench: Bench) -> None:
    bench.merge(known=False)
    bench.life().start()
    bench.forges[REPO].down = True
    guard = bench.life()
    assert guard.start().keys() == {REPO, OTHER}
    assert guard.look_again() == 0
    assert guard.all_closed()


def test_unread_at_the_start_it_is_looked_at_again(bench: Bench) -> None:
    bench.forges[REPO].down = True
    guard = bench.life()
    assert guard.start() == {}
    assert guard.open_repositories() == {OTHER}
    with pytest.raises(AuthorityUnreachable):
        guard.why_closed(REPO)
    bench.forges[REPO].down = False
    assert guard.look_again() == 1
    assert guard.open_repositories() == {REPO, OTHER}


def test_one_that_cannot_be_claimed_does_not_hold_up_the_others(bench: Bench) -> None:
    def down() -> None:
        bench.forges[OTHER].down = True

    bench.points.on("installation.before_claim", down, repo=OTHER)
    guard = bench.life()
    assert guard.start() == {}
    assert guard.open_repositories() == {REPO}


def test_accepted_together_they_open_together(bench: Bench) -> None:
    guard = bench.life()
    unknown = bench.merge(known=False)
    guard.start()
    comparison = Comparison(bench.store.database, bench, Folders(bench.home))
    found = comparison.all([REPO, OTHER])
    with bench.store.database.write() as tx:
        restored.accept_trace(tx, unknown.nonce)
    assert guard.reopen(found) == {REPO: True, OTHER: True}
    assert bench.closed() == {}


# -- what hangs ---------------------------------------------------------------------------------------------------


@contextmanager
def hanging(bench: Bench, ask: Callable[[], object], at: str) -> Iterator[None]:
    """A thread asks, and the sample's forge lets it wait for the length of the block."""
    reached, go_on = threading.Event(), threading.Event()

    def hang(what: str) -> None:
        if what == at:
            reached.set()
            assert go_on.wait(60)

    bench.forges[REPO].asked = hang
    asking = threading.Thread(target=ask)
    asking.start()
    try:
        wait_until(reached.is_set)
        yield
    finally:
        go_on.set()
        asking.join(60)
        assert not asking.is_alive()


@pytest.mark.parametrize("at", ["mark", "claim"])
def test_a_forge_that_hangs_holds_up_no_other_repository(bench: Bench, at: str) -> None:
    guard = bench.life()
    assert guard.why_closed(OTHER) is None
    answers: list[object] = []

    def the_others() -> None:
        answers.append(guard.why_closed(OTHER))
        guard.changed(OTHER)
        answers.append(guard.held(OTHER).generation)
        answers.append(guard.open_repositories())

    with hanging(bench, lambda: guard.why_closed(REPO), at):
        others = threading.Thread(target=the_others, daemon=True)
        others.start()
        others.join(30)
        assert answers == [None, 2, {OTHER}]
    assert guard.open_repositories() == {REPO, OTHER}
