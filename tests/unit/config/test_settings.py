"""ORCH_*: read once, wrong ones explained, secrets never shown."""

import ast
import copy
import inspect
import os
import pickle
import pwd
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orchestrator
from orchestrator.config import (
    Language,
    LogFormat,
    LogLevel,
    Secret,
    Settings,
    describe_settings,
    load_settings,
)
from orchestrator.domain.errors import ConfigError
from orchestrator.domain.scope import Scope
from orchestrator.domain.shares import NO_CAPS, Shares

HOME = {"ORCH_HOME": "/srv/orch"}
TOKEN = "canary-0123456789"


WITHOUT_MECHANISM = (
    "SERIAL_GATE_ENABLED",
    "COVERAGE_GATE_ENABLED",
)


def problems(environ: dict[str, str]) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ)
    return str(caught.value)


def test_defaults() -> None:
    settings = load_settings({"HOME": "/home/me"})
    assert settings.home == Path("/home/me/.local/state/orchestrator")
    assert settings.database_path == settings.home / "orchestrator.db"
    assert (settings.host, settings.port, settings.base_url) == ("127.0.0.1", 8114, "http://127.0.0.1:8114")
    assert (settings.language, settings.log_level, settings.log_format) == (
        Language.EN,
        LogLevel.INFO,
        LogFormat.TEXT,
    )
    assert settings.transition_lease_enabled and settings.reaper_enabled and settings.reconciler_enabled
    assert not settings.token and settings.secrets() == ()


