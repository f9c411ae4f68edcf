"""What a repository says about itself in ``.orchestrator.toml``, read from the base commit."""
