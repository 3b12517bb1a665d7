"""What it costs to give an explicit graph another address and another number, beside building it again.

    python -m benchmarks.gpu.explicit [--kernels 1 16 128] [--out FOLDER]

A chain of kernels, each adding a number to what the one before wrote. Every kernel gets another number and the first
another input; results are compared with what they must be. Findings go to FOLDER/explicit.json.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
from capgraph.executors.cuda.driver.protocol import KernelCall
from capgraph.executors.cuda.executor import open_device
from capgraph.executors.cuda.kernel_ir.launch import Kernel, KernelLaunch, ScalarArgument

from .findings import Findings
from .peers import environment

ADD = """extern "C" __global__ void NAME(float* r, const float* x, float c) {
  begin();
  r[threadIdx.x] = x[threadIdx.x] + c;
}"""
WIDTH = 256
TIMES = 20


def median_us(work: Callable[[], Any]) -> float:
    """Host time of `work`: the median."""
    found: list[float] = []
    for _ in range(TIMES):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return 1e6 * statistics.median(found)


def chain_times(count: int) -> dict[str, Any]:
    """Times of a graph of `count` kernels."""
    device = open_device(0)
    driver, stream = device.driver, device.own_stream
    launch = KernelLaunch(Kernel(ADD, (1, 1, 1), (WIDTH, 1, 1)), (), 0)
    compiled = device.compiled(launch)
    inputs = [cupy.full(WIDTH, start, cupy.float32) for start in (1, 1000)]
    steps = [cupy.zeros(WIDTH, cupy.float32) for _ in range(count)]
    cupy.cuda.Device().synchronize()

    def arguments(index: int, given: Any, number: float) -> tuple[Any, ...]:
        source = given if index == 0 else steps[index - 1]
        return steps[index].data.ptr, source.data.ptr, ScalarArgument("float", number)

    def built() -> Any:
        return driver.chain([KernelCall(launch, compiled, arguments(each, inputs[0], 1.0)) for each in range(count)])

    graph = built()

    def launched() -> float:
        graph.launch(stream)
        driver.synchronize(stream)
        return float(steps[-1][0])

    before = launched()
    build_us = median_us(lambda: built().close())
    one_us = median_us(lambda: graph.update(0, arguments(0, inputs[1], 3.0)))

    def updated() -> None:
        for each in range(count):
            graph.update(each, arguments(each, inputs[1], 3.0))

    all_us = median_us(updated)
    after = launched()
    return {
        "kernels": count,
        "build_us": build_us,
        "update_one_us": one_us,
        "update_all_us": all_us,
        "launch_and_wait_us": median_us(launched),
        "equal": before == 1.0 + count and after == 1000.0 + 3 * count,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kernels", nargs="+", type=int, default=[1, 16, 128])
    parser.add_argument("--out", type=Path, default=Path("build") / "benchmarks")
    options = parser.parse_args()
    findings = Findings(options.out / "explicit.json")
    findings.stage("environment", environment)
    for count in options.kernels:
        findings.stage(f"{count} kernels", lambda count=count: chain_times(count))  # type: ignore[misc]
    return 1 if findings.failed else 0


if __name__ == "__main__":
    sys.exit(main())
