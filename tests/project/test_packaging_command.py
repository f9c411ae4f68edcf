"""The command that is shipped to give orders beside a unit: it runs as the service does, its arguments as they are."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.checkout import ROOT
from tests.project.test_packaging import unit

WRAPPER = ROOT / "packaging/orch"
SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]
# Stands for systemd-run: says what it was given, and how systemd would read the command.
MANAGER = """\
import json, re, sys
at = sys.argv.index("--")
command = [re.sub(r"[$]([$]|[{]?\\w+[}]?)", lambda m: "$" if m[1] == "$" else "", one) for one in sys.argv[at + 1 :]]
print(json.dumps({"options": sys.argv[1:at], "command": command}))
sys.exit(3)
"""
HARD = ["run", "$HOME is ${X} $$ 5$", "two\nlines\n", "", " a  b ", '--reason=it\'s "so"', "*", "$1"]


def put(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def call(
    shell: str, programs: Path, *arguments: str, uid: int = 0, cwd: Path = ROOT
) -> "subprocess.CompletedProcess[str]":
    put(programs, "id", f"#!/bin/sh\necho {uid}\n")
    for name in ("sed", "sh"):
        if not (programs / name).exists():
            (programs / name).symlink_to(str(shutil.which(name)))
    command = [str(shutil.which(shell)), *(["sh"] if shell == "busybox" else []), str(WRAPPER), *arguments]
    return subprocess.run(
        command, cwd=cwd, env={"PATH": str(programs)}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_a_command_runs_as_the_unit_does(shell: str, tmp_path: Path) -> None:
    put(tmp_path / "bin", "systemd-run", f"#!{sys.executable}\n{MANAGER}")
    told = call(shell, tmp_path / "bin", *HARD, cwd=tmp_path)
    assert told.returncode == 3, told.stderr
    said = json.loads(told.stdout)
    service = unit("orch.service")["Service"]
    program, orch, _ = service["ExecStart"].split()
    assert said["command"] == [program, orch, *HARD]
    assert {
        f"--uid={service['User']}",
        f"--setenv={service['Environment']}",
        f"--property=EnvironmentFile={service['EnvironmentFile']}",
        f"--property=UMask={service['UMask']}",
        f"--property=WorkingDirectory=-{tmp_path}",
        "--wait",
        "--pty",
        "--pipe",
    } <= set(said["options"])


def test_whoever_is_not_root_asks_to_be(tmp_path: Path) -> None:
    put(tmp_path / "bin", "sudo", '#!/bin/sh\nprintf "%s|" "$@"\n')
    told = call("sh", tmp_path / "bin", *HARD, uid=1000)
    assert told.stdout == "|".join(["--", str(WRAPPER), *HARD, ""])


def test_where_nobody_can_be_root_that_is_said(tmp_path: Path) -> None:
    told = call("sh", tmp_path / "bin", "queue", uid=1000)
    assert told.returncode == 2
    assert "only root" in told.stderr
    assert not told.stdout


def test_it_can_be_run_and_the_guide_installs_it() -> None:
    assert WRAPPER.stat().st_mode & 0o111 == 0o111
    guide = (ROOT / "docs/how-to/run-as-a-service.md").read_text(encoding="utf-8")
    assert re.search(r"install -m 755 \S+/packaging/orch /usr/local/bin/", guide)
