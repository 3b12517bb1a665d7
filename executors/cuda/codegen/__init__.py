"""CUDA C++ sources for steps and `fused` regions. Nothing here needs a GPU, a driver or CuPy."""
