"""How servers are asked over HTTP: what their requests and answers have in common for forges and trackers."""
