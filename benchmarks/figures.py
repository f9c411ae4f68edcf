"""Results as they are kept: JSON, and beside it a line about the machine that they are from."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path


def keep(path: Path, figures: object) -> None:
    """Write a result, and say where it is."""
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    beside(path).write_text(_machine() + "\n", encoding="utf-8")
    print(f"\nThe figures are in {path}.")


def beside(path: Path) -> Path:
    """Where the line about the machine is."""
    return path.with_suffix(".machine")


def _machine() -> str:
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    quarter = os.getloadavg()[2]
    busy = f"load {quarter:.1f} over the last quarter of an hour"
    now = datetime.now(UTC).date().isoformat()
    return f"{now}, {os.cpu_count()} cores, {busy}, Python {platform.python_version()}, git {git}"
