"""A service that greets."""
