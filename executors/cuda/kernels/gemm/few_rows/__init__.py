"""Products of up to 32 rows with a weight of 16 bits, on tensor cores."""
