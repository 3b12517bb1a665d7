"""Scatters, by slots, lines and segments."""
