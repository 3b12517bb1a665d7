"""PyTorch's time of the same work as a step of ours: calls in a CUDA graph of their own."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from capgraph.ir.types import DType

LAUNCHES = 20
"""How many calls are recorded in one graph."""

REPLAYS = 15

_TORCH = {DType.F16: torch.float16, DType.BF16: torch.bfloat16, DType.F32: torch.float32, DType.F64: torch.float64}


def on_device(array: np.ndarray, dtype: DType) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float32)).cuda().to(_TORCH[dtype])


def peer_time(work: Callable[[int], Any]) -> float:
    """Microseconds of one of `LAUNCHES` calls of `work(i)` in a CUDA graph."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for index in range(3):
            work(index)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept = []
    with torch.cuda.graph(graph):
        for index in range(LAUNCHES):
            kept.append(work(index))
    times = []
    for _ in range(REPLAYS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / LAUNCHES)
    return float(np.median(times))
