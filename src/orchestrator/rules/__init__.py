"""Decisions as pure functions: values in, values out, no I/O."""
