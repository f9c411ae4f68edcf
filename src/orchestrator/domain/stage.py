"""Where a task stands."""

from enum import StrEnum


class Stage(StrEnum):
    """A stage of the pipeline, in the order in which a task passes through them."""

    CREATED = "created"
    ANALYSIS = "analysis"
    ARCHITECTURE = "architecture"
    DEVELOPMENT = "development"
    REVIEW = "review"
    TESTING = "testing"
    DEPLOY_STAGING = "deploy-staging"
    DEPLOY = "deploy"
    DONE = "done"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """True where no edge leads out."""
        return self in (Stage.DONE, Stage.CANCELLED)


class Track(StrEnum):
    """How much of the pipeline a task passes through."""

    FULL = "full"
    FAST = "fast"


class Role(StrEnum):
    """Who an agent is for the length of one job."""

    ANALYST = "analyst"
    ARCHITECT = "architect"
    DEVELOPER = "developer"
    REVIEWER = "reviewer"
    TESTER = "tester"
    DEPLOYER = "deployer"
