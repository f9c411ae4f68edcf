""".orchestrator.toml: what is read, what is refused, and how that is said."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.errors import ConfigError
from orchestrator.domain.stage import Role
from orchestrator.repo_config.keys import describe_repo_config
from orchestrator.repo_config.loader import parse_repo_config
from orchestrator.repo_config.records import (
    AgentConfig,
    ApprovalsConfig,
    BudgetConfig,
    CiConfig,
    CoverageConfig,
    EnvironmentConfig,
    ForgeConfig,
    ImageConfig,
    PathPolicy,
    ProbeConfig,
    RepoConfig,
)

CI = '[ci]\ncommand = ["make", "check"]\n'

FULL = """\
default_branch = "trunk"
language = "ru"

[ci]
command = ["make", "check"]
timeout = "10m"
env = { CI = "1" }

[coverage]
report = "out/coverage.json"
format = "coverage.py"
tolerance = 0.5
minimum = 60

[image]
command = ["make", "dist"]
artifact = "dist"
timeout = 90
rebuild = true

[staging]
name = "shop-staging"
deploy = ["./deploy.sh", "staging"]
healthy_times = 2
interval = "500ms"
stable_for = 0

[staging.probe]
url = "http://127.0.0.1:8000/version"
field = "build.sha"

[production]
name = "shop"
deploy = ["./deploy.sh", "production"]
undo = ["./undo.sh"]
timeout = "5m"
honours_token = true
env = { REGION = "eu" }

[production.probe]
command = ["cat", "/srv/shop/SHA"]
timeout = 2

[approvals]
analysis = true
deploy = true
confirm_timeout = "2h"

[agent]
kind = "claude"
model = "large"
timeout = "2h"
env = ["PIP_INDEX_URL"]

[agents.reviewer]
kind = "codex"
max_turns = 50

[agents.developer]
max_cost_usd = 3
prompt = "prompts/developer.md"

[paths]
protected = ["ci/**"]
allow_label = "may-touch-ci"

[forge]
required_checks = ["ci / build", "lint"]
checks_timeout = "30m"
required_reviews = 2

