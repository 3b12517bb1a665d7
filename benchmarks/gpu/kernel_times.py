"""Times of generated kernels on a GPU: every candidate of a step, many times in one graph, with its bytes a second.

python -m benchmarks.gpu.kernel_times
"""

from collections.abc import Iterator

import cupy
import numpy as np
from capgraph.executors.cuda.kernel_ir.launch import Candidate, KernelLaunch

from tests.executors.cuda.codegen.cases import Case, Drawn, fused, made, outputs_of
from tests.executors.cuda.codegen.running import all_prepared, generated
from tests.gpu.generated_kernels import DevicePlan, Functions

LAUNCHES = 40
REPLAYS = 20
L2_BYTES = 60 << 20


def cases() -> Iterator[Case]:
    """What models spend their time on outside of matmuls, at their sizes, and large tensors for bandwidth."""
    d = Drawn()

    def normed_sum(b, x, y, s, c):  # type: ignore[no-untyped-def]
        total = b.op("add", x, y)
        return [total, b.op("layer_norm", total, s, c, axis=-1)]

    def scores(b, x, mask):  # type: ignore[no-untyped-def]
        scaled = b.op("mul", x, b.constant(np.asarray(np.float16(0.125))))
        return b.op("softmax", b.op("add", scaled, mask), axis=-1)

    for rows in (1, 16, 128, 4096, 32768):
        x, y = d.array("f16", rows, 768), d.array("f16", rows, 768)
        yield fused(
            made(f"add + layer_norm {rows} x 768 f16", normed_sum, x, y, d.array("f16", 768), d.array("f16", 768))
        )
    for rows in (1, 32, 4096):
        x = d.array("bf16", rows, 2048)
        yield made(
            f"rms_norm {rows} x 2048 bf16", lambda b, *v: b.op("rms_norm", *v, axis=-1), x, d.array("bf16", 2048)
        )
    yield fused(
        made("scores 12 x 128 x 128 f16", scores, d.array("f16", 1, 12, 128, 128), d.array("f16", 1, 1, 1, 128))
    )
    yield fused(
        made("scores 384 x 512 x 512 f16", scores, d.array("f16", 32, 12, 512, 512), d.array("f16", 32, 1, 1, 512))
    )
    for shape in ((1, 50257), (64, 50257), (8192, 4096), (65536, 64)):
        yield made(f"softmax {shape} f16", lambda b, x: b.op("softmax", x, axis=-1), d.array("f16", *shape))
        yield made(f"argmax {shape} f16", lambda b, x: b.op("argmax", x, axis=-1), d.array("f16", *shape))
    yield made("sum of 64 Mi f32", lambda b, x: b.op("reduce_sum", x, axes=(0,)), d.array("f32", 1 << 26))
    yield made("column sums 65536 x 256 f32", lambda b, x: b.op("reduce_sum", x, axes=(0,)), d.array("f32", 65536, 256))
    image = d.array("f16", 1, 7, 7, 2048)
    yield made(
        "pool 7 x 7 x 2048 f16",
        lambda b, x: b.op("reduce_mean", b.op("transpose", x, perm=(0, 3, 1, 2)), axes=(2, 3)),
        image,
    )
    big = [d.array("f16", 1 << 25) for _ in range(2)]
    yield made("add 32 Mi f16", lambda b, x, y: b.op("add", x, y), *big)
    yield made("relu 32 Mi f16", lambda b, x: b.op("relu", x), big[0])
    yield made("gelu 32 Mi f16", lambda b, x: b.op("gelu", x), big[0])
    yield made("gelu (tanh) 32 Mi f16", lambda b, x: b.op("gelu", x, approximate="tanh"), big[0])
    yield made("add 32 Mi f32", lambda b, x, y: b.op("add", x, y), *(d.array("f32", 1 << 25) for _ in range(2)))
    yield made("gelu 128 x 3072 f16", lambda b, x: b.op("gelu", x), d.array("f16", 128, 3072))
    yield fused(
        made(
            "silu * y 1 x 8192 bf16",
            lambda b, x, y: b.op("mul", b.op("silu", x), y),
            d.array("bf16", 1, 8192),
            d.array("bf16", 1, 8192),
        )
    )
    yield made(
        "turn 4096 x 8192 f16",
        lambda b, x: b.op("reshape", b.op("transpose", x, perm=(1, 0)), shape=(1 << 25,)),
        d.array("f16", 4096, 8192),
    )
    yield made(
        "turn 4096 x 8192 f32",
        lambda b, x: b.op("reshape", b.op("transpose", x, perm=(1, 0)), shape=(1 << 25,)),
        d.array("f32", 4096, 8192),
    )
    yield made(
        "heads 32 x 128 x 12 x 64 f16",
        lambda b, x: b.op("reshape", b.op("transpose", x, perm=(0, 2, 1, 3)), shape=(32, 12 * 128 * 64)),
        d.array("f16", 32, 128, 12, 64),
    )
    yield made(
        "gather 4096 of 30522 x 768 f16",
        lambda b, x, i: b.op("gather", x, i, axis=0),
        d.array("f16", 30522, 768),
        d.rng.integers(0, 30522, (32, 128)),
    )
    yield made(
        "cache 1 x 8 x 2048 x 64 bf16",
        lambda b, x, u, p: b.op("tensor_scatter", x, u, p, axis=2),
        d.array("bf16", 1, 8, 2048, 64),
        d.array("bf16", 1, 8, 1, 64),
        np.array([512]),
    )
    window = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    yield made(
        "max pool 32 x 112 x 112 x 64 f16",
        lambda b, x: b.op("max_pool", b.op("transpose", x, perm=(0, 3, 1, 2)), **window),
        d.array("f16", 32, 112, 112, 64),
    )
    yield made(
        "top 50 of 1 x 50257 f32", lambda b, x: outputs_of(b, "top_k", x, axis=1, k=50), d.array("f32", 1, 50257)
    )


def seconds(device: DevicePlan, candidate: Candidate) -> float:
    """The time of one run of a candidate: `LAUNCHES` of them in one graph, the best of several replays."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        device.launch(candidate)
        stream.begin_capture()
        for _ in range(LAUNCHES):
            device.launch(candidate)
        graph = stream.end_capture()
        graph.launch(stream)
        times: list[float] = []
        for _ in range(REPLAYS):
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record(stream)
            graph.launch(stream)
            stop.record(stream)
            stop.synchronize()
            times.append(cupy.cuda.get_elapsed_time(start, stop) * 1e-3 / LAUNCHES)
    return min(times)


def main() -> None:
    every = all_prepared(cases())
    functions = Functions(kernel for case in every for kernel in case.kernels())
    for log in functions.failed.values():
        print("does not compile:", log[-500:])
    for case in every:
        device = DevicePlan(case.plan, functions)
        for value, given in zip(case.plan.graph.inputs, case.case.inputs, strict=True):
            device.write(value, given)
        for lowered in case.lowered:
            for candidate in generated(lowered):
                if not candidate.launches:
                    continue
                launches = [each for each in candidate.launches if isinstance(each, KernelLaunch)]
                took, nbytes = seconds(device, candidate), max(each.nbytes for each in launches)
                where = "L2" if nbytes < L2_BYTES else "HBM"
                print(
                    f"{case.case.name:36} {lowered.step.node.op.name:12} {candidate.name:20} {len(launches)} "
                    f"{took * 1e6:9.2f} us {nbytes / took * 1e-12:6.2f} TB/s {where}"
                )


if __name__ == "__main__":
    main()
