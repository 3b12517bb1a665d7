"""Statements by which a kernel lets the next one start early, and waits for the one before it.

Kernels that read constants first have both apart (programmatic dependent launch); `begin()` of the prelude is both.
A kernel with `Kernel.triggers` off only waits.
Loads between them have to be plain ones in `asm volatile`: those by `ld.global.nc` the assembler moves behind the wait.
What takes a loaded word apart there waits for the load, so that belongs behind the wait. `Kernel.early_loads` declares
how many there are, and a test reads them in the machine code.
"""

TRIGGER = """#if __CUDA_ARCH__ >= 900 && !defined(WITHOUT_TRIGGER)
  asm volatile("griddepcontrol.launch_dependents;");
#endif"""
WAIT = '#if __CUDA_ARCH__ >= 900\n  asm volatile("griddepcontrol.wait;" ::: "memory");\n#endif'
