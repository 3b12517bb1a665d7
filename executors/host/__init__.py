"""Plans on the host: one arena of bytes, prebound NumPy calls, and a recorder that holds the rules of a CUDA graph."""
