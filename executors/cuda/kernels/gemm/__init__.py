"""Matmuls, and what is computed on their operands and results."""
