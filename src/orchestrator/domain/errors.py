"""One error tree, sorted by who can act on it.

Every message says what happened, what it means for the task, and what to do. Expected ends (a lost race, a busy
lease, a failed gate) are values, not errors.
"""


class OrchestratorError(Exception):
    """Root of everything the product raises on purpose.

    ``hint`` is the next step for whoever reads it; it is part of the message people see.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class OperatorError(OrchestratorError):
    """The person at the command line or in the configuration has to change something."""

    exit_code = 2


class ConfigError(OperatorError):
    """The configuration (environment or ``.orchestrator.toml``) is not usable as it stands."""


class RequestRefused(OperatorError):
    """What was asked for is not allowed in the state the task is in; nothing was changed."""


class NotFound(OperatorError):
    """There is no such task, job, effect or repository."""


class StateInUse(OperatorError):
    """Another process owns the state folder."""


class ForeignState(OperatorError):
    """The state folder belongs to another user, who could not open what we write there."""


class StrangeFolder(OperatorError):
    """The state folder is not the database's, or not any more (decision 0021)."""


class SchemaError(OperatorError):
    """The database was written by a newer version, or is no database of ours."""


class OutsideError(OrchestratorError):
    """Something outside failed: git, a forge, an agent program, the disk. Repeating later may help."""

    exit_code = 3


class GitError(OutsideError):
    """A git command failed. ``stderr`` holds what git said, shortened."""

    def __init__(
        self, message: str, *, stderr: str = "", returncode: int | None = None, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.stderr = stderr
        self.returncode = returncode


class AuthorityUnreachable(OutsideError):
    """An authority (forge, image store, environment) could not be asked; the fact is unknown (law 4)."""


class InstallationChanged(OutsideError):
    """Another start, or another database, has claimed the repository: nothing was done there (DESIGN §6)."""


class MeasurementFailed(OutsideError):
    """A report that should hold a number does not; never a pass (FR: coverage gate)."""


class DatabaseError(OutsideError):
    """The database refused or lost a transaction; everything the transaction held is undone."""


class DatabaseReplaced(DatabaseError):
    """The database is not the one that this process began with; what it committed may be missing (DESIGN §6)."""


class LostRace(OrchestratorError):
    """Another actor moved the task first; this actor has changed nothing and must not act (law 2)."""


class InvariantError(OrchestratorError):
    """We are wrong: a state the laws forbid was about to be written. Nothing was."""


class ConstraintRefused(InvariantError):
    """The schema's own guard refused a write; the transaction is undone (law 2)."""
