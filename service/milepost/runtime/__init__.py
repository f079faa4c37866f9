"""Driving runs: load, decide, perform, append, repeat."""
