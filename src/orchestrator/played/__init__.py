"""Servers that behave as the real ones do, over loopback HTTP and real git: for the tests, and for `orch demo`.

They know nothing of the product, and the product but for its demo nothing of them.
"""
