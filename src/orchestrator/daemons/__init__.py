"""What runs beside the requests: each a class with ``run_once()`` that tests call, and one loop that calls it."""
