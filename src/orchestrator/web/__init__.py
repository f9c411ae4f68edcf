"""The HTTP interface: an API, who may use it, and the server that carries it. Importing it starts nothing."""
