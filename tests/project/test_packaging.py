"""What is shipped to run it as a service: the files say what the program knows, and leave it the time that it needs."""

import configparser
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from orchestrator.cli.entry import COMMANDS
from orchestrator.config import describe_settings, load_settings
from orchestrator.config.settings import Settings
from orchestrator.db.postgres import MAX_CONNECTIONS
from orchestrator.domain.duration import parse_duration
from orchestrator.runtime.process import MACHINE_ID_FILE
from orchestrator.web.guard import OPEN_PATHS
from tests.project.checkout import ROOT

PACKAGING = ROOT / "packaging"
COMPOSES = sorted(PACKAGING.glob("compose*.yaml"))
KNOWN = {doc.variable for doc in describe_settings()}


def services(compose: Path) -> dict[str, dict[str, Any]]:
    """Those of ours."""
    told = yaml.safe_load(compose.read_text(encoding="utf-8"))["services"]
    return {name: service for name, service in told.items() if service["image"] == "orchestrator"}


def image_environment() -> dict[str, str]:
    """What every command finds in a container."""
    text = (PACKAGING / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return {
        name: value.strip('"')
        for line in re.findall(r"^ENV (.+)$", text, re.MULTILINE)
        for name, _, value in (pair.partition("=") for pair in line.split())
    }


def filled_in(text: object, given: Mapping[str, str]) -> str:
    """A value of a compose file, with its variables as Compose reads them."""

    def value(found: re.Match[str]) -> str:
        name, sign, word = found.groups()
        there = given.get(name, "")
        return (word if there else "") if sign == ":+" else there or word or ""

    return re.sub(r"\$\{(\w+)(?:(:[-+])([^}]*))?\}", value, str(text))


def environment_of(service: dict[str, Any], given: Mapping[str, str], secrets: Path) -> dict[str, str]:
    """What its command finds, with the secrets that it is given as files of a folder."""
    for name in service["secrets"]:
        (secrets / name).write_text("a-secret-of-some-thirty-characters\n")
    told = {name: filled_in(value, given) for name, value in service["environment"].items()}
    found = image_environment() | told
    return {name: value.replace("/run/secrets/", f"{secrets}/") for name, value in found.items()}


UNITS = {"orch.service": ["orch", "serve"], "orch-worker.service": ["orch", "worker"]}


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((PACKAGING / name).read_text(encoding="utf-8"))
    return parser


@pytest.mark.parametrize("path", sorted(PACKAGING.iterdir()), ids=lambda path: path.name)
def test_every_setting_that_is_named_is_one(path: Path) -> None:
    named = set(re.findall(r"\bORCH_[A-Z_]+", path.read_text(encoding="utf-8")))
    assert named - KNOWN - {"ORCH_PGPASS_FILE"} == set()  # which is the compose file's own


@pytest.mark.parametrize("compose", COMPOSES, ids=lambda path: path.name)
def test_a_stop_waits_longer_than_the_service_takes(compose: Path) -> None:
    assert services(compose)
    for service in services(compose).values():
        assert parse_duration(service["stop_grace_period"]) > 2 * Settings().shutdown_budget_s
        assert service["init"] is True
        assert service["restart"] != "no"
        if service.get("command") == ["worker"]:
            assert "worker:/var/lib/orchestrator" in service["volumes"]
            assert "state:/var/lib/orchestrator" not in service["volumes"]
            assert service["healthcheck"]["test"] == ["CMD", "orch", "worker", "--check"]
            assert "ports" not in service
            continue
        assert "state:/var/lib/orchestrator" in service["volumes"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert "ORCH_TOKEN_FILE" in service["environment"]


GIVEN = {
    "as it is": {},
    "with Gitea": {"ORCH_GITEA_URL": "https://git.example.org", "ORCH_GITEA_TOKEN_FILE": "./gitea-token"},
    "with GitHub": {"ORCH_GITHUB_TOKEN_FILE": "./github-token", "ORCH_BASE_URL": "https://orch.example.org"},
}
SERVICES = [(path, name) for path in COMPOSES for name in services(path)]


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize(
    ("compose", "name"), SERVICES, ids=[f"{path.name}-{name}" for path, name in SERVICES]
)
def test_a_container_finds_settings_with_which_it_starts(
    compose: Path, name: str, given: dict[str, str], tmp_path: Path
) -> None:
    service = services(compose)[name]
    settings = load_settings(environment_of(service, given, tmp_path))
    works = service.get("command") == ["worker"]
    assert settings.loopback is works  # a worker answers nobody
    assert bool(settings.token) is not works
    if settings.on_postgres:
        [passfile] = re.findall(r"passfile=([^&]+)", settings.database_url)
        assert Path(passfile).is_file()
        assert bool(settings.gitea_token) is ("ORCH_GITEA_URL" in given)
        assert bool(settings.github_token) is ("ORCH_GITHUB_TOKEN_FILE" in given)


def test_a_worker_is_started_only_by_its_name() -> None:
    for compose, name in SERVICES:  # without a forge that it reaches there is nothing for it to do
        service = services(compose)[name]
        assert service.get("profiles") == (["worker"] if service.get("command") == ["worker"] else None)


def test_no_secret_asks_for_an_owner_of_its_own() -> None:
    """Compose gives a file its owner on the machine; what it cannot do, it passes over with a warning."""
    for compose in COMPOSES:
        told = yaml.safe_load(compose.read_text(encoding="utf-8"))
        assert all("file" in secret for secret in told["secrets"].values())
        assert all(isinstance(name, str) for one in told["services"].values() for name in one["secrets"])
    user = re.search(r"useradd --uid (\d+)", (PACKAGING / "Containerfile").read_text(encoding="utf-8"))
    assert user is not None
    guide = (ROOT / "docs/how-to/run-as-a-service.md").read_text(encoding="utf-8")
    for name in ("token", "pgpass", "gitea-token"):
        assert re.search(rf"(chown {user[1]}|-o {user[1]}) .*packaging/{name}\b", guide)


def test_a_machine_is_known_again_after_a_reboot() -> None:
    for compose, name in SERVICES:
        service = services(compose)[name]
        assert service["hostname"] == name  # a container made anew would have another one
        if "ORCH_DATABASE_URL" in service["environment"]:
            [mounted] = [one for one in service["volumes"] if isinstance(one, dict)]
            assert (mounted["type"], mounted["read_only"]) == ("bind", True)
            assert mounted["source"] == mounted["target"] == str(MACHINE_ID_FILE)
            assert mounted["bind"] == {"create_host_path": False}


@pytest.mark.parametrize("compose", COMPOSES, ids=lambda path: path.name)
def test_secrets_are_files(compose: Path) -> None:
    told = yaml.safe_load(compose.read_text(encoding="utf-8"))
    given = {name for one in told["services"].values() for name in one["secrets"]}
    assert given == set(told["secrets"])
    for service in told["services"].values():
        for name, value in service["environment"].items():
            assert "PASSWORD" not in name or name.endswith("_FILE")
            assert not re.search(r"://[^/@]*:[^/@]*@", str(value))


@pytest.mark.parametrize(("name", "runs"), UNITS.items(), ids=UNITS)
def test_a_unit_s_stop_leaves_agents_and_runners_alone(name: str, runs: list[str]) -> None:
    service = unit(name)["Service"]
    assert service["KillMode"] == "process"
    assert float(service["TimeoutStopSec"]) > 2 * Settings().shutdown_budget_s
    assert service["Restart"] == "always"
    assert unit(name)["Unit"]["StartLimitIntervalSec"] == "0"
    program, *command = service["ExecStart"].split()
    assert program.endswith("/dev")
    assert command == runs
    assert service["Environment"] == f"ORCH_HOME=/var/lib/{service['StateDirectory']}"


def test_the_image_s_user_health_check_and_command() -> None:
    text = (PACKAGING / "Containerfile").read_text(encoding="utf-8")
    assert text.index("USER orch") < text.index("ENTRYPOINT")
    assert 'CMD ["serve"]' in text
    assert "serve" in COMMANDS
    assert "--require-hashes" in text
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert all((ROOT / name).exists() for names in copied for name in names.split())


def health_check() -> list[str]:
    text = (PACKAGING / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    [command] = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", text, re.MULTILINE)
    python, *rest = json.loads(command)
    assert python == "python"
    return [sys.executable, *rest]


class Answer(BaseHTTPRequestHandler):
    """A service that is ready, or not."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


class NotReady(Answer):
    """One that is not."""

    status = 503


@pytest.mark.parametrize(
    ("answer", "healthy"), [(Answer, True), (NotReady, False)], ids=["ready", "not ready"]
)
def test_the_image_is_healthy_where_the_port_that_is_set_says_ready(
    answer: type[Answer], healthy: bool
) -> None:
    with HTTPServer(("127.0.0.1", 0), answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        asked = subprocess.run(
            health_check(), env={"ORCH_PORT": str(server.server_port)}, capture_output=True, check=False
        )
        server.shutdown()
    assert (asked.returncode == 0) is healthy


@pytest.mark.parametrize("environment", [{}, {"ORCH_PORT": ""}], ids=["unset", "empty"])
def test_the_image_s_health_check_asks_where_the_service_is_by_default(environment: dict[str, str]) -> None:
    *_, code = health_check()
    asked = f"import urllib.request; urllib.request.urlopen = lambda url, timeout: print(url)\n{code}"
    told = subprocess.run(
        [sys.executable, "-c", asked], env=environment, check=True, capture_output=True, text=True
    )
    assert told.stdout == f"http://127.0.0.1:{Settings().port}/readyz\n"
    assert "/readyz" in OPEN_PATHS


def test_nothing_but_what_the_image_is_built_from_is_sent_to_its_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    first, *rest = (line for line in lines if not line.startswith("#"))
    text = (PACKAGING / "Containerfile").read_text(encoding="utf-8")
    copied = {
        name
        for names in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
        for name in names.split()
    }
    assert first == "*"
    assert {line.removeprefix("!") for line in rest if line.startswith("!")} == copied


def test_git_leaves_secrets_that_lie_beside_a_compose_file_alone() -> None:
    for compose in COMPOSES:
        told = yaml.safe_load(compose.read_text(encoding="utf-8"))["secrets"].values()
        places = {filled_in(secret["file"], given) for secret in told for given in GIVEN.values()} - {
            "/dev/null"
        }
        for name in {*places, "./.env"}:
            path = os.path.relpath((PACKAGING / name).resolve(), ROOT)
            git = ["git", "-c", f"safe.directory={ROOT}", "check-ignore", "--no-index", "--quiet", path]
            assert subprocess.run(git, cwd=ROOT, check=False).returncode == 0, path


def test_the_guide_explains_every_line_that_is_not_usual() -> None:
    guide = (ROOT / "docs/how-to/run-as-a-service.md").read_text(encoding="utf-8")
    for line in ("KillMode", "TimeoutStopSec", "Restart", "StartLimitIntervalSec", "StateDirectory", "UMask"):
        assert f"`{line}=" in guide
    for path in PACKAGING.iterdir():
        if path.suffix == ".yaml":
            assert f"packaging/{path.name}" in guide


def test_files_of_an_installation_lie_in_one_folder() -> None:
    [folder] = {Path(unit(name)["Service"]["EnvironmentFile"].removeprefix("-")).parent for name in UNITS}
    for page in (ROOT / "docs").rglob("*.md"):
        told = set(re.findall(r"/etc/orch[\w.-]*", page.read_text(encoding="utf-8")))
        assert told <= {str(folder)}, page


def test_who_delivers_itself_changes_only_the_program_of_the_unit() -> None:
    guide = (ROOT / "docs/how-to/self-deploy.md").read_text(encoding="utf-8")
    [(name, text)] = re.findall(r"```ini\n# /etc/systemd/system/(\S+)\n(.*?)```", guide, re.DOTALL)
    assert Path(name).parent == Path("orch.service.d")
    said = configparser.ConfigParser(interpolation=None, strict=False)
    said.read_string(text)
    assert said.sections() == ["Service"]
    assert list(said["Service"]) == ["execstart"]
    assert text.count("ExecStart=\n") == 1  # systemd would start both
    assert said["Service"]["ExecStart"].split()[1:] == UNITS["orch.service"]


def test_the_guide_to_postgresql_counts_the_connections_and_names_who_signs_the_server_s() -> None:
    guide = (ROOT / "docs/how-to/postgresql.md").read_text(encoding="utf-8")
    told = re.search(r"Up to (\d+) connections", guide)
    assert told is not None
    assert int(told[1]) == MAX_CONNECTIONS + 2  # one that speaks and one that listens
    urls = re.findall(r'"(postgresql://\S+sslmode=verify-full\S*)"', guide)
    assert urls
    for url in urls:
        assert load_settings({"ORCH_HOME": "/nowhere", "ORCH_DATABASE_URL": url}).database_url == url
        assert "sslrootcert=/" in url
