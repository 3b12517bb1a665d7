"""Passes that move data or orders of axes."""
