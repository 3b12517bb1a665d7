"""Passes on quantized numbers."""