@pytest.mark.parametrize(
    ("environ", "home"),
    [
        ({"XDG_STATE_HOME": "/state", "HOME": "/home/me"}, "/state/orchestrator"),
        ({"XDG_STATE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.local/state/orchestrator"),
        ({"HOME": "/home/me", "ORCH_HOME": "/srv/orch"}, "/srv/orch"),
        ({"ORCH_HOME": "", "HOME": "/home/me"}, "/home/me/.local/state/orchestrator"),
        ({"ORCH_HOME": "state"}, os.path.abspath("state")),
        ({"HOME": ""}, f"{pwd.getpwuid(os.getuid()).pw_dir}/.local/state/orchestrator"),
        ({}, f"{pwd.getpwuid(os.getuid()).pw_dir}/.local/state/orchestrator"),
    ],
)
def test_state_folder(environ: dict[str, str], home: str) -> None:
    assert str(load_settings(environ).home) == home


@pytest.mark.parametrize("variable", ["ORCH_HOME", "XDG_STATE_HOME", "HOME"])
def test_a_state_folder_that_is_no_text_is_refused(variable: str) -> None:
    """Places below it are kept in the database."""
    with pytest.raises(ConfigError, match="UTF-8"):
        load_settings({variable: "/srv/\udcff"})


def test_values_are_read() -> None:
    settings = load_settings(
        HOME
        | {
            "ORCH_DATABASE_URL": "sqlite:////var/lib/o.db",
            "ORCH_HOST": "::1",
            "ORCH_PORT": "0",
            "ORCH_LANGUAGE": "RU",
            "ORCH_LOG_LEVEL": "debug",
            "ORCH_REAPER_INTERVAL_S": "500ms",
            "ORCH_REAPER_MAX_RUNNING_S": "2h",
            "ORCH_REAPER_ENABLED": "off",
            "ORCH_BASE_URL": "https://orch.example.org/x/",
        }
    )
    assert settings.database_path == Path("/var/lib/o.db")
    assert (settings.host, settings.port, settings.loopback) == ("::1", 0, True)
    assert (settings.reaper_interval_s, settings.reaper_max_running_s, settings.reaper_enabled) == (
        0.5,
        7200.0,
        False,
    )
    assert settings.base_url == "https://orch.example.org/x"


@pytest.mark.parametrize(
    ("repos", "named"),
    [
        (None, ["*"]),
        ("*", ["*"]),
        ("shop, *", ["*"]),
        ("shop,enduro-trails ,shop", ["enduro-trails", "shop"]),
        ("", ["orch"]),
        (" ", ["orch"]),
    ],
)
def test_whose_tasks_run_under_a_lease(repos: str | None, named: list[str]) -> None:
    """Not set is every repository; set and empty is that of this installation alone (FR-7)."""
    given = {} if repos is None else {"ORCH_TRANSITION_LEASE_REPOS": repos}
    scope = load_settings(HOME | given | {"ORCH_SELF_REPO": " orch "}).lease_scope
    assert sorted(scope.named()) == named
    assert scope.enabled
    assert not load_settings(HOME | given | {"ORCH_TRANSITION_LEASE_ENABLED": "no"}).lease_scope.covers(
        "shop"
    )


@pytest.mark.parametrize("mechanism", ["reaper", "reconciler", "drift_watch"])
def test_whose_tasks_a_mechanism_looks_after(mechanism: str) -> None:
    """As it is with leases: a kill-switch and a scope for each (S-21, S-22)."""

    def named(**given: str) -> list[str] | None:
        told = {f"ORCH_{mechanism.upper()}_{name.upper()}": value for name, value in given.items()}
        settings = load_settings(HOME | told | {"ORCH_SELF_REPO": "orch"})
        scope = getattr(settings, f"{mechanism}_scope")
        assert isinstance(scope, Scope)
        return sorted(scope.named()) if scope.enabled else None

    assert named() == ["*"]
    assert named(repos="shop, enduro-trails") == ["enduro-trails", "shop"]
    assert named(repos="") == ["orch"]
    assert named(enabled="no", repos="shop") is None


def test_states_are_read_by_stage() -> None:
    read = load_settings(HOME | {"ORCH_PLANE_STATES": " review = In  Review , done=Released"}).plane_states
    assert read == (("review", "in review"), ("done", "released"))
    assert load_settings(HOME).plane_states == ()


def test_caps_are_read_by_name() -> None:
    settings = load_settings(
        HOME
        | {
            "ORCH_MAX_AGENTS_TOTAL": "8",
            "ORCH_MAX_AGENTS_BY_REPO": " shop = 3 , *=1,blog.x=0",
            "ORCH_MAX_AGENTS_BY_STAGE": "deploy-staging=1",
            "ORCH_MAX_AGENTS_BY_KIND": "codex=1,claude=2",
            "ORCH_PRIORITY_STEP_S": "30m",
        }
    )
    assert settings.shares == Shares(
        total=8,
        by_repo=(("*", 1), ("blog.x", 0), ("shop", 3)),
        by_stage=(("deploy-staging", 1),),
        by_kind=(("claude", 2), ("codex", 1)),
    )
    assert settings.priority_step_s == 1800
    assert load_settings(HOME).shares == NO_CAPS


def test_an_address_of_version_six_is_written_in_brackets() -> None:
    assert load_settings(HOME | {"ORCH_HOST": "::1"}).base_url == "http://[::1]:8114"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ORCH_PRT", "1", "'ORCH_PRT' is no setting. Did you mean ORCH_PORT?"),
        ("ORCH_REAPER_INTERVAL", "1", "Did you mean ORCH_REAPER_INTERVAL_S?"),
        ("orch_port", "1", "Did you mean ORCH_PORT?"),
        ("ORCH_QQQQQQ", "1", "'ORCH_QQQQQQ' is no setting."),
        ("ORCH_PORT", "http", "ORCH_PORT is 'http', expected a whole number from 0 to 65535"),
        ("ORCH_PORT", "65536", "ORCH_PORT is '65536'"),
        ("ORCH_PORT", "-1", "ORCH_PORT is '-1'"),
        ("ORCH_PORT", "\u0663", "ORCH_PORT is"),
        ("ORCH_MAX_CHECKS", "0", "from 1 to 256"),
        ("ORCH_MAX_AGENTS_TOTAL", "many", "from 0 to 10000"),
        ("ORCH_MAX_AGENTS_BY_KIND", "claude", "kind=number pairs separated by commas"),
        ("ORCH_MAX_AGENTS_BY_KIND", "cloud=2", "the names are claude, codex, command, scripted"),
        ("ORCH_MAX_AGENTS_BY_KIND", "claude=-1", "each number from 0 to 10000"),
        ("ORCH_MAX_AGENTS_BY_KIND", "claude=", "each number from 0 to 10000"),
        ("ORCH_MAX_AGENTS_BY_KIND", "claude=1,claude=2", "each name once"),
        ("ORCH_MAX_AGENTS_BY_KIND", "claude=1,", "kind=number pairs"),
        ("ORCH_MAX_AGENTS_BY_STAGE", "deploy=1", "the names are analysis, architecture, development"),
        ("ORCH_MAX_AGENTS_BY_REPO", "../x=1", "repository=number pairs"),
        ("ORCH_MAX_AGENTS_BY_REPO", "shop:1", "* for all others"),
        ("ORCH_PRIORITY_STEP_S", "0", "from 1s to 30d"),
        ("ORCH_LANGUAGE", "de", "expected one of en, ru"),
        ("ORCH_REAPER_ENABLED", "maybe", "expected true or false"),
        ("ORCH_OUTBOX_INTERVAL_S", "soon", '"90s", "10m", "2h"'),
        ("ORCH_OUTBOX_INTERVAL_S", "0", "from 0.05s to 30d"),
        ("ORCH_OUTBOX_INTERVAL_S", "nan", "expected"),
        ("ORCH_HOST", "http://x", "a host name or an IP address"),
        ("ORCH_BASE_URL", "orch.example.org", "expected an address such as"),
        ("ORCH_BASE_URL", "http://u:p@h", "expected an address such as"),
        ("ORCH_BASE_URL", "http://h:99999", "expected an address such as"),
        ("ORCH_DATABASE_URL", "mysql://u:p@h/db", "or postgresql://<user>@<host>/<database>"),
        ("ORCH_DATABASE_URL", "postgresql+psycopg://u@h/db", "or postgresql://<user>@<host>/<database>"),
        ("ORCH_DATABASE_URL", "postgresql://u:p@h", "expected postgresql://<user>@<host>/<database>"),
        ("ORCH_DATABASE_URL", "postgresql://u:p/q@h/db", "percent-encoded"),
        ("ORCH_DATABASE_URL", "postgresql://u:p q@h/db", "percent-encoded"),
        ("ORCH_DATABASE_URL", "sqlite://", "expected sqlite:///<absolute path>"),
        ("ORCH_DATABASE_URL", "sqlite://x.db", "expected sqlite:///<absolute path>"),
        ("ORCH_DATABASE_URL", "sqlite:///x/", "not a folder"),
        *((f"ORCH_{name}", "1", "is no setting") for name in WITHOUT_MECHANISM),
        ("ORCH_HOST", "0.0.0.0", "can be reached from other machines, and neither ORCH_TOKEN nor"),
        ("ORCH_GITEA_URL", "https://git.example.org", "go together: one of them is set"),
        ("ORCH_GITEA_URL", "git.example.org", "expected an address such as"),
        ("ORCH_GITEA_TOKEN", "t" * 40, "go together: one of them is set"),
        ("ORCH_PLANE_URL", "https://plane.example.org", "go together: one of them is set"),
        ("ORCH_PLANE_TOKEN", "t" * 40, "go together: one of them is set"),
        ("ORCH_PLANE_STATES", "review", "stage=state pairs"),
        ("ORCH_PLANE_STATES", "lunch=Away", "the stages are created, analysis"),
        ("ORCH_PLANE_STATES", "review=A,review=B", "each stage once"),
        ("ORCH_PLANE_LABELS", "a,,b", "names or ids separated by commas"),
        ("ORCH_PLANE_CALLS_PER_MINUTE", "1", "from 4 to 10000"),
        ("ORCH_GITHUB_URL", "https://api.github.com", "Give the one that people open"),
        ("ORCH_GITHUB_URL", "https://git.acme.org/api/v3", "Give the one that people open"),
        ("ORCH_PROCESS_TTL_S", "10", "at least three times ORCH_HEARTBEAT_INTERVAL_S (5s)"),
        ("ORCH_HEARTBEAT_INTERVAL_S", "20", "shorter than the term in which a process trusts its own leases"),
        ("ORCH_HEARTBEAT_INTERVAL_S", "15", "ORCH_PROCESS_TTL_S (30s) must be at least three times"),
        ("ORCH_REAPER_MAX_RUNNING_S", "1m", "must be longer than ORCH_REAPER_FINALIZE_GRACE_S (2m)"),
        (
            "ORCH_TRANSITION_LEASE_REPOS",
            "shop,,x",
            "names of repositories separated by commas, or * for every one",
        ),
        ("ORCH_TRANSITION_LEASE_REPOS", "../x", "names of repositories"),
        ("ORCH_SELF_REPO", "a,b", "expected the name of a repository"),
        ("ORCH_BUILD_SHA", "abc123", "a full SHA: 40 or 64"),
        ("ORCH_SELF_REPO", "*", "expected the name of a repository"),
        ("ORCH_TELEGRAM_CHAT", "somewhere", "the number of a chat"),
        ("ORCH_TELEGRAM_CHAT", "0", "the number of a chat"),
        ("ORCH_TELEGRAM_CHAT", "5", "Set ORCH_TELEGRAM_TOKEN or ORCH_TELEGRAM_TOKEN_FILE, too, or neither"),
        (
            "ORCH_TELEGRAM_TOKEN",
            "123456:a/../../b?c=0123456789",
            "not usable (value not shown), expected a bot's token",
        ),
        ("ORCH_TOKEN_FILE", "/nonexistent/token", "cannot be read: No such file or directory"),
    ],
)
def test_problems_name_the_variable_and_what_was_expected(name: str, value: str, expected: str) -> None:
    assert expected in problems(HOME | {name: value})


