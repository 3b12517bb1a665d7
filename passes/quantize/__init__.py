"""Passes on quantised numbers."""
