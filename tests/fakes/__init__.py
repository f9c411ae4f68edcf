"""Servers that behave as the real ones do, over loopback HTTP and real git."""
