"""Every key of ``.orchestrator.toml``: where it stands, what it may hold, what it is for.

The loader and the reference page both read this table, so that neither knows a key that the other does not. A key has
the name of its record's field without the ``_s`` of seconds; its default is the record's.
"""

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any

from orchestrator.domain.duration import render_duration
from orchestrator.domain.job import AGENT_PROGRAMS
from orchestrator.domain.stage import Role
from orchestrator.repo_config import records, values

COVERAGE_FORMATS = ("coverage.py", "cobertura", "lcov")
LANGUAGES = ("en", "ru")
_MANY = 10**12


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table. ``why`` says for a required key why there is no default."""

    field: str
    read: values.Reader
    text: str
    why: str = ""

    @property
    def name(self) -> str:
        """The name in TOML."""
        return self.field.removesuffix("_s")


_TIMEOUT = values.seconds(0.1)

TOP = (
    Key("default_branch", values.branch, "Branch that changes are merged into."),
    Key("language", values.one_of(LANGUAGES), "Language the agents write documents and comments in."),
)
CI = (
    Key(
        "command", values.argv, "The repository's own checks, run in a clean checkout of the exact commit.",
        why="nothing is merged that was not checked, and only you know how this repository checks itself. "
        'Write for example command = ["python", "-m", "pytest"]',
    ),
    Key("timeout_s", _TIMEOUT, "The checks fail when they take longer."),
    Key("env", values.variables, "Environment variables the checks get."),
)  # fmt: skip
COVERAGE = (
    Key("report", values.inner_path, "Where the checks leave their coverage report.",
        why='the gate has to know where to look. Write for example report = "coverage.json"'),
    Key("format", values.one_of(COVERAGE_FORMATS), "What kind of report it is.",
        why=f"a wrong guess would be a wrong number. It is one of {', '.join(COVERAGE_FORMATS)}"),
    Key("tolerance", values.number(0, 100, "percentage points"), "How far a change may stay below the baseline."),
    Key("minimum", values.number(0, 100, "a percentage"), "Coverage below this never passes."),
)  # fmt: skip
IMAGE = (
    Key("command", values.argv, "Builds the artefact in a clean checkout of the merge candidate.",
        why='an image table without it builds nothing. Write for example command = ["make", "dist"]'),
    Key("artifact", values.inner_path, "File or folder the command leaves behind.",
        why='what is deployed has to be found. Write for example artifact = "dist"'),
    Key("timeout_s", _TIMEOUT, "The build fails when it takes longer."),
    Key("rebuild", values.flag, "Build again for production instead of using what was tested on staging."),
)  # fmt: skip
PROBE = (
    Key("url", values.web_address, "Address that answers with the commit that runs, as JSON or text."),
    Key("command", values.argv, "Command that prints the commit that runs; instead of url."),
    Key("field", values.text, "Key of the commit in a JSON answer; dots lead into nested objects."),
    Key("timeout_s", values.seconds(0.1, 300), "An answer that takes longer counts as none."),
)
ENVIRONMENT = (
    Key("name", values.place, "Name of the place; repositories that use the same name deploy one after the other.",
        why="one name is one place for all repositories, so a default would mix up two of them. "
        'Write for example name = "shop-staging"'),
    Key("deploy", values.argv, "Command that brings a version to this place, run detached.",
        why='nothing else knows how to deploy here. Write for example deploy = ["./deploy.sh", "staging"]'),
    Key("undo", values.argv, "Command that takes a broken version back."),
    Key("timeout_s", _TIMEOUT, "A deploy or undo that takes longer is ended and has failed."),
    Key("healthy_times", values.whole(1, 1000), "How often the probe must show the version in a row."),
    Key("interval_s", values.seconds(0.05, 3600), "Pause between two probes."),
    Key("stable_for_s", values.seconds(0), "How long the version must stay healthy."),
    Key("env", values.variables, "Environment variables the commands get."),
    Key("honours_token", values.flag, "The target itself refuses an ORCH_DEPLOY_TOKEN older than the newest it saw."),
)  # fmt: skip
APPROVALS = (
    Key("analysis", values.flag, "A person approves the analysis before anything is built."),
    Key("deploy", values.flag, "A person confirms the merge candidate before it is merged and deployed."),
    Key(
        "confirm_timeout_s", values.seconds(60), "A confirmation that takes longer frees staging for others."
    ),
)
FORGE = (
    Key(
        "required_checks",
        values.check_names,
        "Checks that others run at the forge, by the names it shows; each has to pass on the tested commit.",
    ),
    Key(
        "checks_timeout_s",
        values.seconds(1),
        "A required check that is not there, or not done, for longer calls a person.",
    ),
    Key(
        "required_reviews",
        values.whole(0, 20),
        "How many people have to approve the tested commit at the forge.",
    ),
)
AGENT = (
    Key("kind", values.one_of(AGENT_PROGRAMS), "Which program does the work."),
    Key("command", values.argv, "The program and its first arguments; required for kind command."),
    Key("model", values.text, "Model the program is asked to use."),
    Key("timeout_s", _TIMEOUT, "A run that takes longer is ended."),
    Key("stall_s", _TIMEOUT, "A run that shows no sign of life for so long is ended."),
    Key("max_turns", values.whole(1, 100_000), "A run that takes more turns is ended."),
    Key("max_cost_usd", values.number(0.01, 100_000, "US dollars"), "A run that costs more is ended."),
    Key("max_tokens", values.whole(1, _MANY), "A run that uses more tokens is ended."),
    Key("env", values.variable_names, "Variables of the service's environment that the agent may see."),
    Key(
        "prompt", values.inner_path, "Template of the prompt, instead of the one that comes with the product."
    ),
)
PATHS = (
    Key(
        "protected", values.patterns, "Paths no agent may change, as in .gitignore; this file always is one."
    ),
    Key("allow_label", values.text, "Label of a ticket that may change them all the same."),
)
BUDGET = (
    Key(
        "max_cost_usd",
        values.number(0.01, 1_000_000, "US dollars"),
        "What all runs of a task may cost together.",
    ),
    Key("max_tokens", values.whole(1, _MANY), "Tokens all runs of a task may use together."),
    Key(
        "max_rounds",
        values.whole(1, 100),
        "Rejections at one gate that are sent back; the next one calls a person.",
    ),
    Key("max_attempts", values.whole(1, 100), "Runs of one job before a person is called."),
    Key(
        "max_candidates",
        values.whole(1, 100),
        "Merge candidates overtaken in a row before a person is called.",
    ),
)

ROLES = tuple(Role)


@dataclass(frozen=True, slots=True)
class RepoSettingDoc:
    """One line of the reference page."""

    table: str  # "" for the top of the file
    key: str
    required: bool
    default: str
    unit: str
    text: str


def describe_repo_config() -> list[RepoSettingDoc]:
    """All keys in the order in which the file is best written."""
    layout: list[tuple[str, tuple[Key, ...], type]] = [
        ("", TOP, records.RepoConfig),
        ("ci", CI, records.CiConfig),
        ("coverage", COVERAGE, records.CoverageConfig),
        ("image", IMAGE, records.ImageConfig),
        ("staging", ENVIRONMENT, records.EnvironmentConfig),
        ("staging.probe", PROBE, records.ProbeConfig),
        ("production", ENVIRONMENT, records.EnvironmentConfig),
        ("production.probe", PROBE, records.ProbeConfig),
        ("approvals", APPROVALS, records.ApprovalsConfig),
        ("forge", FORGE, records.ForgeConfig),
        ("agent", AGENT, records.AgentConfig),
        *((f"agents.{role}", AGENT, records.AgentConfig) for role in ROLES),
        ("paths", PATHS, records.PathPolicy),
        ("budget", BUDGET, records.BudgetConfig),
    ]
    return [
        _document(table, key, _fields(record)[key.field]) for table, keys, record in layout for key in keys
    ]


def _document(table: str, key: Key, record_field: "Field[Any]") -> RepoSettingDoc:
    unit = "seconds" if key.field.endswith("_s") else "US dollars" if key.field.endswith("_usd") else ""
    default = "as in [agent]" if table.startswith("agents.") else _default(key, record_field)
    return RepoSettingDoc(table, key.name, bool(key.why), default, unit, key.text)


def _default(key: Key, record_field: "Field[Any]") -> str:
    """The default as TOML would have it; empty where leaving the key out means "none"."""
    if key.field == "default_branch":
        return '"main"'
    value = record_field.default
    if key.why or value in (MISSING, None):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if key.field.endswith("_s"):
        return f'"{render_duration(value)}"'
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{part}"' for part in value) + "]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def _fields(record: Any) -> Mapping[str, "Field[Any]"]:
    return {f.name: f for f in fields(record)}
