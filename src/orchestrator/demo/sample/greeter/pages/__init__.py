"""One module per page: its ``PATH``, and ``answer(query)`` that returns what is sent as JSON."""
