"""How people are called."""
