"""Failures on a GPU, each in a process of its own: CUDA does nothing more in one where a kernel went astray."""

import subprocess
import sys
import warnings

import pytest

with warnings.catch_warnings(action="ignore"):
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")

from capgraph.executors.cuda.executor import cuda_problem

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(bool(cuda_problem().text), reason="no NVIDIA GPU answers here"),
]

PREPARED = """
import capgraph
import cupy
import numpy as np
from capgraph.ir.builder import Builder
from capgraph.ir.errors import CapgraphError

COUNT = 1 << 25

def doubled(shape):
    b = Builder()
    x = b.input("x", f"f32[{shape}]")
    return b.finish({"y": b.op("exp", b.op("add", x, x))})

def told(program, given):
    try:
        program.run({"x": given})
        cupy.cuda.runtime.deviceSynchronize()
    except CapgraphError as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    except cupy.cuda.runtime.CUDARuntimeError:
        return "shown by waiting"
    return "answered"
"""

ASTRAY = """
memory = cupy.cuda.Memory(4 * COUNT)
lent = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(memory.ptr, 4 * COUNT, None, 0), 0)
x = cupy.ndarray((COUNT,), cupy.float32, lent)
x[...] = 0
in_place = {"inputs": {"": "refuse"}, "copy_outputs": False}
program = capgraph.optimize(doubled(COUNT), executor="graph", device="cuda", mode="full", capture=in_place)
print(*[told(program, x) for _ in range(4)], sep="\\n")
del memory
print(*[told(program, x) for _ in range(4)], sep="\\n")
program.close()
print("closed")
"""

FULL = """
sizes = {"dynamic": {"B": (1, 1 << 40)}, "buckets": {"B": [8]}}
program = capgraph.optimize(doubled("B"), executor="graph", device="cuda", **sizes)
free = cupy.cuda.runtime.memGetInfo()[0]
try:
    program._executable._device.reserve(2 * free, 256)
except CapgraphError as error:
    print(str(error).splitlines()[0])
held = cupy.cuda.Memory(int(0.9 * cupy.cuda.runtime.memGetInfo()[0]))
print(told(program, cupy.zeros(1, cupy.float32)))
given = cupy.zeros(int(0.8 * cupy.cuda.runtime.memGetInfo()[0]) // 4, cupy.float32)
print(told(program, given).partition(":")[0])
del given
print(told(program, np.zeros(5, np.float32)))
program.close()
print("closed")
"""


def lines_of(script: str) -> list[str]:
    found = subprocess.run(
        [sys.executable, "-c", PREPARED + script], capture_output=True, text=True, check=False, timeout=300
    )
    assert found.returncode == 0, found.stderr[-3000:]
    return found.stdout.splitlines()


def test_an_access_to_memory_that_is_gone_is_told_by_every_later_call() -> None:
    *calls, last = lines_of(ASTRAY)
    assert calls[:4] == ["answered"] * 4
    first, *others = calls[4:]
    assert first == "shown by waiting" or "the GPU stopped" in first
    assert all("the GPU stopped in the middle of a program" in each for each in others), others
    assert last == "closed"


@pytest.mark.alone
def test_memory_that_does_not_suffice_is_told_with_numbers_and_leaves_the_program_usable() -> None:
    refused, small, large, again, last = lines_of(FULL)
    assert "the arena takes" in refused
    assert "are free on the device" in refused
    assert (small, again, last) == ("answered", "answered", "closed")
    assert large == "ResourceError"
