"""The orchestrator: from a task in a tracker to a merged and deployed change."""

__version__ = "0.1.0"
