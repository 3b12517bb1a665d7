"""Statements by which a kernel lets the next one start early, and waits for the one before it.

Kernels that read constants first have both apart (programmatic dependent launch); `begin()` of the prelude is both.
"""

TRIGGER = '#if __CUDA_ARCH__ >= 900\n  asm volatile("griddepcontrol.launch_dependents;");\n#endif'
WAIT = '#if __CUDA_ARCH__ >= 900\n  asm volatile("griddepcontrol.wait;" ::: "memory");\n#endif'