def test_all_problems_at_once() -> None:
    message = problems(HOME | {"ORCH_PORT": "x", "ORCH_LANGUAGE": "y", "ORCH_FOO": "z"})
    assert all(name in message for name in ("ORCH_PORT", "ORCH_LANGUAGE", "ORCH_FOO"))


def test_what_a_deploy_command_inherits_is_no_problem() -> None:
    load_settings(
        HOME | {"ORCH_SHA": "a" * 40, "ORCH_DEPLOY_TOKEN": "1-2", "ORCH_ENVIRONMENT": "x", "OTHER": "y"}
    )


def test_no_message_shows_a_secret(tmp_path: Path) -> None:
    short = "cnry-short"
    file = tmp_path / "token"
    file.write_text(short)
    for environ in (
        {"ORCH_TOKEN": short},
        {"ORCH_TOKN": short},
        {"ORCH_TOKEN_FILE": str(file)},
        {"ORCH_TOKEN": TOKEN, "ORCH_TOKEN_FILE": str(file)},
        {"ORCH_TOKEN": TOKEN, "ORCH_PORT": "x"},
        {"ORCH_DATABASE_URL": f"postgresql://u:{short}@h"},
        {"ORCH_DATABASE_URL": f"mysql://u:{short}@h/db"},
        {"ORCH_BASE_URL": f"https://u:{short}@h/"},
    ):
        message = problems(HOME | environ)
        assert short not in message and TOKEN not in message


