"""Fusion: groups of ops that one kernel computes."""
