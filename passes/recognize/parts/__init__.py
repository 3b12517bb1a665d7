"""Patterns for the shapes in which exporters write one and the same function."""
