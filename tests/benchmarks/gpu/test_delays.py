"""Delays around starts that may be early: they stand in what is compiled, and are gone afterwards."""

import pytest

pytest.importorskip("torch", reason="the benchmark imports it")

from capgraph.executors.cuda.driver import compiler
from capgraph.executors.cuda.kernel_ir.early_start import TRIGGER, WAIT

from benchmarks.gpu.delays import delays

KERNEL = f"""extern "C" __global__ void NAME(float* y) {{
{TRIGGER}
{WAIT}
  y[threadIdx.x] += 1.0f;
}}"""


def test_delays_are_compiled_in_front_of_a_trigger_and_around_a_wait() -> None:
    plain = compiler.source_of([KERNEL])
    with delays(5000):
        source, made = compiler.source_of([KERNEL]), compiler.build([KERNEL], 90)
    starts = plain.count("griddepcontrol.launch_dependents;")
    waits = plain.count("griddepcontrol.wait;")
    assert (starts, waits) == (2, 3), "those of the kernel, of begin() and of begin_alone()"
    assert source.count("delayed();") == starts + 2 * waits
    assert isinstance(made, compiler.Module), made
    assert len(made.code) > len(compiler.build([KERNEL], 90).code)
    assert compiler.source_of([KERNEL]) == plain
