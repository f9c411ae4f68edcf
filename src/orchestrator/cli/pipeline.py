"""``orch pipeline``."""

import click

from orchestrator.cli.options import json_option
from orchestrator.cli.terminal import say, say_json, table
from orchestrator.domain.stage import Stage
from orchestrator.rules.transitions import STAGE_STEPS, STAGE_TRANSITIONS, EdgeKind, Step, mermaid


@click.command("pipeline")
@click.option("--mermaid", "as_mermaid", is_flag=True, help="As a diagram for Mermaid.")
@json_option
def command(as_mermaid: bool, as_json: bool) -> int:
    """The stages, their steps and gates."""
    if as_mermaid:
        say(mermaid())
    elif as_json:
        say_json({stage.value: _stage(stage) for stage in Stage})
    else:
        for stage in Stage:
            _say_stage(stage)
    return 0


def _say_stage(stage: Stage) -> None:
    say(stage.value)
    rows = [
        (f"  {n}.", s.name, f"if {s.needs} is configured" if s.needs else "") for n, s in _numbered(stage)
    ]
    if rows:
        say("\n".join(table(rows, ("", "", "")).splitlines()[1:]))
    for edge in STAGE_TRANSITIONS[stage]:
        if edge.kind is EdgeKind.CANCEL:
            continue
        track = f" (track {edge.track})" if edge.track else ""
        say(f"  {edge.kind.value}: → {edge.target.value}{track}")


def _numbered(stage: Stage) -> list[tuple[int, Step]]:
    return list(enumerate(STAGE_STEPS[stage], 1))


def _stage(stage: Stage) -> dict[str, object]:
    return {
        "steps": [{"name": s.name, "needs": s.needs or None} for s in STAGE_STEPS[stage]],
        "edges": [
            {
                "to": e.target.value,
                "kind": e.kind.value,
                "gate": e.gate or None,
                "track": e.track.value if e.track else None,
            }
            for e in STAGE_TRANSITIONS[stage]
        ],
    }
