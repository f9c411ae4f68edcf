"""What an operator can set about issues at GitHub; part of :class:`~orchestrator.config.settings.Settings`."""

from dataclasses import dataclass

from orchestrator.config import values
from orchestrator.config.fields import period, setting
from orchestrator.config.plane import PlaneSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubIssueSettings(PlaneSettings):
    """Tickets that are issues at GitHub. Records with slots have one line of descent, so that Plane's stand above."""

    github_labels: frozenset[str] = setting(
        frozenset({"orch"}),
        values.names,
        "Labels that have an issue at GitHub taken: names, separated by commas.",
        shown="orch",
    )
    github_poll_interval_s: float = period(
        60.0,
        "How often the issues of each repository are read whose tickets they are, whether it sends webhooks or not.",
        5.0,
        3600.0,
    )
    github_silence_s: float = period(
        900.0,
        "A person is called when GitHub has shown a change of an issue for so long of which no webhook has told, while "
        "a webhook secret is set.",
        60.0,
    )
