"""Irreversible acts: the ledger that drives them, and one module per kind of act."""
