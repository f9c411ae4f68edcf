"""The tests, laid out like the house they test."""
