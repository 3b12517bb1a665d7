"""Random numbers of programs of PyTorch modules: by PyTorch's generators, so that `torch.manual_seed` seeds them."""

from typing import Protocol

import numpy as np
import torch

from ..executors.base import Drawing, Executable, is_cuda
from ..ir.philox import fresh_state

APART = 0x9E3779B97F4A7C15
"""Makes a key of PyTorch's seed: with the seed itself some numbers would be those that PyTorch draws from it."""

STEP = 4
"""What one draw adds to the offset of a generator on a GPU, which counts in fours."""


class RandomSource(Protocol):
    """Where a program's random numbers come from."""

    def follow(self) -> None:
        """Has the next call draw what PyTorch's generator says, and moves that on. Called before each call."""
        ...


class HostRandom:
    """A key from the default generator of the CPU for each call."""

    def __init__(self, executable: Drawing) -> None:
        self._executable = executable
        self._key = torch.empty((), dtype=torch.int64)

    def follow(self) -> None:
        """See `RandomSource.follow`."""
        self._executable.set_random_state(fresh_state(self._key.random_().item()))


class CudaRandom:
    """The seed of a GPU's default generator, and its offset, which goes on with each call.

    The recorded step advances its state by itself. So nothing is copied to the device unless the generator is elsewhere
    than the call before has left it.
    """

    def __init__(self, executable: Drawing, index: int) -> None:
        torch.cuda.init()
        self._executable = executable
        self._generator = torch.cuda.default_generators[index]
        self._step = STEP * executable.draws
        self._left = (0, -1)

    def follow(self) -> None:
        """See `RandomSource.follow`."""
        generator = self._generator
        seed, offset = generator.initial_seed(), generator.get_offset()
        if (seed, offset) != self._left:
            state = fresh_state(seed ^ APART)
            state[1] = np.uint64(offset // STEP)
            self._executable.set_random_state(state)
        self._left = (seed, offset + self._step)
        generator.set_offset(offset + self._step)


def random_source(executable: Executable, device: str) -> RandomSource | None:
    """What a program on `device` follows; None where it draws nothing, or draws from a library's own generators."""
    if not isinstance(executable, Drawing) or not executable.draws:
        return None
    if is_cuda(device) and torch.cuda.is_available():
        return CudaRandom(executable, int(device.partition(":")[2] or 0))
    return HostRandom(executable)
