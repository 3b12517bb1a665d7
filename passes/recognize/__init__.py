"""Passes that find an op in the parts that it was written in."""
