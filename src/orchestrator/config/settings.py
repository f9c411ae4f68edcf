"""The record of everything an operator can set for one installation.

What must hold: every field has a default, a unit, a reader and a description, so that the reference page is generated
from this file and cannot differ from it; every field is read by the mechanism that it describes.

The field ``max_agents`` is the variable ``ORCH_MAX_AGENTS``, and so for all of them. An empty variable counts as not
set, but for those whose description says what it means.
"""

from dataclasses import Field, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from orchestrator.config import values
from orchestrator.config.fields import bearer, period, secret_file, setting
from orchestrator.config.forges import ForgeSettings
from orchestrator.config.secret import Secret, Secrets
from orchestrator.domain.job import AGENT_PROGRAMS
from orchestrator.domain.scope import EVERY_REPOSITORY, Scope
from orchestrator.domain.shares import AGENT_STAGES, PRIORITY_STEP_S, Caps, Shares

PREFIX = "ORCH_"


class Language(StrEnum):
    """Language of messages to people."""

    EN = "en"
    RU = "ru"


class LogLevel(StrEnum):
    """The least weighty entry that is written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Shape of a log line."""

    TEXT = "text"
    JSON = "json"


def _switch(text: str) -> Any:
    return setting(True, values.boolean, text)


def _repositories(text: str) -> Any:
    """The scope of a mechanism (S-21)."""
    return setting((EVERY_REPOSITORY,), values.repositories, text, shown=EVERY_REPOSITORY, empty_counts=True)


