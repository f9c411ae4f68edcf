"""Building the artefact of one candidate by the repository's own command.

The caller hands over a clean checkout of exactly that SHA; whatever the command leaves at the configured place is the
artefact. A command that fails, hangs or leaves nothing is a refusal with the end of its log, never an old artefact.
What a build has started and left running is ended with it.
"""

from collections.abc import Mapping
from pathlib import Path

from orchestrator.domain.errors import ConfigError, OutsideError
from orchestrator.domain.ids import Sha
from orchestrator.repo_config.records import ImageConfig
from orchestrator.runtime.entropy import Entropy
from orchestrator.runtime.files import read_tail, trim_log
from orchestrator.runtime.process import Processes
from orchestrator.runtime.sweep import sweep

LOG_LIMIT = 4 * 1024 * 1024  # bytes of a build's log that are kept
MARKER = "ORCH_BUILD_ID"  # in the environment of everything the build starts
SHOWN = 2000  # bytes of it that a message repeats


class BuildFailed(OutsideError):
    """The build command did not leave an artefact. ``log_tail`` is the end of what it printed."""

    def __init__(self, message: str, *, log_tail: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log_tail = log_tail


class ImageBuilder:
    """Runs build commands."""

    def __init__(self, *, processes: Processes, entropy: Entropy) -> None:
        self._processes = processes
        self._entropy = entropy

    def build(
        self, checkout: Path, config: ImageConfig, env: Mapping[str, str], log: Path, *, sha: Sha
    ) -> Path:
        """Run the command in ``checkout`` with ``env`` and ORCH_SHA; returns the artefact's place in the checkout.

        ``log`` receives the command's output and is cut to its end when it grows beyond a few megabytes.

        :raises ConfigError: the configured place lies outside the checkout.
        :raises BuildFailed: no such program, a time-out, an exit code other than 0, or nothing at the configured place.
        """
        artifact = _inside(checkout, config.artifact)
        mark = self._entropy.token()
        try:
            with log.open("ab") as sink:
                ended = self._processes.run(
                    config.command,
                    cwd=checkout,
                    env={**env, "ORCH_SHA": sha, MARKER: mark},
                    timeout=config.timeout_s,
                    output=sink,
                )
        except OSError as error:
            raise BuildFailed(
                f"The build of {sha} did not run: {config.command[0]!r}: {error.strerror}.",
                hint="Correct [image] command in .orchestrator.toml.",
            ) from error
        finally:
            sweep(f"{MARKER}={mark}")
            _trim(log)
        if ended.timed_out:
            raise _failed(f"The build of {sha} did not end within {config.timeout_s:g} s and was ended.", log)
        if ended.returncode != 0:
            raise _failed(f"The build of {sha} ended with exit code {ended.returncode}.", log)
        artifact = _inside(checkout, config.artifact)  # again: the command may have put a link in its way
        if artifact.is_symlink() or not artifact.exists():
            raise _failed(f"The build of {sha} ended well but left no artefact at {config.artifact!r}.", log)
        return artifact


def _inside(checkout: Path, relative: str) -> Path:
    place = checkout / relative
    root = checkout.resolve()
    parent = place.parent.resolve()
    inside = parent == root or root in parent.parents
    if not relative or not inside or place.resolve() == root or ".." in Path(relative).parts:
        raise ConfigError(
            f"The artefact's place {relative!r} is not inside the checkout; nothing was taken from it.",
            hint="Correct [image] artifact in .orchestrator.toml.",
        )
    return place


def _failed(message: str, log: Path) -> BuildFailed:
    tail = read_tail(log, SHOWN).decode("utf-8", errors="replace")
    return BuildFailed(message, log_tail=tail, hint=f"The whole log is {log}.")


def _trim(log: Path) -> None:
    if log.exists():
        trim_log(log, LOG_LIMIT, LOG_LIMIT // 2)
