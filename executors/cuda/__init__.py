"""CUDA as a device of plans: launches as data, generated kernels, library calls, recording through CuPy."""
