"""Kernels as CUDA C++, by family of ops; a family with several files has a room of its own."""
