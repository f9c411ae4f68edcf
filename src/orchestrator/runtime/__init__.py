"""The outside of the process, handed in: time, chance, processes, git, HTTP. The only floor that may touch them raw."""
