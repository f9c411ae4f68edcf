"""Agent programs: one small Protocol, an adapter for each program, and a supervisor for each run (laws 8 and
10).
"""