def _caps(text: str, reader: values.Reader) -> Any:
    return setting((), reader, text, unit="agents", shown="no cap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(ForgeSettings):
    """Everything an operator can set for one installation."""

    home: Path = setting(
        Path(),
        values.folder,
        "State folder: database, logs, worktrees, runs, artefacts.",
        shown="$XDG_STATE_HOME/orchestrator, else ~/.local/state/orchestrator",
    )
    database_url: str = setting(
        "",
        values.database_url,
        "Database: `sqlite:///<absolute path>`, or `postgresql://<user>@<host>/<database>` with any parameter that "
        "libpq knows. A password in it is never shown.",
        shown="orchestrator.db in the state folder",
        hidden=True,
    )
    host: str = setting(
        "127.0.0.1", values.host, "Address to listen on. Beyond loopback a token is required."
    )
    port: int = setting(8114, values.whole(0, 65535), "Port to listen on; 0 takes any free one.")
    token: Secret = bearer("Bearer token that API and board ask for. Better given as a file.")
    token_file: Path | None = setting(
        None, values.folder, "File holding the token, instead of ORCH_TOKEN.", shown="none"
    )
    base_url: str = setting(
        "",
        values.web_address,
        "Address under which people reach the board; makes task numbers clickable.",
        shown="http://<host>:<port>",
    )
    language: Language = setting(Language.EN, values.one_of(Language), "Language of messages to people.")
    log_level: LogLevel = setting(
        LogLevel.INFO, values.one_of(LogLevel), "Least weighty log entry that is written."
    )
    log_format: LogFormat = setting(LogFormat.TEXT, values.one_of(LogFormat), "Shape of a log line.")

    max_agents: int = setting(
        2,
        values.whole(0, 256),
        "Agents that this process runs at the same time; 0 leaves them to workers.",
        unit="agents",
    )
    max_checks: int = setting(
        1,
        values.whole(1, 256),
        "CI, health and image jobs that this process runs at the same time.",
        unit="jobs",
    )
    max_agents_total: int | None = setting(
        None,
        values.whole(0, 10_000),
        "Agents that all processes of the database run at the same time.",
        unit="agents",
        shown="no cap",
    )
    max_agents_by_repo: Caps = _caps(
        "Agents at the same time for a repository, such as `shop=3,*=1`; `*` is each that is not named, 0 starts "
        "none. As all caps by name it holds for all processes of the database together.",
        values.caps("repository"),
    )
    max_agents_by_stage: Caps = _caps(
        "Agents at the same time in a stage, such as `development=2`.",
        values.caps("stage", AGENT_STAGES),
    )
    max_agents_by_kind: Caps = _caps(
        "Agents at the same time of a kind (`kind` in .orchestrator.toml), such as `claude=2,codex=1`.",
        values.caps("kind", AGENT_PROGRAMS),
    )
    priority_step_s: float = period(
        PRIORITY_STEP_S, "Waiting for so long is worth one step of priority.", 1.0
    )

    queue_interval_s: float = period(5.0, "How often the queue is looked at when nothing woke its worker.")
    reaper_interval_s: float = period(15.0, "How often the reaper looks for dead, unfinished and hung runs.")
    reconciler_interval_s: float = period(
        30.0, "How often the reconciler compares tasks with the outside facts."
    )
    drift_interval_s: float = period(
        60.0, "How often environments are asked which version they run, once their deploys are over."
    )
    inbox_interval_s: float = period(
        15.0, "How often what trackers and forges have sent is looked at when nothing woke the inbox."
    )
    outbox_interval_s: float = period(5.0, "How often unsent messages are tried again.")
    heartbeat_interval_s: float = period(5.0, "How often a process says that it is alive.")
    process_ttl_s: float = period(30.0, "A process that was silent for so long may be taken for dead.")
    reaper_finalize_grace_s: float = period(
        120.0, "Time a finished run has to be finalised by its monitor before the reaper does it.", 0.0
    )
    reaper_max_running_s: float = period(
        4 * 3600.0, "Backstop: a job running for longer is ended, whoever owns its task."
    )
    run_orphan_ttl_s: float = period(900.0, "An agent that no process has adopted for so long is ended.")
    in_doubt_alert_s: float = period(
        300.0,
        "A person is called, once for a forge, an environment or the image store, when what became of effects "
        "there could not be settled for so long.",
    )
    shutdown_budget_s: float = period(
        20.0, "Time that running transitions have to end after SIGTERM.", 0.0, 3600.0
    )

    telegram_token: Secret = setting(
        Secret(""),
        lambda text: Secret(values.telegram_token(text)),
        "Token of the Telegram bot that sends alerts. Better given as a file.",
        shown="none",
    )
    telegram_token_file: Path | None = secret_file("ORCH_TELEGRAM_TOKEN")
    telegram_chat: int | str | None = setting(
        None,
        values.telegram_chat,
        "Chat that alerts are sent to: its number, below zero for a group, or @name of a public channel or group.",
        shown="none",
    )
    telegram_topic: int | None = setting(
        None,
        values.whole(1, 2**31 - 1),
        "Topic of that chat, where it is a group with topics: its message_thread_id.",
        shown="none",
    )
    telegram_url: str = setting(
        "https://api.telegram.org",
        values.web_address,
        "Address of the Bot API, for a server of your own.",
    )
    apprise_urls: Secrets = setting(
        Secrets(),
        values.secrets,
        "Addresses of further services that alerts are sent to, as Apprise writes them, separated by blanks. Wants the "
        "extra `apprise`. Better given as a file.",
        shown="none",
    )
    apprise_urls_file: Path | None = secret_file("ORCH_APPRISE_URLS")

    transition_lease_enabled: bool = _switch(
        "Kill-switch: off means that leases are neither written nor read. Stage writes stay compare-and-swap."
    )
    transition_lease_repos: tuple[str, ...] = _repositories(
        "Repositories whose tasks run under a lease, separated by commas; `*` is every one. Set but empty: "
        "the one of ORCH_SELF_REPO alone. For all others it is as with the kill-switch off.",
    )
    self_repo: str = setting(
        "",
        values.repository,
        "Name of the repository that this very installation is built from.",
        shown="none",
    )
    self_deploy_timeout_s: float = period(
        300.0,
        "A new version of ORCH_SELF_REPO that has not reported for so long after its deploy command is undone.",
        1.0,
    )
    build_sha: str = setting(
        "",
        values.full_sha,
        "Full SHA that this very version was built from; `GET /healthz` names it.",
        shown="content of the file BUILD_SHA beside the package's modules, if there is one",
    )
    reaper_enabled: bool = _switch("Kill-switch: off means that dead and hung runs are left alone.")
    reaper_repos: tuple[str, ...] = _repositories(
        "Repositories whose dead, unfinished and hung runs and leases the reaper looks after, as "
        "ORCH_TRANSITION_LEASE_REPOS says it. Of all others: what hangs keeps its task, and its place among "
        "ORCH_MAX_AGENTS or ORCH_MAX_CHECKS, until a person releases it or the service is started again; a job of a "
        "dead process waits for the next start. A dead owner's lease is replaced there, too, by whoever wants its "
        "task, and recovery at start looks at all.",
    )
    drift_watch_enabled: bool = _switch(
        "Kill-switch: off means that nobody looks at what environments run once their deploys are over."
    )
    drift_watch_repos: tuple[str, ...] = _repositories(
        "Repositories whose environments the drift watch asks, as ORCH_TRANSITION_LEASE_REPOS says it. An environment "
        "belongs to whose ticket was last brought there. Of all others nobody is told that something else runs.",
    )
    reconciler_enabled: bool = _switch(
        "Kill-switch: off means that tasks move only when something signals them."
    )
    reconciler_repos: tuple[str, ...] = _repositories(
        "Repositories whose tasks the reconciler has looked at, as ORCH_TRANSITION_LEASE_REPOS says it. Those of all "
        "others move only when something signals them, and at the next start: after a lost signal they stand still, "
        "and what waits for main, for a pull request or for a term is not looked at when its time has come. Silent "
        "authorities, and slots and epochs that contradict the tasks, are told of all.",
    )

    @property
    def database_path(self) -> Path:
        """The SQLite file. With PostgreSQL there is none: then only the lock beside it exists, for the state folder
        belongs to one process all the same."""
        if self.on_postgres:
            return self.home / "orchestrator.db"
        return Path(self.database_url.removeprefix("sqlite://"))

    @property
    def on_postgres(self) -> bool:
        """Whether the database is PostgreSQL."""
        return self.database_url.startswith("postgresql://")

    @property
    def loopback(self) -> bool:
        """True where only this machine can reach the service."""
        return values.loopback(self.host)

    @property
    def shares(self) -> Shares:
        """The caps that all processes of the database keep together."""
        return Shares(
            self.max_agents_total, self.max_agents_by_repo, self.max_agents_by_stage, self.max_agents_by_kind
        )

    @property
    def lease_scope(self) -> Scope:
        """Whose transitions run under a lease (FR-7)."""
        return self._scope(self.transition_lease_enabled, self.transition_lease_repos)

    @property
    def reaper_scope(self) -> Scope:
        """Whose dead and hung runs and leases are looked after."""
        return self._scope(self.reaper_enabled, self.reaper_repos)

    @property
    def drift_watch_scope(self) -> Scope:
        """Whose environments are asked what they run."""
        return self._scope(self.drift_watch_enabled, self.drift_watch_repos)

    @property
    def reconciler_scope(self) -> Scope:
        """Whose tasks are looked at although nothing has signalled them."""
        return self._scope(self.reconciler_enabled, self.reconciler_repos)

    def _scope(self, enabled: bool, repos: tuple[str, ...]) -> Scope:
        return Scope(enabled, frozenset(repos), self.self_repo)

    def secrets(self) -> tuple[Secret, ...]:
        """Every secret value that was configured: for the redactor."""
        named = [getattr(self, f.name) for f in fields(self) if holds_secret(f)]
        given = [secret for one in named for secret in (one if isinstance(one, Secrets) else [one]) if secret]
        return (*given, *map(Secret, values.passwords_in(self.database_url)))


@dataclass(frozen=True, slots=True)
class SettingDoc:
    """One line of the reference page."""

    variable: str
    field: str
    default: str
    unit: str
    text: str
    secret: bool


def describe_settings() -> list[SettingDoc]:
    """All settings in the order of the record, then those of its parts."""
    return [
        SettingDoc(
            variable=variable_of(f),
            field=f.name,
            default=_shown_default(f),
            unit=f.metadata["unit"],
            text=f.metadata["text"],
            secret=holds_secret(f),
        )
        for f in sorted(fields(Settings), key=lambda f: f.name not in Settings.__annotations__)
    ]


def holds_secret(f: "Field[Any]") -> bool:
    """Whether a field's value must never be shown."""
    return isinstance(f.default, Secret | Secrets)


def variable_of(f: "Field[Any]") -> str:
    """The environment variable of a field."""
    return PREFIX + f.name.upper()


def _shown_default(f: "Field[Any]") -> str:
    if f.metadata["shown"] is not None:
        return str(f.metadata["shown"])
    if isinstance(f.default, bool):
        return "true" if f.default else "false"
    return f"{f.default:g}" if isinstance(f.default, float) else str(f.default)
