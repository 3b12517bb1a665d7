"""Matmuls of up to 16 rows with a weight of 16 bits, on tensor cores."""
