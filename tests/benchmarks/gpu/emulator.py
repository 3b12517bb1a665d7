"""Plans lowered by `benchmarks.gpu`, their kernels run on the host."""

from pathlib import Path

import numpy as np
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, Candidate, Kernel, KernelLaunch
from capgraph.ir.constant import Array
from capgraph.ir.plan import Plan

from benchmarks.gpu.lowering import Launch, lower
from benchmarks.gpu.prelude import PRELUDE
from tests.executors.cuda.emulator import Emulator, compiled

_SMALL_FLOATS = r"""
static inline float get(f16 x) { _Float16 y; memcpy(&y, &x, 2); return (float)y; }
static inline void put(f16& to, float x) { _Float16 y = (_Float16)x; memcpy(&to, &y, 2); }
"""


class EmulatedPlan:
    """A plan on the host arena whose steps are the emulated kernels of its launches."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.launches = [launch for each in lower(plan).values() for launch in each]
        self._candidate = Candidate("emulated", tuple(_as_kernel_launch(launch) for launch in self.launches))
        kernels = [launch.kernel for launch in self._candidate.launches if isinstance(launch, KernelLaunch)]
        self._emulator = Emulator(plan, compiled(kernels, folder, PRELUDE + _SMALL_FLOATS))

    def run(self, inputs: list[Array]) -> list[Array]:
        """The outputs; everything but the inputs is poisoned first."""
        emulator, graph = self._emulator, self._emulator.plan.graph
        emulator.arena.bytes[...] = 0xFF
        for value, given in zip(graph.inputs, inputs, strict=True):
            emulator.placement.array(value)[...] = given
        emulator.run(self._candidate)
        return [emulator.placement.array(value).copy() for value in graph.outputs]


def _as_kernel_launch(launch: Launch) -> KernelLaunch:
    kernel = Kernel(launch.text.replace(launch.name, "NAME", 1), launch.grid, (launch.threads, 1, 1))
    return KernelLaunch(kernel, tuple(BufferPlace(place.buffer, place.offset) for place in launch.places), 0)


def relative_error(given: Array, expected: Array) -> float:
    """The norm of the difference over the norm of what was expected; NaN never passes."""
    difference = given.astype(np.float64) - expected.astype(np.float64)
    return float(np.linalg.norm(difference) / np.linalg.norm(expected.astype(np.float64)))
