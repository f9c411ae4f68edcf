"""Notices a database or a forge that was restored or copied, and keeps everybody from acting on it."""
