"""What trackers and forges tell us: stored before it is answered, then looked at; they move no task themselves."""
