"""What the product costs over the bare SQL of the same statements: ``./dev bench``."""
