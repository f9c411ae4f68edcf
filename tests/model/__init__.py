"""The ownership and effects protocol as an explicit-state model (docs/explanation/model.md)."""
