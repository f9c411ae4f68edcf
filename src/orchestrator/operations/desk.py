"""The operator's desk: all its parts in one, as the command line, HTTP and the board are handed it."""

from collections.abc import Callable, Iterable, Mapping

from orchestrator.db.database import Database
from orchestrator.deploy.deployer import Deployer
from orchestrator.domain.ids import RepoName, TaskId
from orchestrator.domain.shares import NO_CAPS, Shares
from orchestrator.operations.connections import ConnectionDesk
from orchestrator.operations.deciding import Deciding
from orchestrator.operations.effects import EffectDesk
from orchestrator.operations.freezes import FreezeDesk
from orchestrator.operations.leases import LeaseDesk
from orchestrator.operations.reading import Reading
from orchestrator.runtime.clock import Clock
from orchestrator.runtime.entropy import Entropy
from orchestrator.stage_engine.situation import Configs
from orchestrator.transition_lease import Ownership


class Operations(Reading, Deciding, EffectDesk, FreezeDesk, LeaseDesk, ConnectionDesk):
    """The operator's desk."""

    def __init__(
        self,
        database: Database,
        ownership: Ownership,
        configs: Configs,
        deployer: Deployer,
        *,
        clock: Clock,
        entropy: Entropy,
        wake: Callable[[Iterable[TaskId]], None],
        extra: Callable[[], Mapping[str, object]],
        shares: Shares = NO_CAPS,
        why_restored: Callable[[RepoName], str | None],
        give_up: Callable[[Iterable[TaskId]], None] = lambda ids: None,
    ) -> None:
        """``extra`` gives the blocks of ``GET /queue`` that daemons keep in memory; ``give_up``: see LeaseDesk."""
        Reading.__init__(self, database, ownership, configs, extra=extra, shares=shares)
        Deciding.__init__(self, database, entropy=entropy, wake=wake, why_restored=why_restored)
        EffectDesk.__init__(self, database, deployer=deployer, clock=clock, entropy=entropy, wake=wake)
        FreezeDesk.__init__(self, database, wake=wake)
        ConnectionDesk.__init__(self, database, cancel=self.cancel)
        LeaseDesk.__init__(self, database, ownership, wake=wake, give_up=give_up)
