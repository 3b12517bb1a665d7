"""Steps that a library does with kernels around it: Fourier transforms of any length, deformable convolutions."""

from typing import Any

import capgraph
import numpy as np
import pytest
import torch
from capgraph.ir.evaluate import evaluate_graph

from tests.executors.cuda.codegen.cases import Case, Drawn, made

CALLS = 3


def check(case: Case, limit: float) -> None:
    """Recorded, and of the largest element no more than `limit` away from what the graph means."""
    for found, wanted in zip(recorded(case), evaluate_graph(case.graph, case.inputs), strict=True):
        error = float(np.abs(np.asarray(found, np.float64) - wanted).max() / np.abs(wanted).max())
        assert error <= limit, error


def recorded(case: Case) -> list[Any]:
    """What the third call gives, without a step on the host."""
    with capgraph.optimize(case.graph, executor="graph", device="cuda") as program:
        named = {value.name: array for value, array in zip(case.graph.inputs, case.inputs, strict=True)}
        for _ in range(CALLS):
            results = list(program.run(named).values())
        covered = program.coverage
        assert covered is not None
        assert not covered.fallbacks, program.explain()
    return results


@pytest.mark.parametrize("length", [1, 30, 256, 1000, 4096, 8192, 12_919, 65_536, 100_003, 1 << 20])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_transforms_of_any_length(length: int, dtype: str) -> None:
    d = Drawn()
    limit = {"f32": 3e-6, "f64": 1e-13, "f16": 2e-3}[dtype]
    real, both = d.array(dtype, 3, length, 1), d.array(dtype, 3, length, 2)
    half = d.array(dtype, 3, length // 2 + 1, 2)
    scale = np.array(1 / length if dtype == "f16" else 1, real.dtype)  # results stay in the range of f16
    back: dict[str, Any] = {"inverse": True, "onesided": True, "length": length}
    check(made("real", lambda b, x: b.op("dft", x, onesided=True), real * scale), limit)
    check(made("complex", lambda b, x: b.op("dft", x), both * scale), limit)
    check(made("inverse", lambda b, x: b.op("dft", x, inverse=True), both), limit)
    check(made("back", lambda b, x: b.op("dft", x, **back), half), limit)
    check(made("padded", lambda b, x: b.op("dft", x, length=length + 7), real * scale), limit)


def test_transforms_across_memory_and_of_frames() -> None:
    d = Drawn()
    check(made("axis", lambda b, x: b.op("dft", x, axis=1), d.array("f32", 2, 600, 5, 2)), 3e-6)
    frames = {"frame_step": 160, "frame_length": 400}
    signal, window = d.array("f32", 2, 16000, 1), d.array("f32", 400)
    check(made("frames", lambda b, x, w: b.op("stft", x, w, **frames), signal, window), 3e-6)


@pytest.mark.parametrize("dtype", ["f32", "f16", "f64"])
@pytest.mark.parametrize(("groups", "offset_groups", "has_bias"), [(1, 1, False), (1, 2, True), (2, 4, True)])
def test_deformable_convolutions(dtype: str, groups: int, offset_groups: int, has_bias: bool) -> None:
    d = Drawn()
    arrays = [d.array(dtype, 2, 16, 14, 15), d.array(dtype, 8, 16 // groups, 3, 3)]
    arrays += [d.array(dtype, 2, offset_groups * 18, 14, 15), d.array(dtype, 2, offset_groups * 9, 14, 15)]
    arrays += [d.array(dtype, 8)] if has_bias else []
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": groups}

    def built(b: Any, x: Any, w: Any, o: Any, m: Any, bias: Any = None) -> Any:
        return b.op("deform_conv", x, w, o, bias, m, offset_groups=offset_groups, **attrs)

    check(made("deformed", built, *arrays), {"f32": 2e-6, "f16": 3e-3, "f64": 1e-13}[dtype])


@pytest.mark.parametrize("size", [1, 3, 32, 65, 238, 300])
def test_determinants(size: int) -> None:
    x = Drawn().array("f32", 5, size, size) / np.float32(np.sqrt(size))
    check(made("det", lambda b, v: b.op("det", v), x), 2e-4)


@pytest.mark.parametrize(("slices", "slots", "rest"), [(2708, 10556, 16), (300, 700, 4), (8192, 16384, 3)])
@pytest.mark.parametrize("reduction", ["add", "max", "mul"])
def test_scatters_of_few_updates(slices: int, slots: int, rest: int, reduction: str) -> None:
    d = Drawn()
    arrays = d.array("f32", slices, rest), d.indices(slices, slots, 1), d.array("f32", slots, rest)
    check(made("scatter", lambda b, *v: b.op("scatter_nd", *v, reduction=reduction), *arrays), 1e-5)


@pytest.mark.parametrize("allowed", [True, False])
def test_convolutions_round_as_pytorch_asks(allowed: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.Conv2d(64, 64, 3, padding=1).cuda().eval()
    x = torch.randn(8, 64, 56, 56, device="cuda")
    kept = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allowed
    try:
        with torch.no_grad():
            exact = torch.nn.functional.conv2d(x.double(), module.weight.double(), module.bias.double(), padding=1)
            program = capgraph.optimize(module, args=(x,))
            for _ in range(CALLS):
                found = program(x)
    finally:
        torch.backends.cudnn.allow_tf32 = kept
    assert ("rounded to TF32 in: convolutions" in program.explain()) is allowed
    error = float((found.double() - exact).abs().max() / exact.abs().max())
    assert error < (2e-3 if allowed else 2e-6), error


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "steps", "keys", "size"), [(4, 4, 300, 300, 64), (8, 2, 70, 513, 128)])
def test_attention_of_single_precision(
    heads: int, kv_heads: int, steps: int, keys: int, size: int, causal: bool
) -> None:
    """As near to f64 as PyTorch's, whose operands are also sums of two numbers of 11 bits."""
    d = Drawn()
    shapes = (2, heads, steps, size), (2, kv_heads, keys, size), (2, kv_heads, keys, size)
    arrays = [d.array("f32", *shape) for shape in shapes]
    mask = None if causal else d.array("f32", 2, 1, steps, keys)
    given = [*arrays, *([] if mask is None else [mask])]

    def built(b: Any, q: Any, k: Any, v: Any, m: Any = None) -> Any:
        return b.op("attention", q, k, v, m, None, causal=causal)

    def by_torch(dtype: torch.dtype) -> torch.Tensor:
        q, k, v, *rest = (torch.from_numpy(each).cuda().to(dtype) for each in given)
        options = {"is_causal": causal, "enable_gqa": heads != kv_heads}
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, *rest, **options).double().cpu()

    exact = by_torch(torch.float64)
    found = torch.from_numpy(np.asarray(recorded(made("single", built, *given))[0])).double()
    theirs = float((by_torch(torch.float32) - exact).norm())
    ours = float((found - exact).norm())
    assert ours <= 1.5 * theirs, (ours, theirs)


@pytest.mark.parametrize(("name", "number"), [("v", np.inf), ("v", 3.4e38), ("k", -np.inf), ("q", np.inf)])
def test_infinities_in_attention_of_single_precision(name: str, number: float) -> None:
    d = Drawn()
    arrays = {each: d.array("f32", 2, 4, 70, 64) for each in ("q", "k", "v")}
    arrays[name][:, :, 33, 3] = number
    case = made("single", lambda b, q, k, v: b.op("attention", q, k, v, None, None), *arrays.values())
    with np.errstate(all="ignore"):
        (wanted,) = evaluate_graph(case.graph, case.inputs)
    (found,) = recorded(case)
    np.testing.assert_allclose(np.asarray(found), wanted, 1e-4, 1e-5)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(
    ("rows", "inner", "columns", "ends"),
    [(4096, 1024, 2048, range(512, 4097, 512)), (1000, 136, 264, (300, 300, 777)), (500, 4096, 512, (0, 129, 500))],
)
def test_grouped_matmuls_by_the_instructions_of_hopper(
    rows: int, inner: int, columns: int, ends: Any, is_transposed: bool
) -> None:
    d = Drawn()
    weights = d.array("f16", len(ends), columns, inner) if is_transposed else d.array("f16", len(ends), inner, columns)
    arrays = d.array("f16", rows, inner), weights / np.float16(8), np.array(ends, np.int32)

    def built(b: Any, a: Any, w: Any, e: Any) -> Any:
        return b.op("grouped_matmul", a, b.op("transpose", w, perm=(0, 2, 1)) if is_transposed else w, e)

    check(made("grouped", built, *arrays), 2e-3)
