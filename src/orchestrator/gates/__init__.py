"""Checks before an edge: evidence in, a judgement out."""
