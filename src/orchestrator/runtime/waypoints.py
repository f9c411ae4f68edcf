"""Named points that a transition passes; tests wait, kill and freeze there. In production they cost one call."""

from typing import Protocol


class Waypoints(Protocol):
    """Receives every named point in the order in which it is reached."""

    def reach(self, name: str, **data: object) -> None:
        """``name`` is constant text such as ``merge_pr.before_act``; ``data`` says for which task and epoch."""
        ...


class NoWaypoints:
    """Lets everything pass."""

    def reach(self, name: str, **data: object) -> None:
        """Do nothing."""
