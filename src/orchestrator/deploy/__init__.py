"""Starting an environment's command once, and watching what then runs there."""
