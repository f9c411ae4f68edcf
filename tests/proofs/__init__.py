"""Proofs: the real product, killed, frozen, delayed and interleaved at named points, judged by what the outside saw.

One step scheduler (:mod:`tests.proofs.scheduler`) stands under all of them.
"""
