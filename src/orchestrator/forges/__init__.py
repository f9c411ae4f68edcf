"""Where code, pull requests and main live. Those above import the Protocol; adapters are named in wiring only."""
