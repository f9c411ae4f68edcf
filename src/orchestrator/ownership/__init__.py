"""What :mod:`orchestrator.transition_lease` rests on: how an owner is judged, trusted and replaced."""
