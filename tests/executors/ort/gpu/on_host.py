"""Subgraphs in sessions on a GPU that the host plays: memory is main memory, and the provider is that of the CPU.

All but graph mode itself is what runs on a GPU: sessions bound to addresses of the plan, numbers, host steps between.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from capgraph.capture_options import replay_options
from capgraph.executors.base import Request
from capgraph.executors.ort.gpu.device import OrtDevice
from capgraph.executors.ort.gpu.executable import OneThread
from capgraph.executors.ort.gpu.programs import sessions_on
from capgraph.executors.ort.gpu.session import Provider
from capgraph.ir.graph import Graph

from tests.executors.cuda.fake import fake_device, gpu_arrays, meanings

HOST = Provider("CPUExecutionProvider", "cpu")


@contextmanager
def played() -> Iterator[None]:
    """Within it, our own kernels are meanings, and arrays of the host's GPU are known."""
    with meanings(), gpu_arrays():
        yield


def program(graph: Graph, folder: Path, provider: Provider = HOST, **options: Any) -> OneThread:
    """A program of the executor "ort" on the GPU that the host plays; to be used within `played()`."""
    named = {name: options.pop(name, None) for name in ("dynamic", "buckets")}
    mode, strict = options.pop("mode", "full_and_piecewise"), options.pop("strict", False)
    chosen = replay_options(mode=mode, strict=strict, capture=options, **named)
    gpu = OrtDevice(fake_device(folder))
    return sessions_on(gpu, provider, Request(device="cuda", replay=chosen)).compile(graph)  # type: ignore[return-value]


def inputs(graph: Graph, rows: int, seed: int) -> dict[str, np.ndarray]:
    """A call's inputs, with that size for every symbol."""
    random = np.random.default_rng(seed)
    found = {}
    for value in graph.inputs:
        shape = [dim if isinstance(dim, int) else rows for dim in value.shape]
        array = np.asarray(random.standard_normal(shape))
        found[value.name] = np.asarray(3) if not shape else array.astype(value.tensor.dtype.numpy)
    return found
