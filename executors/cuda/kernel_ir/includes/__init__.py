"""CUDA C++ that stands before kernels, or that several kernels hold."""
