"""A model server that follows a script: real agent programs run whole sessions against it, on loopback, for
tests and the demo.
"""
