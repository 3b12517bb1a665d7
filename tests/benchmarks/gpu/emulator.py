"""Generated CUDA kernels on the host: the same text, compiled by g++, each thread of a block a coroutine.

`__syncthreads` and shuffles hand over to the next thread, so blocks behave as on a device, one after another. Compiled
as it stands, the text proves its indices and barriers; only the conversions of small floats are other code.
"""

import ctypes
import hashlib
import shutil
import subprocess
from pathlib import Path

import numpy as np
from capgraph.executors.host.memory import HostArena
from capgraph.executors.host.placement import Placement
from capgraph.ir.constant import Array
from capgraph.ir.plan import Plan, StepKind

from benchmarks.gpu.lowering import Launch, lower, source
from benchmarks.gpu.prelude import PRELUDE

HAS_COMPILER = shutil.which("g++") is not None

_DEVICE = r"""
#include <cmath>
#include <cstring>
#include <ucontext.h>
#include <vector>
#define EMULATED
#define __global__
#define __device__
#define __shared__ static
struct Three { unsigned x, y, z; };
static Three threadIdx, blockIdx, blockDim;
static ucontext_t scheduler, thread_of[1024];
static char* stacks[1024];
static bool is_done[1024];
static float exchanged[1024];
static int barriers_of[1024];
static void __syncthreads() {
  const unsigned me = threadIdx.x;
  barriers_of[me]++;
  swapcontext(&thread_of[me], &scheduler);
}
static float __shfl_xor_sync(unsigned, float x, int lane) {
  const unsigned me = threadIdx.x;
  exchanged[me] = x;
  __syncthreads();
  const float other = exchanged[me ^ lane];
  __syncthreads();
  return other;
}
"""

_SMALL_FLOATS = r"""
static inline float get(f16 x) { _Float16 y; memcpy(&y, &x, 2); return (float)y; }
static inline void put(f16& to, float x) { _Float16 y = (_Float16)x; memcpy(&to, &y, 2); }
"""

_LAUNCH = r"""
static void* kernel; static void** arguments; static int argument_count;
static void body() {
  void** a = arguments;
  switch (argument_count) {
    case 1: ((void (*)(void*))kernel)(a[0]); break;
    case 2: ((void (*)(void*, void*))kernel)(a[0], a[1]); break;
    case 3: ((void (*)(void*, void*, void*))kernel)(a[0], a[1], a[2]); break;
    case 4: ((void (*)(void*, void*, void*, void*))kernel)(a[0], a[1], a[2], a[3]); break;
    case 5: ((void (*)(void*, void*, void*, void*, void*))kernel)(a[0], a[1], a[2], a[3], a[4]); break;
  }
  is_done[threadIdx.x] = true;
}
static int run_block(unsigned threads) {
  for (unsigned t = 0; t < threads; t++) {
    if (!stacks[t]) stacks[t] = new char[65536];
    getcontext(&thread_of[t]);
    thread_of[t].uc_stack.ss_sp = stacks[t];
    thread_of[t].uc_stack.ss_size = 65536;
    thread_of[t].uc_link = &scheduler;
    makecontext(&thread_of[t], body, 0);
    is_done[t] = false; barriers_of[t] = 0;
  }
  for (unsigned left = threads; left;) {
    left = 0;
    for (unsigned t = 0; t < threads; t++) {
      if (is_done[t]) continue;
      threadIdx = {t, 0, 0};
      swapcontext(&scheduler, &thread_of[t]);
      left += !is_done[t];
    }
  }
  for (unsigned t = 1; t < threads; t++) if (barriers_of[t] != barriers_of[0]) return 1;
  return 0;
}
extern "C" int launch(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, void** given, int count) {
  kernel = function; arguments = given; argument_count = count; blockDim = {threads, 1, 1};
  for (unsigned k = 0; k < z; k++) for (unsigned j = 0; j < y; j++) for (unsigned i = 0; i < x; i++) {
    blockIdx = {i, j, k};
    if (run_block(threads)) return 1;
  }
  return 0;
}
"""


def compiled(text: str, folder: Path) -> ctypes.CDLL:
    """The kernels of `text` as a library in `folder`."""
    whole = _DEVICE + PRELUDE + _SMALL_FLOATS + text + _LAUNCH
    name = hashlib.sha256(whole.encode()).hexdigest()[:16]
    path = folder / f"{name}.cpp"
    path.write_text(whole)
    library = folder / f"{name}.so"
    command = ["g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-o", str(library), str(path)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


class EmulatedPlan:
    """A plan on the host arena whose steps are the emulated kernels of its launches."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.launches = [launch for each in lower(plan).values() for launch in each]
        self.library = compiled(source(self.launches), folder)
        self.arena = HostArena(plan.arena_bytes, plan.alignment)
        self.placement = Placement(plan, self.arena)

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs; everything but the inputs is poisoned first."""
        self.arena.bytes[...] = 0xFF
        for value, given in zip(self.plan.graph.inputs, inputs, strict=True):
            self.placement.array(value)[...] = given
        for launch in self.launches:
            self._launch(launch)
        return [self.placement.array(value).copy() for value in self.plan.graph.outputs]

    def _launch(self, launch: Launch) -> None:
        addresses = [self._base(place.buffer) + place.offset for place in launch.places]
        given = (ctypes.c_void_p * len(addresses))(*addresses)
        function = ctypes.cast(getattr(self.library, launch.name), ctypes.c_void_p)
        if self.library.launch(function, *launch.grid, launch.threads, given, len(addresses)):
            raise AssertionError(f"threads of {launch.name} meet at different barriers")

    def _base(self, buffer: int) -> int:
        memory = self.placement._bytes(buffer)
        return int(memory.__array_interface__["data"][0])


def count_of_kernels(plan: Plan) -> int:
    """The steps of a plan that do work."""
    return sum(step.kind is StepKind.COMPUTE for step in plan.steps)


def relative_error(given: Array, expected: Array) -> float:
    """The norm of the difference over the norm of what was expected; NaN never passes."""
    difference = given.astype(np.float64) - expected.astype(np.float64)
    return float(np.linalg.norm(difference) / np.linalg.norm(expected.astype(np.float64)))
