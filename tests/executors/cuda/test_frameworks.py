"""Whose arrays they are, and programs that are given what DLPack hands over."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from capgraph.executors.cuda import frameworks
from capgraph.executors.cuda.arrays import DeviceArray
from capgraph.executors.cuda.frameworks import framework_of
from capgraph.executors.eager import EagerExecutor

from tests.executors.cuda.exchange import CPU, CUDA, MANAGED, ROCM, Exchanged
from tests.executors.cuda.fake import FakeArrays, GpuArray, fake_device, meanings
from tests.executors.cuda.test_executable import recorded
from tests.executors.replay.programs import block, rows


def test_an_array_belongs_to_whom_its_class_or_its_place_says() -> None:
    class Interfaced:
        __cuda_array_interface__: Any = None

    tensor = type("Tensor", (), {"__module__": "torch.nn"})
    for given, expected in (
        (np.zeros(3), "numpy"),
        ([1.0], "numpy"),
        (tensor(), "torch"),
        (Interfaced(), "cupy"),
        (Exchanged(CPU), "numpy"),
        (Exchanged(CUDA), "cupy"),
        (Exchanged(ROCM), "cupy"),
        (Exchanged(MANAGED), "cupy"),
    ):
        assert framework_of(given) == expected


class Exchanging(FakeArrays):
    """A framework that reads what is exchanged."""

    def wrap(self, given: Any) -> DeviceArray:
        return super().wrap(given.content if isinstance(given, Exchanged) else given)


def test_a_program_takes_what_is_exchanged_and_gives_arrays_on_the_device(tmp_path: Path) -> None:
    oracle = EagerExecutor().compile(block())
    with meanings(), patch.object(frameworks, "_FRAMEWORKS", {"cupy": Exchanging}):
        gpu = fake_device(tmp_path)
        program = recorded(block(), gpu, mode="full", dynamic={"B": (1, 8)}, buckets={"B": [4]})
        for call in range(4):
            content = rows(4, call)
            given = program.run({"x": Exchanged(CUDA, GpuArray(content))})["y"]
            assert isinstance(given, GpuArray)
            np.testing.assert_allclose(given.content, oracle.run({"x": content})["y"], rtol=1e-5)
        assert gpu.stream == FakeArrays.current
        assert program.stats().counters.replayed_calls == 3