[budget]
max_cost_usd = 20
max_candidates = 9
"""


def problems(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_repo_config(text.encode(), source="shop:.orchestrator.toml")
    message = str(caught.value)
    assert message.startswith("shop:.orchestrator.toml")
    return message


def test_everything() -> None:
    assert parse_repo_config(FULL.encode(), source="x") == RepoConfig(
        default_branch="trunk",
        language="ru",
        ci=CiConfig(("make", "check"), 600.0, {"CI": "1"}),
        coverage=CoverageConfig("out/coverage.json", "coverage.py", 0.5, 60.0),
        image=ImageConfig(("make", "dist"), "dist", 90.0, True),
        staging=EnvironmentConfig(
            "shop-staging",
            ("./deploy.sh", "staging"),
            ProbeConfig(url="http://127.0.0.1:8000/version", field="build.sha"),
            healthy_times=2,
            interval_s=0.5,
            stable_for_s=0.0,
        ),
        production=EnvironmentConfig(
            "shop",
            ("./deploy.sh", "production"),
            ProbeConfig(command=("cat", "/srv/shop/SHA"), timeout_s=2.0),
            undo=("./undo.sh",),
            timeout_s=300.0,
            env={"REGION": "eu"},
            honours_token=True,
        ),
        approvals=ApprovalsConfig(True, True, 7200.0),
        forge=ForgeConfig(("ci / build", "lint"), 1800.0, 2),
        agent=AgentConfig("claude", model="large", timeout_s=7200.0, env=("PIP_INDEX_URL",)),
        agents={
            Role.REVIEWER: AgentConfig("codex", timeout_s=7200.0, env=("PIP_INDEX_URL",), max_turns=50),
            Role.DEVELOPER: AgentConfig(
                "claude", model="large", timeout_s=7200.0, env=("PIP_INDEX_URL",), max_cost_usd=3.0,
                prompt="prompts/developer.md",
            ),
        },
        paths=PathPolicy((".orchestrator.toml", "ci/**"), "may-touch-ci"),
        budget=BudgetConfig(max_cost_usd=20.0, max_candidates=9),
    )  # fmt: skip


def test_the_least() -> None:
    assert parse_repo_config(CI.encode(), source="x") == RepoConfig("main", CiConfig(("make", "check")))


@pytest.mark.parametrize("text", ["\ufeff" + CI, CI.replace("\n", "\r\n"), CI + "timeout_s = 5\n"])
def test_harmless_variants(text: str) -> None:
    assert parse_repo_config(text.encode(), source="x").ci.command == ("make", "check")


def test_a_role_of_another_kind_does_not_inherit_the_program() -> None:
    text = (
        CI
        + '[agent]\nkind = "command"\ncommand = ["./agent"]\nmodel = "m"\nstall = 5\n[agents.tester]\nkind = "claude"\n'
    )
    tester = parse_repo_config(text.encode(), source="x").agents[Role.TESTER]
    assert (tester.kind, tester.command, tester.model, tester.stall_s) == ("claude", None, None, 5.0)


def test_a_role_of_the_same_kind_inherits_it() -> None:
    text = CI + '[agent]\nkind = "command"\ncommand = ["./agent"]\n[agents.tester]\nstall = 5\n'
    assert parse_repo_config(text.encode(), source="x").agents[Role.TESTER].command == ("./agent",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "ci is missing: nothing is merged that was not checked"),
        ("[ci]\n", "line 1: ci.command is missing"),
        ("ci = 3\n", "line 1: ci is 3, expected a table [ci]"),
        ('[ci]\ncommand = "npm test"\n', "line 2: ci.command is 'npm test', expected a list of arguments, no shell"),
        ('[ci]\ncommand = "npm test"\n', 'is involved: write ["npm", "test"].'),
        ('[ci]\ncommand = "a\\u007fb"\n', 'write ["a\\U0000007fb"]'),
        ('[ci]\ncommand = "a && b"\n', 'write ["sh", "-c", "a && b"]'),
        ("[ci]\ncommand = []\n", 'expected a list of arguments such as ["python", "-m", "pytest"]'),
        ('[ci]\ncommand = [""]\n', "whose first is the program"),
        ('[ci]\ncommand = ["a", 1]\n', "expected a list of arguments"),
        ('[ci]\ncommand = ["a\\u0000"]\n', "without NUL"),
        (CI + "[forge]\nrequired_checks = true\n", "line 4: forge.required_checks is true, expected a list of texts"),
        (CI + '[forge]\nrequired_checks = ["a", "a"]\n', "expected each name once"),
        (CI + f'[forge]\nrequired_checks = ["{"a" * 201}"]\n', "expected at most 50 names"),
        (CI + "[forge]\nrequired_reviews = 21\n", "a whole number from 0 to 20"),
        (CI + "timeout = -1\n", "line 3: ci.timeout is -1, expected seconds"),
        (CI + 'timeout = "soon"\n', '"90s", "10m", "2h"'),
        (CI + "timeout = true\n", "ci.timeout is true, expected seconds"),
        (CI + "timeout = nan\n", "ci.timeout is nan"),
        (CI + "timeout = 5\ntimeout_s = 6\n", "given twice"),
        (CI + "timout = 5\n", "line 3: ci.timout is no key we know. Did you mean timeout?"),
        ("langage = 'en'\n" + CI, "line 1: langage is no key we know. Did you mean language?"),
        ("language = 'xx'\n" + CI, 'expected one of "en", "ru"'),
        ("default_branch = '-x'\n" + CI, "short name of a branch"),
        ("default_branch = 'a..b'\n" + CI, "short name of a branch"),
        (CI + "[covrage]\n", "Did you mean coverage?"),
        (CI + "[agents.developr]\n", "line 3: agents.developr is no key we know. Did you mean developer?"),
        (CI + "[agents]\ndeveloper = 3\n", "expected a table [agents.developer]"),
        (CI + "[agent]\nkind = 'gpt'\n", 'expected one of "claude", "codex", "command", "scripted"'),
        (CI + "[agent]\nkind = 'command'\n", 'has kind "command" and no command'),
        (CI + "[agent]\nenv = ['ORCH_TOKEN']\n", "belong to the orchestrator"),
        (CI + "env = { A = 1 }\n", "expected a table of texts"),
        (CI + "env = { orch_x = '1' }\n", "belong to the orchestrator"),
        (CI + "[coverage]\nreport = '../x'\nformat = 'lcov'\n", "a path inside the repository"),
        (CI + "[coverage]\nreport = 'x'\n", "coverage.format is missing"),
        (CI + "[coverage]\nreport = 'x'\nformat = 'lcov'\nminimum = 101\n", "expected a percentage from 0 to 100"),
        (CI + "[image]\ncommand = ['x']\nartifact = '.git/x'\n", "a path inside the repository"),
        (CI + "[staging]\nname = 's'\ndeploy = ['x']\n", "staging.probe is missing"),
        (CI + "[staging]\nname = 's'\ndeploy = ['x']\n[staging.probe]\n", "must hold either url or command"),
        (CI + "[staging.probe]\nurl = 'http://u:p@h/'\n", "without user and password"),
        (CI + "[staging]\ndeploy = ['x']\n[staging.probe]\nurl = 'http://h'\n", "staging.name is missing"),
        (CI + "[staging]\nname = '../x'\n", "a name of letters"),
        (CI + "[paths]\nprotected = ['!a']\n", "patterns such as"),
        (CI + "[budget]\nmax_rounds = 0\n", "expected a whole number from 1 to 100"),
        (CI + "[budget]\nmax_cost_usd = inf\n", "expected US dollars from"),
        (CI + "[budget]\nmax_rounds = true\n", "budget.max_rounds is true"),
        ("[ci\n", "is not valid TOML"),
        ("x = " + "[" * 100_000, "is not valid TOML"),
        ("x = " + "9" * 10_000, "is not valid TOML"),
        ("#" * 300_000, "longer than 256 KiB"),
    ],
)  # fmt: skip
def test_problems_say_where_what_and_how(text: str, expected: str) -> None:
    message = problems(text)
    assert expected in message
    assert len(message) < 2000


def test_all_problems_at_once_in_the_order_of_lines() -> None:
    message = problems(
        'x = 1\n[ci]\ncommand = "a"\ntimeout = "b"\n[agents.who]\n[budget]\nmax_rounds = "c"\n'
    )
    assert [line.split(":")[0].strip(" -") for line in message.splitlines()[1:6]] == [
        "line 1", "line 3", "line 4", "line 5", "line 7",
    ]  # fmt: skip


def test_one_place_is_not_two() -> None:
    place = "name = 's'\ndeploy = ['x']\nprobe = { url = 'http://h' }\n"
    assert "must be two places" in problems(CI + "[staging]\n" + place + "[production]\n" + place)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(ConfigError, match="line 2: the text is not UTF-8"):
        parse_repo_config(b"a = 1\nb = '\xff'\n", source="x")


def test_hostile_names_are_shown_safely() -> None:
    message = problems(CI + '"a\\u001b]0;x\\u0007" = 1\n[agents."' + "y" * 500 + '"]\n')
    assert all(line.isprintable() for line in message.split("\n"))


def test_the_reference_knows_every_key_the_reader_knows() -> None:
    docs = {(doc.table, doc.key): doc for doc in describe_repo_config()}
    for table, key in _keys(tomllib.loads(FULL)):
        assert (table, key) in docs
    assert docs["ci", "command"].required and docs["ci", "timeout"].default == '"30m"'
    assert docs["", "default_branch"].default == '"main"'
    assert docs["agents.tester", "kind"].default == "as in [agent]"
    assert all(doc.text.endswith(".") for doc in docs.values())


def _keys(table: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for key, value in table.items():
        if isinstance(value, dict) and key != "env":
            found += _keys(value, f"{prefix}.{key}" if prefix else key)
        else:
            found.append((prefix, key))
    return found


def test_documented_defaults_are_accepted_as_written() -> None:
    """Each default of the reference, written out, gives the same record as leaving it out."""
    for table in ("ci", "approvals", "agent", "paths", "budget"):
        written = [
            f"{d.key} = {d.default}\n" for d in describe_repo_config() if d.table == table and d.default
        ]
        text = CI + "".join(written) if table == "ci" else CI + f"[{table}]\n" + "".join(written)
        assert parse_repo_config(text.encode(), source="x") == parse_repo_config(CI.encode(), source="x")


VALUES = st.recursive(
    st.one_of(st.integers(-5, 10**6), st.booleans(), st.text(st.characters(codec="utf-8"), max_size=8)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(describe_repo_config()), VALUES)
def test_any_value_is_read_or_refused(doc: Any, value: Any) -> None:
    """Whatever stands behind a key, the answer is a record or a ConfigError."""
    import json

    table = f"[{doc.table}]\n" if doc.table else ""
    line = f"{doc.key} = {json.dumps(value)}\n".replace("\x7f", "\\u007f")
    text = CI + line if doc.table == "ci" else line + CI if not doc.table else CI + table + line
    try:
        assert isinstance(parse_repo_config(text.encode(), source="x"), RepoConfig)
    except ConfigError as error:
        assert all(part.isprintable() for part in str(error).split("\n"))
