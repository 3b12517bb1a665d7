"""Grouped products beside torch's: each way by itself, recorded in a graph, over weights that exceed the cache.

In bf16 alone, as torch's cannot be recorded in f16 and f32.

python -m benchmarks.gpu.grouped_products
"""

import statistics
from collections.abc import Callable
from typing import Any

import torch
from capgraph.executors.cuda.executor import open_device
from capgraph.executors.cuda.kernel_ir.launch import KernelLaunch, Task
from capgraph.executors.cuda.kernels.gemm.grouped_products import lower_grouped
from capgraph.ir.graph import Graph
from capgraph.ir.ops import native
from capgraph.ir.plan import View
from capgraph.ir.types import DType, TensorType

CASES = (
    # groups, inner, columns, rows: Mixtral 8x7B's, Qwen2-MoE's and GPT-OSS's experts
    *((8, 4096, 28672, rows) for rows in (2, 16, 256, 4096)),
    *((60, 2048, 2816, rows) for rows in (4, 32, 2048)),
    *((32, 2880, 5760, rows) for rows in (4, 1024)),
)
_TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
_CACHE_BYTES = 100 << 20


def ends_of(groups: int, rows: int) -> Any:
    """Random groups, as a router makes them."""
    numbers = torch.randint(0, groups, (rows,), generator=torch.Generator().manual_seed(rows))
    return torch.bincount(numbers, minlength=groups).cumsum(0).to(torch.int32).cuda()


def microseconds(runs: list[Callable[[], object]]) -> float:
    """The time of one call: all of them, again and again, in one graph."""
    for run in runs:
        run()
    torch.cuda.synchronize()
    graph, count = torch.cuda.CUDAGraph(), max(20 // len(runs), 1)
    with torch.cuda.graph(graph):
        for _ in range(count):
            for run in runs:
                run()
    times = []
    for _ in range(7):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / count / len(runs))
    return statistics.median(times)


def view_of(index: int, tensor: Any, dtype: DType) -> View:
    item = tensor.element_size()
    return View(index, 0, dtype, tuple(tensor.shape), tuple(stride * item for stride in tensor.stride()))


def measure(groups: int, inner: int, columns: int, rows: int, name: str, *, transposed: bool) -> None:
    dtype, kind = DType(name), _TORCH[name]
    copies = max(2, min(6, 2 * _CACHE_BYTES // (min(rows, groups) * inner * columns * kind.itemsize) + 1))
    a, ends = torch.randn(rows, inner, device="cuda").to(kind), ends_of(groups, rows)
    shape = (groups, columns, inner) if transposed else (groups, inner, columns)
    stored = [(torch.randn(shape, device="cuda") / inner**0.5).to(kind) for _ in range(copies)]
    weights = [each.transpose(1, 2) if transposed else each for each in stored]
    d = torch.empty(rows, columns, device="cuda", dtype=kind)
    graph = Graph()
    types = [
        TensorType(dtype, tuple(a.shape)),
        TensorType(dtype, tuple(weights[0].shape)),
        TensorType(DType.I32, (groups,)),
    ]
    node = graph.append(native("grouped_matmul"), [graph.add_input(f"x{i}", ty) for i, ty in enumerate(types)])
    tensors = (a, weights[0], ends, d)
    views = [view_of(i, each, DType.I32 if each is ends else dtype) for i, each in enumerate(tensors)]
    device = open_device(0)
    found = {}
    expected = torch.zeros(rows, columns, device="cuda")
    start = 0
    for group, end in enumerate(ends.tolist()):
        expected[start:end] = a[start:end].float() @ weights[0][group].float()
        start = end
    for way in lower_grouped(Task(node, tuple(views[:3]), (views[3],))):
        (launch,) = way.launches
        assert isinstance(launch, KernelLaunch)
        bound = [device.bound(launch, lambda at, w=w: (a, w, ends, d)[at.buffer].data_ptr()) for w in weights]
        bound[0](torch.cuda.current_stream().cuda_stream)
        error = float((d.float() - expected).norm() / expected.norm())
        assert error < (1e-2 if kind.itemsize == 2 else 1e-5), (way.name, error)
        if way.name == "grouped-tiles" and kind.itemsize == 2 and rows > 64:
            continue
        if way.name == "grouped-rows" and rows > 512:
            continue
        found[way.name] = microseconds([lambda run=run: run(torch.cuda.current_stream().cuda_stream) for run in bound])
    theirs = microseconds([lambda w=w: torch._grouped_mm(a, w, offs=ends) for w in weights])
    ours = min(found.values())
    lies = "N x K" if transposed else "K x N"
    detail = ", ".join(f"{way[8:]} {time:.1f}" for way, time in found.items())
    case = f"{groups:3} x {inner} x {columns:5} {lies} rows {rows:4} {name:4}"
    print(f"{case} ours {ours:8.1f} torch {theirs:8.1f} us {ours / theirs:5.2f}  {detail}", flush=True)


def main() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    for case in CASES:
        measure(*case, "bf16", transposed=True)
    measure(*CASES[4], "bf16", transposed=False)
    measure(*CASES[7], "bf16", transposed=False)


if __name__ == "__main__":
    main()
