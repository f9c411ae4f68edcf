"""Where code, pull requests and the main branch live. Those above import the Protocol; adapters are named in wiring only."""
