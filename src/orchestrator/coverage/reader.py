"""From the file that the CI command left in its checkout to a measurement, or to a refusal.

What must hold (cases: the report is the change's own product, and hostile): only a regular file of the checkout,
reached through no symbolic link, not older than the run, within bounds of size, is read; anything odd is
``MeasurementFailed``, never a number.
"""

import os
import stat
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from orchestrator.coverage import cobertura, coverage_py, lcov
from orchestrator.coverage.measurement import Coverage, refused
from orchestrator.domain.errors import ConfigError

__all__ = ["FORMATS", "MAX_BYTES", "Coverage", "ReportReader", "read_coverage"]

MAX_BYTES = 64 * 1024 * 1024
"""Largest report that is read into memory."""

_DIRECTORY = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_NO_LINK = os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | _NO_LINK  # O_NONBLOCK: a named pipe must not hold us


class ReportReader(Protocol):
    """One format of report."""

    def __call__(self, data: bytes, *, report: str, root: Path) -> Coverage:
        """Measure.

        :raises MeasurementFailed: anything but a sane report about files of ``root``.
        """
        ...


FORMATS: Mapping[str, ReportReader] = MappingProxyType(
    {"coverage.py": coverage_py.read, "cobertura": cobertura.read, "lcov": lcov.read}
)
"""Names as in ``[coverage] format`` of ``.orchestrator.toml``."""


def read_coverage(path: Path, format: str, *, root: Path, newer_than: float | None) -> Coverage:
    """Read the report at ``path`` (in the checkout ``root``, absolute or relative to it).

    ``newer_than``: seconds since the epoch as the file system counts them; an older file was not written by this run.

    :raises MeasurementFailed: missing, not the checkout's own regular file, empty, too large, too old, malformed,
        without measured lines, or contradicting itself.
    :raises ConfigError: there is no such format.
    """
    reader = FORMATS.get(format)
    if reader is None:
        near = get_close_matches(format, FORMATS, n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Use one of: {', '.join(FORMATS)}."
        raise ConfigError(f"There is no coverage format {format!r}.", hint=hint)
    root = Path(os.path.abspath(root))
    parts = _parts(path, root)
    report = "/".join(parts)
    return reader(_content(parts, report, root, newer_than), report=report, root=root)


def _parts(path: Path, root: Path) -> tuple[str, ...]:
    report = str(path)
    try:
        relative = path.relative_to(root) if path.is_absolute() else path
    except ValueError:
        raise refused(report, "it lies outside the checkout", "a file of the checkout") from None
    if not relative.parts or ".." in relative.parts or "\0" in report:
        raise refused(report, "it names no file of the checkout", "a path inside the checkout without `..`")
    return relative.parts


def _content(parts: tuple[str, ...], report: str, root: Path, newer_than: float | None) -> bytes:
    descriptor = _opened(parts, report, root)
    try:
        status = os.fstat(descriptor)
        _check(status, report, newer_than)
        # One byte more than may be there: a file that grows meanwhile is found out.
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise refused(report, f"it could not be read ({error.strerror})", "a readable file") from None
    finally:
        os.close(descriptor)
    if len(data) != status.st_size:
        raise refused(report, "it changed while it was read", "a report that its writer has finished")
    return data


def _opened(parts: tuple[str, ...], report: str, root: Path) -> int:
    """Open folder by folder, so that no symbolic link on the way leads out of the checkout."""
    directory = -1
    try:
        directory = os.open(root, _DIRECTORY)
        for part in parts[:-1]:
            below = os.open(part, _DIRECTORY | _NO_LINK, dir_fd=directory)
            os.close(directory)
            directory = below
        return os.open(parts[-1], _FILE, dir_fd=directory)
    except FileNotFoundError:
        raise refused(report, "it does not exist", "the CI command to have written it") from None
    except OSError as error:
        # ELOOP and ENOTDIR: a symbolic link stands on the way.
        found = f"it cannot be opened as a file of the checkout ({error.strerror})"
        raise refused(report, found, "a regular file, reached without symbolic links") from None
    finally:
        if directory >= 0:
            os.close(directory)


def _check(status: os.stat_result, report: str, newer_than: float | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise refused(report, "it is not a regular file", "a file")
    if status.st_size == 0:
        raise refused(report, "it is empty", "a report")
    if status.st_size > MAX_BYTES:
        raise refused(report, f"it has {status.st_size} bytes", f"at most {MAX_BYTES}")
    # Written so that a time which is no number fails.
    if newer_than is not None and not status.st_mtime >= newer_than:
        raise refused(report, "it is older than the run", "a report that this run has written")
