"""Where tickets live."""
