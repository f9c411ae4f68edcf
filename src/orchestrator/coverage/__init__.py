"""Coverage reports: a number, or a refusal; never a guess."""
