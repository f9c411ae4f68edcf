"""What an environment can be asked and told about its starts."""

import threading
from typing import Protocol

from orchestrator.deploy.records import DeployStart, Exit, Started
from orchestrator.domain.errors import OutsideError


class StartGivenUp(OutsideError):
    """A revoker holds the claim of a start: nobody can ever run it."""


class Deployer(Protocol):
    """An environment's starts. Every method may be repeated, by anyone, after any crash."""

    def start(self, start: DeployStart) -> None:
        """Let the start be claimed and run, once; returns when somebody holds the claim.

        :raises StartGivenUp: a revoker held it before.
        :raises OutsideError: nobody claimed it in time, or a record cannot be written; says nothing of the outcome.
        """
        ...

    def started(self, start: DeployStart) -> Started | None:
        """Who holds the claim; None where nobody does yet.

        :raises RecordLost: it is lost whether anybody does.
        :raises AuthorityUnreachable: the claim cannot be read, or belongs to another intent: in doubt.
        """
        ...

    def revoke(self, start: DeployStart, *, said: bool = False) -> Started:
        """Claim the start for nobody, so that no child ever sent can run it; returns whoever holds the claim. ``said``:
        a person says that it has not taken place, which counts where its record is lost.

        :raises RecordLost: its record is lost, and nobody has said so.
        :raises AuthorityUnreachable: it could not be claimed or read.
        """
        ...

    def lose(self, start: DeployStart, *, ended: str = "") -> bool:
        """From now on the record of a start counts as lost, unless its claim is there; False where it is. ``ended`` is
        how it is known that nothing of its command is at work, empty where it is not.

        :raises AuthorityUnreachable: it could not be written.
        """
        ...

    def exit(self, start: DeployStart) -> Exit | None:
        """How the command ended; None while it runs, never ran, or its end cannot be proved.

        Where the runner provably died without a record, the command's group is ended first, then ``killed`` recorded.

        :raises AuthorityUnreachable: a record cannot be read or written.
        """
        ...

    def terminate(self, start: DeployStart) -> Exit | None:
        """End the command's process group and wait for its end; None where no command was ever started.

        :raises AuthorityUnreachable: the end could not be proved in time.
        """
        ...

    def declare_ended(self, start: DeployStart, said: str) -> Exit:
        """Take a person's word that nothing of the command is at work any more, where its end cannot be found out: its
        claim is lost or unreadable, or its processes are on a machine that we cannot see. A start that nobody has
        claimed is claimed for nobody first, so that none comes later. Returns the record that counts, an earlier one
        too.

        :raises RequestRefused: it is seen to be at work, or the records belong to another intent.
        :raises AuthorityUnreachable: a record cannot be written.
        """
        ...

    def report(self, start: DeployStart) -> bool:
        """Say that the version which this start has brought runs: we are it. False where it was said already.

        :raises AuthorityUnreachable: it could not be written.
        """
        ...

    def prepared(self, start: DeployStart) -> bool:
        """Whether what to run is written down for the runner.

        :raises AuthorityUnreachable: the record cannot be read, or belongs to another intent.
        """
        ...

    def wait(self, start: DeployStart, stop: threading.Event, deadline_s: float) -> Exit | None:
        """Wait for the command's end; None at the deadline, when ``stop`` is set, or where the start was revoked.

        :raises AuthorityUnreachable: a record cannot be read.
        """
        ...

    def log_tail(self, start: DeployStart, limit: int = 4000) -> str:
        """The end of what the command printed, at most ``limit`` bytes of it; empty where there is nothing."""
        ...
