"""Git, run so that nothing planted in a repository executes or redirects with our rights (law 10).

Must hold: a command sees only the environment built here; no system, user or XDG configuration; no hooks, no file
system monitor, no external diff, no prompt, no automatic maintenance; no transport unless the caller names its
protocols. Settings given here win over a repository's own. Callers name the git folder (``git_dir``): discovery, and
with it a ``.git`` file that points elsewhere, is left to the one command that has to look at a person's checkout.

On failure a :class:`~orchestrator.domain.errors.GitError` carries what git said, shortened, with credentials in
addresses blotted out.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from orchestrator.domain.errors import GitError
from orchestrator.runtime.process import Completed, Processes

DEFAULT_TIMEOUT_S = 120.0
STDERR_LIMIT = 2000  # characters of git's words that are kept
MINIMUM_VERSION = (2, 38)  # the first with `merge-tree --write-tree`

_NOWHERE = "/nonexistent"  # a HOME in which git finds nothing of anybody's
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.sshCommand=false",  # replaced by whoever needs ssh
    "core.askPass=",
    "core.gitProxy=",
    "core.pager=cat",
    "core.editor=false",
    "core.alternateRefsCommand=true",
    "core.commitGraph=false",  # a planted graph may lie about parents
    "core.multiPackIndex=false",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=true",
    "core.fsync=committed,pack-metadata,reference",  # a stored intent must not outlive the objects it names
    "core.fsyncMethod=fsync",
    "core.filesRefLockTimeout=0",  # who holds a lock is judged by us, see git_refs
    "core.packedRefsTimeout=0",
    "credential.helper=",
    "diff.external=",
    "diff.ignoreSubmodules=all",
    "fetch.recurseSubmodules=false",
    "submodule.recurse=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "pack.useBitmaps=false",
    "protocol.ext.allow=never",
    "transfer.credentialsInUrl=die",
    "safe.directory=*",  # whose a folder is does not matter where nothing in it can run
)
_ADVICE = ("hint:", "warning:")  # said beside the reason of a failure, and often before it
_CREDENTIALS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/@\s']+@")
_AUTHORIZATION = re.compile(r"(?i)(authorization:?\s*(?:basic|bearer|token)?\s*)\S+")


class Git:
    """Runs git commands under one identity (for the orchestrator's own commits)."""

    def __init__(
        self,
        processes: Processes,
        *,
        name: str = "orchestrator",
        email: str = "orchestrator@localhost",
        program: str = "git",
    ) -> None:
        self._processes = processes
        self._program = program
        self.name = name
        self.email = email

    def run(
        self,
        args: Sequence[str],
        *,
        git_dir: Path | None = None,
        cwd: Path | None = None,
        input: bytes | None = None,
        check: bool = True,
        timeout: float = DEFAULT_TIMEOUT_S,
        env: Mapping[str, str] | None = None,
        settings: Sequence[str] = (),
        protocols: Sequence[str] = (),
        pass_fds: Sequence[int] = (),
        output: IO[bytes] | None = None,
    ) -> Completed:
        """Run one command to its end. ``timeout`` in seconds.

        ``env`` adds variables such as ``GIT_INDEX_FILE``; ``settings`` adds ``key=value`` that win over all others;
        they show in the process list: a secret goes through ``env``, as GIT_ASKPASS or GIT_CONFIG_KEY_n;
        ``protocols`` are the transports the command may use (none by default); ``pass_fds`` stay open in git, so
        that a lock held through them is held for as long as git lives; ``output`` takes stdout and stderr together,
        for output that is too large to be kept in memory.

        :raises GitError: git cannot be started, took too long, or (with ``check``) ended with an error.
        """
        argv = [self._program]
        for setting in (*_SETTINGS, *settings):
            argv += ["-c", setting]
        argv += args
        command = f"git {_subcommand(args)}"
        try:
            done = self._processes.run(
                argv,
                cwd=cwd if cwd is not None else git_dir,
                env=self._environment(git_dir, env, protocols),
                stdin=input,
                timeout=timeout,
                pass_fds=pass_fds,
                output=output,
            )
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            raise GitError(
                f"{command} could not be started: {error.strerror} ({error.filename}).",
                hint="Is git installed, and does the repository's folder still exist?",
            ) from error
        if done.timed_out:
            raise GitError(
                f"{command} was ended after {timeout:g} s.",
                returncode=done.returncode,
                hint="The disk or the remote is slow, or something planted in the folder makes git wait.",
            )
        if check and done.returncode != 0:
            raise git_error(command, done)
        return done

    def text(
        self,
        args: Sequence[str],
        *,
        git_dir: Path | None = None,
        cwd: Path | None = None,
        input: bytes | None = None,
    ) -> str:
        """The command's output as one stripped text.

        :raises GitError: as :meth:`run`.
        """
        return self.run(args, git_dir=git_dir, cwd=cwd, input=input).stdout.decode("utf-8", "replace").strip()

    def version(self) -> tuple[int, ...]:
        """Git's version as numbers, ``(2, 39, 5)``.

        :raises GitError: there is no git.
        """
        found = re.search(r"(\d+(?:\.\d+)+)", self.text(["--version"]))
        return tuple(int(part) for part in found.group(1).split(".")) if found else ()

    def _environment(
        self, git_dir: Path | None, extra: Mapping[str, str] | None, protocols: Sequence[str]
    ) -> dict[str, str]:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": _NOWHERE,
            "XDG_CONFIG_HOME": _NOWHERE,
            "LC_ALL": "C",
            "TZ": "UTC",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_GRAFT_FILE": f"{_NOWHERE}/grafts",  # one that exists, if empty, makes git give advice
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_ALLOW_PROTOCOL": ":".join(protocols) or "none",
            "GIT_PROTOCOL_FROM_USER": "0",
            "GIT_AUTHOR_NAME": self.name,
            "GIT_AUTHOR_EMAIL": self.email,
            "GIT_COMMITTER_NAME": self.name,
            "GIT_COMMITTER_EMAIL": self.email,
        }
        if git_dir is not None:
            environment["GIT_DIR"] = str(git_dir)
        environment.update(extra or {})
        return environment


def git_error(command: str, done: Completed) -> GitError:
    """What a failed command is told as: its first line that is no advice, the rest in ``stderr``."""
    said = redact(done.stderr.decode("utf-8", "replace")).strip()
    lines = [line for line in said.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(_ADVICE)] or lines
    reason = (
        telling[0].removeprefix("fatal: ").removeprefix("error: ")[:300]
        if telling
        else f"it ended with status {done.returncode} and said nothing"
    )
    return GitError(f"{command} failed: {reason}", stderr=said[:STDERR_LIMIT], returncode=done.returncode)


def redact(text: str) -> str:
    """The text without user names and passwords in addresses and authorization headers."""
    return _AUTHORIZATION.sub(r"\1***", _CREDENTIALS.sub(r"\1***@", text))


def _subcommand(args: Sequence[str]) -> str:
    return next((arg for arg in args if not arg.startswith("-")), " ".join(args[:1]))
