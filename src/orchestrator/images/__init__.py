"""Building the artefact and keeping it, addressed by its content."""