def test_the_token_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    settings = load_settings(HOME | {"ORCH_TOKEN_FILE": str(file), "ORCH_HOST": "0.0.0.0"})
    assert settings.token.reveal() == TOKEN and not settings.loopback
    assert settings.secrets() == (Secret(TOKEN),)


@pytest.mark.parametrize(
    "given", ["old-secret-of-16ch new-secret-of-16ch", "old-secret-of-16ch\n new-secret-of-16ch\n"]
)
def test_old_and_new_secret_of_a_sender(tmp_path: Path, given: str) -> None:
    old, new = Secret("old-secret-of-16ch"), Secret("new-secret-of-16ch")
    file = tmp_path / "secret"
    file.write_text(given)
    for environ in ({"ORCH_PLANE_WEBHOOK_SECRET": given}, {"ORCH_PLANE_WEBHOOK_SECRET_FILE": str(file)}):
        settings = load_settings(HOME | environ)
        assert settings.plane_webhook_secret == (old, new) and settings.gitea_webhook_secret == ()
        assert settings.secrets() == (old, new)
        assert "secret-of" not in repr(settings)


@pytest.mark.parametrize(
    "given",
    ["short", "a-secret-of-16-chars x", "\u0436" * 20, " ".join(f"secret-number-{n:04}" for n in range(11))],
)
def test_no_usable_secret_of_a_sender(given: str) -> None:
    message = problems(HOME | {"ORCH_GITEA_WEBHOOK_SECRET": given})
    assert "ORCH_GITEA_WEBHOOK_SECRET is not usable (value not shown), expected one to 10 secrets" in message
    assert given not in message


@pytest.mark.parametrize("content", [b"\xff\xfe" * 10, b"", b"two words are no token"])
def test_a_token_file_that_holds_none(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    assert "ORCH_TOKEN_FILE" in problems(HOME | {"ORCH_TOKEN_FILE": str(file)})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost", "LOCALHOST"])
def test_loopback_needs_no_token(host: str) -> None:
    assert load_settings(HOME | {"ORCH_HOST": host}).loopback


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret(TOKEN)
    settings = load_settings(HOME | {"ORCH_TOKEN": TOKEN})
    for text in (
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret:>40}",
        "{} {!r}".format(secret, {"x": secret}),
        repr(settings),
    ):
        assert TOKEN not in text and "***" in text
    assert secret == Secret(TOKEN) and secret != Secret("other") and secret != TOKEN
    assert copy.deepcopy(secret) == copy.copy(secret) == secret and hash(secret) == hash(Secret("other"))
    with pytest.raises(TypeError):
        pickle.dumps(secret)


