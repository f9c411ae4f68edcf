"""What is shipped to run it as a service: the files say what the program knows, and leave it the time that it needs."""

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.cli.entry import COMMANDS
from orchestrator.config import describe_settings
from orchestrator.config.settings import Settings
from orchestrator.domain.duration import parse_duration
from orchestrator.web.guard import OPEN_PATHS
from tests.project.checkout import ROOT

PACKAGING = ROOT / "packaging"
COMPOSES = sorted(PACKAGING.glob("compose*.yaml"))
KNOWN = {doc.variable for doc in describe_settings()}


def services(compose: Path) -> dict[str, dict[str, Any]]:
    """Those of ours."""
    told = yaml.safe_load(compose.read_text(encoding="utf-8"))["services"]
    return {name: service for name, service in told.items() if service["image"] == "orchestrator"}


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
            assert service["volumes"] == ["worker:/var/lib/orchestrator"]
            assert service["healthcheck"]["test"] == ["CMD", "orch", "worker", "--check"]
            assert "ports" not in service
            continue
        assert "state:/var/lib/orchestrator" in service["volumes"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert "ORCH_TOKEN_FILE" in service["environment"]


@pytest.mark.parametrize("compose", COMPOSES, ids=lambda path: path.name)
def test_secrets_are_files(compose: Path) -> None:
    told = yaml.safe_load(compose.read_text(encoding="utf-8"))
    given = {
        name if isinstance(name, str) else name["source"]
        for one in told["services"].values()
        for name in one["secrets"]
    }
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
    health = re.search(r"127\.0\.0\.1:(\d+)(/\w+)", text)
    assert health is not None
    assert int(health[1]) == Settings().port
    assert health[2] in OPEN_PATHS
    assert text.index("USER orch") < text.index("ENTRYPOINT")
    assert 'CMD ["serve"]' in text
    assert "serve" in COMMANDS
    assert "--require-hashes" in text
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    assert all((ROOT / name).exists() for names in copied for name in names.split())


def test_the_guide_explains_every_line_that_is_not_usual() -> None:
    guide = (ROOT / "docs/how-to/run-as-a-service.md").read_text(encoding="utf-8")
    for line in ("KillMode", "TimeoutStopSec", "Restart", "StartLimitIntervalSec", "StateDirectory", "UMask"):
        assert f"`{line}=" in guide
    for path in PACKAGING.iterdir():
        if path.suffix == ".yaml":
            assert f"packaging/{path.name}" in guide
