"""The coverage gate: M may not fall below the baseline in force when it lands (S-13)."""

from orchestrator.db.evidence import CheckResult
from orchestrator.db.slots import Baseline
from orchestrator.domain.gate import Finding, GateResult, failed, passed
from orchestrator.repo_config.records import CoverageConfig


def measured_percent(check: CheckResult | None) -> float | None:
    """The coverage that our own run of the checks measured; None where it measured none."""
    value = check.detail.get("percent") if check else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def judge_coverage(
    config: CoverageConfig | None, check: CheckResult | None, baseline: Baseline | None
) -> GateResult:
    """Pass iff a number was measured and it reaches the baseline (less the tolerance) and the minimum."""
    if config is None:
        return passed("no coverage is configured", coverage=None)
    percent = measured_percent(check)
    if percent is None:
        problem = str(check.detail.get("coverage_problem", "")) if check else ""
        return failed(
            "Coverage was not measured.",
            Finding(problem or f"{config.report} holds no number", file=config.report),
        )
    limit = max((baseline.percent if baseline else 0.0) - config.tolerance, config.minimum)
    against = (
        f"baseline {baseline.percent:.2f} % of {baseline.merged_sha[:12]}" if baseline else "no baseline yet"
    )
    if not percent >= limit:  # written so that a NaN fails
        finding = Finding(
            f"coverage is {percent:.2f} %, expected at least {limit:.2f} % ({against}): add tests"
        )
        return failed("Coverage fell.", finding, coverage=percent, limit=limit)
    return passed(f"coverage {percent:.2f} % ({against})", coverage=percent, limit=limit)
