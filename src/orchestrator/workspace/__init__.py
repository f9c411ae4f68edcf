"""Git on our side: the private clone, the agents' workspaces, the candidate. Nothing here talks to a forge's API."""
