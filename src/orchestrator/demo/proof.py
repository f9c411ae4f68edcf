"""What the demo can prove at its end, asked of those who know: git, the running services, the ledger.

Each claim is checked, and a claim that does not hold is said to be one; ``Proof.holds`` is the demo's exit code.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.demo.sample_repository import Sample
from orchestrator.demo.services import ask
from orchestrator.deploy.records import read_start, started
from orchestrator.domain.effect import EffectName, EffectState
from orchestrator.domain.job import AgentRun, JobKind, Usage
from orchestrator.operations.reading import TaskStory
from orchestrator.runtime.git import Git
from orchestrator.runtime.http import Http

Echo = Callable[[str], None]
ONCE = {EffectName.MERGE_PR: 1, EffectName.RATCHET: 1, EffectName.DEPLOY_INIT: 2}  # staging, production
HINT = {EffectName.DEPLOY_INIT: " (staging and production)"}
RULE = "-" * 96
SHA = 12


@dataclass(slots=True)
class Proof:
    """Prints and checks. ``failures`` are the claims that did not hold."""

    echo: Echo
    failures: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Everything that was claimed is so."""
        return not self.failures

    def head(self, text: str) -> None:
        """Begin a section."""
        self.echo("")
        self.echo(RULE)
        self.echo(text)

    def claim(self, true: bool, text: str) -> None:
        """Say that something is so, having looked."""
        self.echo(f"  {'yes' if true else 'NO '}  {text}")
        if not true:
            self.failures.append(text)


def prove_delivery(
    proof: Proof, stories: Sequence[TaskStory], sample: Sample, *, git: Git, forge: str, http: Http
) -> None:
    """Main's history, and the commit that was tested against what was merged and what runs."""
    proof.head("main, as git tells it")
    history = git.text(["--git-dir", forge, "log", "--oneline", "--graph", "main"])
    for line in history.splitlines():
        proof.echo(f"  {line}")
    main = git.text(["--git-dir", forge, "rev-parse", "main"])
    first_parents = git.text(["--git-dir", forge, "rev-list", "--first-parent", "main"]).split()

    proof.head("the commit that was tested is the commit that was merged and the commit that runs")
    for story in stories:
        if not story.candidates:
            proof.claim(False, f"{story.task.work_item} has a tested candidate")
            continue
        tested = story.candidates[-1].sha
        proof.claim(
            first_parents.count(tested) == 1,
            f"{story.task.work_item}: tested {tested[:SHA]}, once on main's first-parent line",
        )
        for name, times in ONCE.items():
            count = sum(e.name is name and e.state is EffectState.APPLIED for e in story.effects)
            proof.claim(
                count == times,
                f"{story.task.work_item}: {name} took place {_times(count)}" + HINT.get(name, ""),
            )
    for environment in (sample.staging, sample.production):
        answer = ask(environment, http)
        shown = " ".join(answer.text.split())[:140]
        proof.claim(answer.sha == main, f"{environment.name}: GET {answer.url} -> {shown}")


def prove_lives(proof: Proof, ended: Sequence[str], wanted: int, *, deploys: Path) -> None:
    """How often the service was killed, and what the deploy commands' own records count."""
    proof.head("the service was killed where it hurts, and started again")
    for each in ended:
        proof.echo(f"  {each}")
    proof.claim(len(ended) == wanted, f"it was ended by SIGKILL {_times(len(ended))} while it worked")
    starts = Counter(
        (start.environment, start.sha)
        for folder in deploys.glob("*/*")
        if (start := read_start(folder)) is not None and started(folder) is not None
    )
    for (environment, sha), count in sorted(starts.items()):
        proof.claim(count == 1, f"{environment}: {sha[:SHA]} was started {_times(count)}, by its own records")


def show_coverage(
    proof: Proof,
    stories: Sequence[TaskStory],
    *,
    first: float | None,
    before: float | None,
    after: float | None,
) -> None:
    """The ratchet: what the first commit measured, the baseline before, after each merge, and now."""
    proof.head("coverage")
    if first is not None:
        proof.echo(f"  the sample's first commit, measured by the demo: {first:.2f} %")
    proof.echo(f"  baseline before: {_percent(before)}")
    for story in stories:
        for effect in story.effects:
            if effect.name is EffectName.RATCHET and effect.fact is not None:
                proof.echo(f"  {story.task.work_item} measured {effect.fact.get('measured')} %")
    proof.echo(f"  baseline after:  {_percent(after)}")
    proof.claim(after is not None and after >= (first or 0.0), "the baseline did not fall")


def show_costs(proof: Proof, stories: Sequence[TaskStory], note: str) -> None:
    """A line for each run of an agent."""
    proof.head(f"agent runs ({note})")
    proof.echo(
        f"  {'task':<9} {'role':<10} {'try':>3}  {'agent':<10} {'model':<22} "
        f"{'ended':<10} {'tokens in':>10} {'out':>7} {'USD':>8}"
    )
    total = Usage()
    for story in stories:
        for kind, run in story.runs:
            proof.echo(f"  {story.task.work_item:<9} {_run_line(kind, run)}")
            total = _sum(total, run.usage)
    spent = f"{total.cost_usd:.4f}" if total.cost_usd is not None else "-"
    proof.echo(f"  {'sum':<70} {_input(total):>10} {total.output_tokens:>7} {spent:>8}")


def _run_line(kind: JobKind, run: AgentRun) -> str:
    cost = f"{run.usage.cost_usd:.4f}" if run.usage.cost_usd is not None else "-"
    outcome = run.outcome.value if run.outcome else "running"
    return (
        f"{kind:<10} {run.attempt:>3}  {run.agent:<10} {(run.model or '-')[:22]:<22} "
        f"{outcome:<10} {_input(run.usage):>10} {run.usage.output_tokens:>7} {cost:>8}"
    )


def _input(usage: Usage) -> int:
    return usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens


def _sum(one: Usage, other: Usage) -> Usage:
    costs = [usage.cost_usd for usage in (one, other) if usage.cost_usd is not None]
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cache_read_tokens + other.cache_read_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        sum(costs) if costs else None,
    )


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _percent(value: float | None) -> str:
    return "none yet" if value is None else f"{value:.2f} %"
