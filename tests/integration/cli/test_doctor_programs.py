"""`orch doctor` on programs that a configuration names: what cannot be started fails, and is told how to mend."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_git import Hand
from tests.fixtures_orch import CONFIG, Here, Orch

CHECKS = '["sh", "-c", "true"]'
PLACE = """
[{stage}]
name = "{stage}"
deploy = {deploy}
undo = ["true"]
[{stage}.probe]
url = "http://127.0.0.1:1/"
"""


def findings(here: Here, orch: Orch, config: str, files: dict[str, str] | None = None) -> tuple[int, Any]:
    hand = orch.checkout(files={".orchestrator.toml": config, **(files or {})})
    (hand.folder / "run.sh").write_text("exit 0\n", encoding="utf-8")
    (hand.folder / "run.sh").chmod(0o755)
    hand.commit("A program", {})
    assert here("init", cwd=hand.folder).code == 0
    said = here("doctor", "--json", cwd=orch.folder)
    return said.code, {finding["about"]: finding for finding in said.data["findings"]}


def agent(command: str, kind: str = "command") -> str:
    return CONFIG.replace('kind = "scripted"', f'kind = "{kind}"\ncommand = ["{command}"]')


@pytest.mark.parametrize("kind", ["command", "claude", "codex"])
@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("/nonexistent/agent", "no such file"),
        ("no-such-program-anywhere", "on PATH"),
        ("./tools/agent", "no such file on main"),
        (".orchestrator.toml/../README.md", "not executable"),
        ("../agent", "no such file on main"),
        ("/etc/passwd", "not executable"),
    ],
)
def test_an_agent_that_cannot_be_started(here: Here, orch: Orch, kind: str, program: str, why: str) -> None:
    code, found = findings(here, orch, agent(program, kind), {"README.md": "x"})
    assert code == 1
    finding = found[f"agent {kind} of shop"]
    assert finding["level"] == "failed" and why in finding["text"] and program in finding["text"]
    assert "[agent]" in finding["hint"]


@pytest.mark.parametrize("program", ["sh", shutil.which("sh") or "/bin/sh", "./run.sh", "run.sh/../run.sh"])
def test_an_agent_that_is_there(here: Here, orch: Orch, program: str) -> None:
    code, found = findings(here, orch, agent(program))
    assert (code, found["agent command of shop"]["level"]) == (0, "ok"), found


def test_nobody_is_missed_whom_no_role_names(here: Here, orch: Orch) -> None:
    """Where each role has an agent of its own, the one for all others is never started."""
    roles = "".join(
        f'[agents.{role}]\nkind = "scripted"\n'
        for role in ("analyst", "architect", "developer", "reviewer", "tester")
    )
    code, _ = findings(here, orch, agent("/nonexistent/agent") + roles)
    assert code == 0


@pytest.mark.parametrize("program", ["/nonexistent/x", "no-such-program-anywhere", "./x.sh", "./README.md"])
@pytest.mark.parametrize(
    "key", ["[ci] command", "[image] command", "[staging] deploy", "[production] deploy"]
)
def test_a_command_that_cannot_be_started(here: Here, orch: Orch, key: str, program: str) -> None:
    wanted = f'["{program}", "now"]'
    config = CONFIG
    if key.startswith("[ci]"):
        config = CONFIG.replace(CHECKS, wanted)
    elif key.startswith("[image]"):
        config += f'[image]\ncommand = {wanted}\nartifact = "dist"\n'
    else:
        stage = key[1 : key.index("]")]
        config += "".join(
            PLACE.format(stage=each, deploy=wanted if each == stage else '["./run.sh"]')
            for each in ("staging", "production")
        )
    code, found = findings(here, orch, config, {"README.md": "x"})
    failed = {about for about, finding in found.items() if finding["level"] == "failed"}
    assert (code, failed) == (1, {f"shop {key}"})
    assert program in found[f"shop {key}"]["text"]
    assert (
        ".orchestrator.toml" in found[f"shop {key}"]["hint"]
        or "git add --chmod" in found[f"shop {key}"]["hint"]
    )


def test_what_lies_in_an_artefact_is_not_looked_for(here: Here, orch: Orch) -> None:
    config = CONFIG + '[image]\ncommand = ["./run.sh"]\nartifact = "dist"\n'
    code, found = findings(here, orch, config + PLACE.format(stage="staging", deploy='["./deploy.sh"]'))
    assert code == 0, found


def test_a_path_of_its_own_is_looked_on(here: Here, orch: Orch) -> None:
    tools = orch.folder / "tools"
    tools.mkdir()
    (tools / "my-checks").write_text("#!/bin/sh\n", encoding="utf-8")
    (tools / "my-checks").chmod(0o755)
    config = CONFIG.replace(CHECKS, f'["my-checks"]\nenv = {{ PATH = "{tools}" }}')
    code, found = findings(here, orch, config)
    assert code == 0, found


def test_a_forge_that_is_gone(here: Here, orch: Orch) -> None:
    code, _ = findings(here, orch, CONFIG)
    assert code == 0
    forge = Path(Hand(orch.folder / "shop").git("remote", "get-url", "orch"))
    shutil.rmtree(forge)
    said = here("doctor")
    assert said.code == 1
    assert str(forge) in said.out and "backup" in said.out


def test_a_configuration_that_is_only_written(here: Here, orch: Orch) -> None:
    place = orch.checkout(files={"README.md": "x"}).folder
    assert here("init", cwd=place).code == 0
    for cwd, words in (
        (place, "is not committed: `git add .orchestrator.toml"),
        (orch.folder, "`orch init`"),
    ):
        said = here("doctor", cwd=cwd)
        assert "There is no .orchestrator.toml on main of its forge" in said.out
        assert words in said.out and "git push orch main" in said.out
        assert "Nothing was filed" not in said.out and "repeat this command" not in said.out
