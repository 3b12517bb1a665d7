"""Grouped matmuls beside torch's: each candidate by itself, recorded in a graph, over weights that exceed the cache.

Torch's cannot be recorded in f32; there it is called again and again.

python -m benchmarks.gpu.grouped_gemm [--large] [--candidates REGEX]
"""

import argparse
import math
import re
import statistics
from collections.abc import Callable
from typing import Any

import torch
from capgraph.executors.cuda.executor import open_device
from capgraph.executors.cuda.kernel_ir.launch import BufferPlace, KernelLaunch, Task
from capgraph.executors.cuda.kernels.gemm.grouped_gemm import lower_grouped
from capgraph.executors.cuda.kernels.gemm.grouped_wgmma import map_bytes
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
LARGE = ((8, 4096, 14336, 4096), (8, 1024, 2048, 4096), (32, 2048, 4096, 8192))
_TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
_CACHE_BYTES = 100 << 20


def ends_of(groups: int, rows: int, *, even: bool = False) -> Any:
    """Random groups, as a router makes them, or groups of one size."""
    if even:
        return torch.arange(1, groups + 1, dtype=torch.int32, device="cuda") * (rows // groups)
    numbers = torch.randint(0, groups, (rows,), generator=torch.Generator().manual_seed(rows))
    return torch.bincount(numbers, minlength=groups).cumsum(0).to(torch.int32).cuda()


def microseconds(runs: list[Callable[[], object]], *, recorded: bool = True) -> float:
    """The time of one call: all of them, again and again, in one graph if they can be recorded."""
    count = max(20 // len(runs), 1)

    def all_runs() -> None:
        for _ in range(count):
            for run in runs:
                run()

    for run in runs:
        run()
    torch.cuda.synchronize()
    replay = all_runs
    if recorded:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            all_runs()
        replay = graph.replay
    times = []
    for _ in range(7):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        replay()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e3 / count / len(runs))
    return statistics.median(times)


def view_of(index: int, tensor: Any, dtype: DType) -> View:
    item = tensor.element_size()
    return View(index, 0, dtype, tuple(tensor.shape), tuple(stride * item for stride in tensor.stride()))


def measure(
    groups: int, inner: int, columns: int, rows: int, name: str, *, transposed: bool, even: bool = False, only: str = ""
) -> None:
    dtype, kind = DType(name), _TORCH[name]
    copies = max(2, min(6, 2 * _CACHE_BYTES // (min(rows, groups) * inner * columns * kind.itemsize) + 1))
    a, ends = torch.randn(rows, inner, device="cuda").to(kind), ends_of(groups, rows, even=even)
    shape = (groups, columns, inner) if transposed else (groups, inner, columns)
    stored = [(torch.randn(shape, device="cuda") / inner**0.5).to(kind) for _ in range(copies)]
    weights = [each.transpose(1, 2) if transposed else each for each in stored]
    d = torch.empty(rows, columns, device="cuda", dtype=kind)
    device = open_device(0)
    graph = Graph()
    types = [
        TensorType(dtype, tuple(a.shape)),
        TensorType(dtype, tuple(weights[0].shape)),
        TensorType(DType.I32, (groups,)),
    ]
    node = graph.append(native("grouped_matmul"), [graph.add_input(f"x{i}", ty) for i, ty in enumerate(types)])
    scratch = torch.empty(map_bytes(device.driver.chip), dtype=torch.uint8, device="cuda")
    tensors = (a, weights[0], ends, d)
    views = [view_of(i, each, DType.I32 if each is ends else dtype) for i, each in enumerate(tensors)]
    found = {}
    expected = torch.zeros(rows, columns, device="cuda")
    start = 0
    for group, end in enumerate(ends.tolist()):
        expected[start:end] = a[start:end].float() @ weights[0][group].float()
        start = end
    task = Task(node, tuple(views[:3]), (views[3],), scratch=BufferPlace(4), scratch_bytes=scratch.numel())
    candidates = [
        candidate
        for candidate in lower_grouped(task)
        if re.search(only, candidate.name) and not _is_slow(candidate.name, rows, kind.itemsize)
    ]
    device.compiler.compile(
        each.kernel for candidate in candidates for each in candidate.launches if isinstance(each, KernelLaunch)
    )
    for candidate in candidates:
        (launch,) = candidate.launches
        assert isinstance(launch, KernelLaunch)
        bound = [device.bound(launch, lambda at, w=w: (a, w, ends, d, scratch)[at.buffer].data_ptr()) for w in weights]
        bound[0](torch.cuda.current_stream().cuda_stream)
        first = d.clone()
        error = float((d.float() - expected).norm() / expected.norm())
        if not error < (1e-2 if kind.itemsize == 2 else 1e-5):
            print(f"WRONG {candidate.name}: {error:.2e}", flush=True)
            continue
        found[candidate.name] = microseconds(
            [lambda run=run: run(torch.cuda.current_stream().cuda_stream) for run in bound]
        )
        bound[0](torch.cuda.current_stream().cuda_stream)
        if not torch.equal(d, first):
            print(f"WRONG {candidate.name}: other bits after {found.pop(candidate.name):.1f} us", flush=True)
        else:
            print(f"  {candidate.name} {found[candidate.name]:.1f} us", flush=True)
    is_half = kind.itemsize == 2
    theirs = microseconds([lambda w=w: torch._grouped_mm(a, w, offs=ends) for w in weights], recorded=is_half)
    ours = min(found.values(), default=math.nan)
    lies = "N x K" if transposed else "K x N"
    detail = ", ".join(f"{candidate[8:]} {time:.1f}" for candidate, time in found.items())
    case = f"{groups:3} x {inner} x {columns:5} {lies} rows {rows:4} {name:4}{' even' if even else ''}"
    print(f"{case} ours {ours:8.1f} torch {theirs:8.1f} us {ours / theirs:5.2f}  {detail}", flush=True)


def _is_slow(candidate: str, rows: int, itemsize: int) -> bool:
    return (candidate == "grouped-tiles" and itemsize == 2 and rows > 64) or (
        candidate == "grouped-rows" and rows > 512
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="only many rows a group, where tiles decide")
    parser.add_argument("--candidates", default="", metavar="REGEX", help="only candidates whose names match")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    if given.large:
        measure(*LARGE[1], "f32", transposed=False, even=True, only="tiles")
        for case in LARGE:
            measure(*case, "bf16", transposed=True, only=given.candidates)
            measure(*case, "bf16", transposed=False, even=True, only=given.candidates)
        return
    for case in CASES:
        measure(*case, "bf16", transposed=True, only=given.candidates)
    measure(*CASES[4], "bf16", transposed=False, only=given.candidates)
    measure(*CASES[7], "bf16", transposed=False, only=given.candidates)


if __name__ == "__main__":
    main()
