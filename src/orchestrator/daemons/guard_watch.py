"""Sees now and then whether the forges still carry our mark, and whether what was closed belongs together again."""

from collections.abc import Callable

from orchestrator.installation.guard import InstallationGuard


class GuardWatch:
    """Looks while nothing is merged: a merge finds out by itself."""

    name = "guard_watch"

    def __init__(
        self,
        guard: InstallationGuard,
        let_go: Callable[[], int],
        *,
        interval_s: float,
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        """``let_go`` lets go of repositories that another process has moved, before each look; ``looked`` is called
        after it: work may be waiting for what was not open before."""
        self._let_go = let_go
        self.interval_s = interval_s
        self._looked = looked
        self._guard = guard

    def run_once(self) -> dict[str, int]:
        """One look at every repository; how many opened or closed."""
        self._let_go()
        changed = self._guard.look_again()
        self._looked()
        return {"changed": changed}
