"""The labels by which an issue shows where its task stands: one of a set of ours. Decides, and asks nobody."""

from dataclasses import dataclass

from orchestrator.domain.stage import Stage

PREFIX = "orch: "  # apart from a bare `orch`, which marks what is to be taken
COLOR = "c5def5"
SHOWN = tuple(stage for stage in Stage if not stage.terminal and stage is not Stage.CREATED)
_OURS = frozenset(f"{PREFIX}{stage}" for stage in SHOWN)


@dataclass(frozen=True, slots=True)
class Relabelling:
    """What has to be added and taken away."""

    add: str | None
    remove: tuple[str, ...]


def label_of(stage: Stage) -> str | None:
    """The label that shows a stage; None where the issue's own state does, or nothing has begun."""
    return f"{PREFIX}{stage}" if stage in SHOWN else None


def is_ours(label: str) -> bool:
    """Whether a label is one of the set; GitHub's names are the same in any case."""
    return label.lower() in _OURS


def relabelling(stage: Stage, labels: tuple[str, ...]) -> Relabelling:
    """How an issue with these labels comes to show a stage, and that alone."""
    wanted = label_of(stage)
    present = [label for label in labels if is_ours(label)]
    add = wanted if wanted is not None and wanted not in map(str.lower, present) else None
    return Relabelling(add, tuple(label for label in present if label.lower() != wanted))
