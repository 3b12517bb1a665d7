"""What speaks to CUDA: the protocol, CuPy, the compiler with its cache, and memory."""
