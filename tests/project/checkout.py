"""Where the checkout lies and what belongs to it."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def files() -> list[Path]:
    """Every file that is committed or would be: git's own and the new ones it does not ignore."""
    # Whoever runs the tests need not be the owner of the checkout.
    git = ["git", "-c", f"safe.directory={ROOT}"]
    listed = subprocess.run(
        [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return sorted({path for path in paths if path.is_file()})
