"""The way out of a stage: every step is behind the task, and the edge is taken with what belongs to it."""

from collections.abc import Callable

from orchestrator.db import tasks
from orchestrator.db.database import Tx
from orchestrator.domain.errors import ConfigError, OutsideError
from orchestrator.domain.stage import Stage, Track
from orchestrator.domain.task import Hold
from orchestrator.rules.transitions import EdgeKind, advance_target
from orchestrator.stage_engine.moves import Moves
from orchestrator.stage_engine.others import OthersGates
from orchestrator.stage_engine.serial_gate import IN_LINE, why_no_slot
from orchestrator.stage_engine.situation import Outcome, Situation, Tools
from orchestrator.stage_engine.work import Work
from orchestrator.work_items.reading import DocumentError
from orchestrator.work_items.verdict_documents import escalates, parse_track


class Edges:
    """Takes the edges that lead forward."""

    def __init__(self, tools: Tools, moves: Moves, work: Work, others: OthersGates) -> None:
        self._tools = tools
        self._moves = moves
        self._work = work
        self._others = others

    def take(self, at: Situation) -> Outcome:
        """Every step of the stage is behind the task: take the edge."""
        task = at.task
        if task.stage is Stage.TESTING:
            return self._enter_staging(at)
        if task.stage is Stage.CREATED:
            base = task.base_sha
            config = self._tools.configs.of(task.repo, base) if base else None
            return self._moves.move(
                at,
                Stage.ANALYSIS,
                EdgeKind.ADVANCE,
                reason="accepted",
                config=config,
                before=self._label_track(at),
            )
        if task.stage is Stage.ANALYSIS:
            track = self._choose_track(at)
            return self._moves.move(
                at,
                advance_target(task.stage, track),
                EdgeKind.ADVANCE,
                reason=f"analysis accepted, track {track}",
                before=lambda tx: tasks.set_track(tx, task.id, track),
            )
        before: Callable[[Tx], None] | None = None
        if task.stage is Stage.DEVELOPMENT:
            before = lambda tx: tasks.set_gated(tx, task.id, task.head_sha)  # noqa: E731
        target = advance_target(task.stage, task.track)
        return self._moves.move(at, target, EdgeKind.ADVANCE, reason=f"{task.stage} passed", before=before)

    def _enter_staging(self, at: Situation) -> Outcome:
        """Queue for the slots that main's configuration, as it is now, asks for.

        Whoever waits for others at the forge stands in no line; whoever is in it has heard them, and asks them again
        when it is its turn.
        """
        if at.task.hold in IN_LINE or not at.settings.forge.asks:
            with self._tools.database.read() as tx:  # cheap, and mostly the answer where many wait
                busy = why_no_slot(tx, at.task)
            if busy is not None:
                return self._moves.hold(at, busy.hold, busy.reason)
        forge = at.place.forge
        at.place.clone.fetch()
        main = forge.tip(forge.default_branch)
        if main is None:
            raise OutsideError(f"{forge.default_branch} of {at.task.repo} has vanished.")
        try:
            config = self._tools.configs.of(at.task.repo, main)
        except ConfigError as error:
            return self._moves.hold(at, Hold.BLOCKED, str(error))
        waits = self._others.before_the_slots(at, config)
        if waits is not None:
            return waits
        return self._moves.enter_staging(at, config, reason="tested; merge slot and staging are ours")

    def _label_track(self, at: Situation) -> Callable[[Tx], None]:
        labels = {f"track:{track}": track for track in Track} | {track.value: track for track in Track}
        chosen = next((labels[label] for label in at.task.labels if label in labels), None)
        return lambda tx: tasks.set_track(tx, at.task.id, chosen) if chosen else None

    def _choose_track(self, at: Situation) -> Track:
        """The ticket's label, else the analyst's proposal, else full; ``escalate: full-cycle`` lifts it (S-17)."""
        documents = self._work.evidence(at).documents
        if escalates(documents) is not None:
            return Track.FULL
        if at.task.track is not None:
            return at.task.track
        try:
            return parse_track(documents.get("02-trz.md", b"")) or Track.FULL
        except DocumentError:
            return Track.FULL