def test_settings_do_not_change() -> None:
    settings = load_settings(HOME)
    with pytest.raises(AttributeError):
        settings.port = 1  # type: ignore[misc]


def test_the_reference_describes_every_setting() -> None:
    docs = describe_settings()
    assert {doc.field for doc in docs} == set(Settings.__dataclass_fields__)
    for doc in docs:
        assert doc.variable == "ORCH_" + doc.field.upper()
        assert doc.text.endswith(".") and doc.default
        assert (doc.unit == "seconds") is doc.field.endswith("_s")
    secret = [
        "ORCH_TOKEN",
        "ORCH_TELEGRAM_TOKEN",
        "ORCH_APPRISE_URLS",
        "ORCH_PLANE_TOKEN",
        "ORCH_PLANE_WEBHOOK_SECRET",
        "ORCH_GITEA_WEBHOOK_SECRET",
        "ORCH_GITHUB_WEBHOOK_SECRET",
        "ORCH_GITEA_TOKEN",
        "ORCH_GITHUB_TOKEN",
    ]
    assert [doc.variable for doc in docs if doc.secret] == secret
    assert {f"{name}_FILE" for name in secret} <= {doc.variable for doc in docs}


def test_every_setting_is_read_somewhere() -> None:
    """What is documented has an effect: code outside ``config`` reads it, or a property of the record that is read."""
    package = Path(orchestrator.__file__).parent
    # The loader puts what such a file holds where the field without `_file` has it.
    read = {f"{doc.field}_file" for doc in describe_settings() if doc.secret}
    for place in package.rglob("*.py"):
        if place.parent.name != "config":
            read |= attributes(ast.parse(place.read_text(encoding="utf-8")), {"settings", "_settings"})
    for part in ast.walk(ast.parse(inspect.getsource(Settings))):
        if isinstance(part, ast.FunctionDef) and part.name in read:
            read |= attributes(part, {"self"})
    assert set(Settings.__dataclass_fields__) - read == set()


def attributes(tree: ast.AST, owners: set[str]) -> set[str]:
    """The attributes that are read from something called by one of ``owners``."""
    found = [part for part in ast.walk(tree) if isinstance(part, ast.Attribute)]
    return {
        part.attr
        for part in found
        if (isinstance(part.value, ast.Name) and part.value.id in owners)
        or (isinstance(part.value, ast.Attribute) and part.value.attr in owners)
    }


def test_documented_defaults_are_accepted_as_written() -> None:
    plain = [
        doc for doc in describe_settings() if not any(mark in doc.default for mark in ("$", "<", " ", "none"))
    ]
    assert len(plain) > 20
    assert load_settings(HOME | {doc.variable: doc.default for doc in plain}) == load_settings(HOME)


@given(st.sampled_from([doc.variable for doc in describe_settings()]), st.text(max_size=30))
def test_any_value_is_read_or_refused(variable: str, value: str) -> None:
    try:
        assert isinstance(load_settings(HOME | {variable: value}), Settings)
    except ConfigError as error:
        assert all(line.isprintable() for line in str(error).split("\n"))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://orch@db.example.org/orch", "postgresql://orch@db.example.org/orch"),
        ("postgres://h:5433/orch?sslmode=verify-full", "postgresql://h:5433/orch?sslmode=verify-full"),
        ("POSTGRESQL://a,b:2/orch", "postgresql://a,b:2/orch"),
        ("postgresql://orch@/?host=/run/postgresql&dbname=orch", None),
        ("postgresql:///orch", None),
    ],
)
def test_a_server_s_database(url: str, expected: str | None) -> None:
    settings = load_settings(HOME | {"ORCH_DATABASE_URL": url})
    assert settings.on_postgres
    assert settings.database_url == (expected or url)
    assert settings.secrets() == ()


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("postgresql://orch:cnry-long@h/orch", ["cnry-long"]),
        ("postgresql://orch:cn%2Fry@h/orch", ["cn%2Fry", "cn/ry"]),
        ("postgresql://orch:a@b@h/orch", ["a@b"]),
        ("postgresql://orch@h/orch?password=cn%2Fry&sslpassword=other", ["cn/ry", "other"]),
    ],
)
def test_the_passwords_in_a_database_s_address_are_secrets(url: str, secrets: list[str]) -> None:
    settings = load_settings(HOME | {"ORCH_DATABASE_URL": url})
    assert settings.secrets() == tuple(map(Secret, secrets))
    assert not any(secret in repr(settings) for secret in secrets)
