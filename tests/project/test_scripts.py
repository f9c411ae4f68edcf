"""The scripts: `dev` is plain POSIX shell and tells of every command it has."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.project.checkout import ROOT

SHELLS = [shell for shell in ("sh", "dash", "bash", "busybox") if shutil.which(shell)]
NOBODY = 65534
ONLY_IN_BASH = [r"\[\[", r"\blocal\b", r"\bfunction\b", r"<<<", r"\$'", r"\bsource\b", r"&>", r"=="]


def script(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("shell", SHELLS)
def test_dev_parses_in_every_shell_at_hand(shell: str) -> None:
    command = ["busybox", "sh"] if shell == "busybox" else [shell]
    subprocess.run([*command, "-n", "dev"], cwd=ROOT, check=True)


def test_dev_uses_nothing_that_only_bash_has() -> None:
    code = [line for line in script("dev").splitlines() if not line.lstrip().startswith("#")]
    found = [line for line in code for word in ONLY_IN_BASH if re.search(word, line)]
    assert not found
    assert script("dev").startswith("#!/bin/sh\n")


def test_dev_can_be_run() -> None:
    assert (ROOT / "dev").stat().st_mode & 0o111 == 0o111


def test_ci_parses() -> None:
    subprocess.run(["bash", "-n", ".ci/run"], cwd=ROOT, check=True)


def test_help_tells_of_every_command() -> None:
    text = script("dev")
    known = set(re.findall(r"^    ([a-z]+)\)", text[text.index("case $command in") :], re.MULTILINE))
    told = subprocess.run(["./dev", "help"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert known
    assert known | {"help"} == set(re.findall(r"^  ([a-z]+) ", told, re.MULTILINE))


def test_an_unknown_command_is_refused() -> None:
    refused = subprocess.run(["./dev", "tset"], cwd=ROOT, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "no such command: tset" in refused.stderr


def test_an_old_python_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In a checkout that was never set up, and with a python3 that says it is too old."""
    checkout, commands = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("bin")
    for name in ("dev", "pyproject.toml", "requirements.lock", "requirements-uv.lock"):
        shutil.copy(ROOT / name, checkout)
    old = commands / "python3"
    old.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.2 && exit 0\nexit 1\n', encoding="utf-8"
    )
    old.chmod(0o755)
    refused = subprocess.run(
        ["./dev", "setup"],
        cwd=checkout,
        env={"PATH": f"{commands}:/usr/bin:/bin", "HOME": str(tmp_path_factory.mktemp("home"))},
        check=False,
        capture_output=True,
        text=True,
    )
    assert refused.returncode == 1
    assert "python3 is Python 3.9.2, but 3.11 or newer is needed" in refused.stderr


def test_a_user_who_may_not_install_hears_who_has_to() -> None:
    """As a service does that is started after an upgrade of which nobody has installed the packages."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # where everybody may go
        checkout = Path(folder)
        for name in ("dev", "pyproject.toml", *(path.name for path in ROOT.glob("requirements*.lock"))):
            shutil.copy(ROOT / name, checkout)
        (checkout / ".dev").mkdir(mode=0o555)
        checkout.chmod(0o755)
        user = NOBODY if os.geteuid() == 0 else None  # root may write everywhere
        told = subprocess.run(
            ["sh", checkout / "dev", "orch", "--version"],
            user=user,
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.returncode == 1
    assert f"{checkout}/dev setup run" in told.stderr
    assert "owner" in told.stderr
