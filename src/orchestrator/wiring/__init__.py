"""The only place that names concrete classes. Everything of one state folder is built here, once, when asked for.

It reads from the ground up: each module adds a storey to the one before.
"""

from orchestrator.wiring.app import App
from orchestrator.wiring.ground import Outside
from orchestrator.wiring.opening import open_app, open_readonly

__all__ = ["App", "Outside", "open_app", "open_readonly"]
