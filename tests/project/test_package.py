"""The package: importing it has no effect, and all of it is in the wheel."""

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.project.checkout import ROOT, files

PROBE = ROOT / "tests" / "project" / "import_everything.py"


def test_importing_has_no_effect() -> None:
    """No module starts a thread or a process, opens a file, a socket or a database, or warns."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PROBE), str(ROOT / "src")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_probe_sees_an_effect(tmp_path: Path) -> None:
    """The check above would notice: a package that does what ours must not."""
    package = tmp_path / "orchestrator"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import os, pathlib, sqlite3, threading\n"
        "pathlib.Path(os.devnull).read_text()\n"
        "sqlite3.connect(':memory:').close()\n"
        "threading.Thread(target=int).start()\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, str(PROBE), str(tmp_path)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    events = {line.split()[1] for line in done.stdout.splitlines()}
    assert events >= {"open", "sqlite3.connect", "thread"}


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    source = ROOT / "src"
    package = {path.relative_to(source).as_posix() for path in files() if source in path.parents}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.startswith("orchestrator-")}
    assert package == packed
    assert "orchestrator/py.typed" in packed
