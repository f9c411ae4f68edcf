"""The demo: a small real service, two tickets, and what can be proved about their delivery."""
