"""What an operator can set about forges elsewhere; part of :class:`~orchestrator.config.settings.Settings`."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.config import values
from orchestrator.config.fields import bearer, period, secret_file, setting, webhook_secret
from orchestrator.config.github_issues import GitHubIssueSettings
from orchestrator.config.secret import Secret, Secrets


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeSettings(GitHubIssueSettings):
    """Servers at which repositories lie. Records with slots have one line of descent, so that tickets stand above."""

    gitea_webhook_secret: Secrets = webhook_secret("Gitea or Forgejo")
    gitea_webhook_secret_file: Path | None = secret_file("ORCH_GITEA_WEBHOOK_SECRET")
    github_webhook_secret: Secrets = webhook_secret("GitHub")
    github_webhook_secret_file: Path | None = secret_file("ORCH_GITHUB_WEBHOOK_SECRET")
    gitea_url: str = setting(
        "",
        values.web_address,
        "Address of the Gitea or Forgejo that repositories lie at, without a repository's name.",
        shown="none",
    )
    gitea_token: Secret = bearer("Token of our user there. Better given as a file.")
    gitea_token_file: Path | None = secret_file("ORCH_GITEA_TOKEN")
    github_url: str = setting(
        "https://github.com",
        values.web_address,
        "Address of the GitHub that repositories lie at, as people open it: that of your Enterprise Server, if you "
        "have one.",
    )
    github_token: Secret = bearer("Token of our user at GitHub. Better given as a file.")
    github_token_file: Path | None = secret_file("ORCH_GITHUB_TOKEN")
    forge_settle_s: float = period(
        5.0,
        "How long a merge that a forge elsewhere has begun may take to land. A merge that is given up counts as given "
        "up only after that.",
        0.0,
        600.0,
    )
