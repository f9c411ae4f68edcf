"""The board: plain pages rendered on the server. Importing it starts nothing."""
