"""What the played servers have in common: a journal, failures on order, HTTP on loopback, git repositories."""
