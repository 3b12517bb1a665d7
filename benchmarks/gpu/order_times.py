"""Times of sorts, top-k and cumulative sums on a GPU beside PyTorch's own kernels, both recorded in graphs.

python -m benchmarks.gpu.order_times

Results are compared with PyTorch's (stable) ones on the way. A line gives microseconds: PyTorch's, then every way's.
"""

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cupy
import torch
from capgraph.ir.plan import View, element_bytes
from capgraph.ir.types import DType

from tests.executors.cuda.codegen.cases import Case, made, outputs_of
from tests.executors.cuda.codegen.running import all_prepared, generated
from tests.gpu.generated_kernels import DevicePlan, Functions

SHAPES = ((1, 128256), (8, 128256), (1, 50257), (4096, 128), (512, 1024), (65536, 32), (1, 1 << 20), (1, 1 << 24))
DTYPES = ("f32", "f16", "i64")
OF = {"f32": torch.float32, "f16": torch.float16, "i64": torch.int64}
MOST_ERROR = {"f32": 1e-4, "f16": 2e-2, "i64": 0}


@dataclass(frozen=True)
class Measured:
    """A case with its input on the device, and what PyTorch does of it."""

    case: Case
    x: Any
    peer: Callable[[Any], Any]
    most_error: float


def drawn(dtype: str, shape: tuple[int, int]) -> Any:
    """Normally distributed numbers, some of them equal; integers of all sizes."""
    if dtype == "i64":
        return torch.randint(-(2**62), 2**62, shape, device="cuda")
    return torch.randn(shape, device="cuda").to(OF[dtype])


def cases() -> Iterator[Measured]:
    """Every shape and dtype."""
    for dtype in DTYPES:
        for shape in SHAPES:
            x = drawn(dtype, shape)
            host = x.cpu().numpy().astype(DType(dtype).numpy)
            name = f"{shape[0]} x {shape[1]} {dtype}"

            def sort(b, x):  # type: ignore[no-untyped-def]
                return outputs_of(b, "sort", x, axis=-1, descending=True)

            yield Measured(
                made(f"sort {name}", sort, host), x, lambda x: torch.sort(x, dim=-1, descending=True, stable=True), 0
            )
            for k in (50, 1000) if shape[1] > 50000 else (8,):

                def top(b, x, k=k):  # type: ignore[no-untyped-def]
                    return outputs_of(b, "top_k", x, axis=-1, k=k)

                yield Measured(made(f"top {k} {name}", top, host), x, lambda x, k=k: torch.topk(x, k, dim=-1), 0)

            small = x % 1000 if dtype == "i64" else torch.rand_like(x) / (1 + shape[1] // 60000)
            yield Measured(
                made(f"cumsum {name}", lambda b, x: b.op("cumsum", x, axis=-1), small.cpu().numpy()),
                small,
                lambda x: torch.cumsum(x, -1),
                MOST_ERROR[dtype],
            )


def graph_us(call: Callable[[], object], stream: Any) -> float:
    """Microseconds of one call: some of them in one graph, the best of several replays."""
    with stream, torch.cuda.stream(torch.cuda.ExternalStream(stream.ptr)):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        call()
        start.record(stream)
        call()
        stop.record(stream)
        stop.synchronize()
        count = max(2, min(30, int(3 / max(cupy.cuda.get_elapsed_time(start, stop), 1e-3))))
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(count):
            call()
        graph.capture_end()
        graph.replay()
        times: list[float] = []
        for _ in range(7):
            start.record(stream)
            graph.replay()
            stop.record(stream)
            stop.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, stop) * 1e3 / count)
    return min(times)


def problem(found: list[Any], measured: Measured) -> str:
    """Why results are not PyTorch's, empty where they are."""
    values, *places = found
    wanted = measured.peer(measured.x)
    if not places:
        exact = torch.cumsum(measured.x.double() if measured.most_error else measured.x, -1)
        error = ((values.double() - exact.double()).abs() / (1 + exact.double().abs())).max().item()
        return f"error {error:.1g}" if error > measured.most_error else ""
    if not torch.equal(values, wanted.values):
        return "other values"
    if "sort" in measured.case.name and not torch.equal(places[0], wanted.indices):
        return "other indices"
    return "" if torch.equal(torch.gather(measured.x, 1, places[0]), values) else "indices of other values"


def _bytes_at(device: DevicePlan, view: View) -> Any:
    """The memory of a value."""
    nbytes = math.prod(view.shape) * element_bytes(view.dtype)
    return device.bytes_of(view.buffer)[view.offset : view.offset + nbytes]


def _tensor(device: DevicePlan, view: View) -> Any:
    """A value as PyTorch sees it."""
    return torch.as_tensor(_bytes_at(device, view), device="cuda").view(OF[str(view.dtype)]).view(view.shape)


def main() -> None:
    picked = sys.argv[1:]
    every = [each for each in cases() if not picked or any(each.case.name.startswith(word) for word in picked)]
    prepared = all_prepared(each.case for each in every)
    functions = Functions(kernel for made in prepared for kernel in made.kernels())
    for log in functions.failed.values():
        print("does not compile:", log[-500:])
    stream = cupy.cuda.Stream(non_blocking=True)
    for measured, each in zip(every, prepared, strict=True):
        device = DevicePlan(each.plan, functions)
        (value,) = each.plan.graph.inputs
        view = each.plan.views[value]
        _bytes_at(device, view)[...] = cupy.asarray(measured.x.view(-1).view(torch.uint8))
        cupy.cuda.Device().synchronize()
        shown: list[str] = []
        for candidate in generated(each.lowered[-1]):
            with stream:
                device.launch(candidate)
            stream.synchronize()
            found = [_tensor(device, each.plan.views[output]) for output in each.plan.graph.outputs]
            why = problem(found, measured)
            took = graph_us(lambda c=candidate, d=device: d.launch(c), stream)
            shown.append(f"{candidate.name} {took:.1f}{' WRONG: ' + why if why else ''}")
        peer = graph_us(lambda m=measured: m.peer(m.x), stream)
        print(f"{measured.case.name:28} torch {peer:8.1f} | {'; '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
