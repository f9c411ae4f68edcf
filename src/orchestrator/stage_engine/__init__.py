"""Moves tasks through the pipeline: one step, one short lease, one commit at a time."""
