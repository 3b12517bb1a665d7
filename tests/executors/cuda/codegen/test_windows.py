"""Pools over images that lie channels-last on both sides: several channels at a time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from capgraph.executors.cuda.kernel_ir.launch import KernelLaunch, Task
from capgraph.executors.cuda.kernels.tables import candidates
from capgraph.executors.host.memory import HostArena, array_at
from capgraph.ir.builder import Builder
from capgraph.ir.constant import Array
from capgraph.ir.plan import View
from capgraph.ir.types import DType

from tests.executors.cuda.codegen.cases import Drawn
from tests.executors.cuda.emulator import HAS_COMPILER, compiled, kernels_of, launched

WINDOW: dict[str, Any] = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 0, 1, 2), "dilations": (1, 2)}


def channels_last(buffer: int, dtype: DType, shape: tuple[int, ...]) -> View:
    batch, channels, height, width = shape
    size = dtype.numpy.itemsize
    strides = (channels * height * width * size, size, channels * width * size, channels * size)
    assert batch
    return View(buffer, 0, dtype, shape, strides)


def run(op: str, x: Array, folder: Path, **attrs: Any) -> tuple[str, Array, Array]:
    """The candidate that was taken, what the kernel gives, and what the op means."""
    b = Builder()
    dtype = DType.of(x.dtype)
    value = b.input("x", f"{dtype}[{', '.join(map(str, x.shape))}]")
    y = b.op(op, value, **WINDOW, **attrs)
    expected = np.asarray(y.producer.op.meaning(x, **y.producer.attrs.as_kwargs()))
    views = channels_last(0, dtype, x.shape), channels_last(1, dtype, expected.shape)
    memory = [HostArena(array.nbytes, 256) for array in (x, expected)]
    array_at(memory[0].bytes, views[0])[...] = x
    (candidate,) = candidates(Task(y.producer, (views[0],), (views[1],)))
    library = compiled(kernels_of([candidate]), folder)
    for launch in candidate.launches:
        assert isinstance(launch, KernelLaunch)
        launched(library, launch, lambda buffer: memory[buffer].address)
    return candidate.name, array_at(memory[1].bytes, views[1]), expected


@pytest.mark.skipif(not HAS_COMPILER, reason="the emulator compiles kernels with g++")
@pytest.mark.parametrize(
    ("dtype", "channels", "name"), [("f16", 16, "windows8"), ("f32", 12, "windows4"), ("f16", 3, "windows1")]
)
def test_channels_that_lie_side_by_side_are_pooled_together(dtype: str, channels: int, name: str, tmp_path: Path):
    x = Drawn().array(dtype, 2, channels, 9, 11)
    taken, found, expected = run("max_pool", x, tmp_path, ceil_mode=True)
    assert taken == name
    assert np.array_equal(found, expected)
    taken, found, expected = run("average_pool", x, tmp_path, count_include_pad=True)
    assert taken == name
    assert np.allclose(found.astype(float), expected.astype(float), rtol=2e-3, atol=1e-3)
