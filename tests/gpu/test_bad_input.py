"""Input that is none of the usual: special numbers, indices beside their axis, sizes of 0 and above 2^31, odd dtypes.

Tensors half in main memory and operators that raise are in `test_foreign.py`.
"""

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings(action="ignore"):  # what other packages warn of while they load
    pytest.importorskip("cupy", reason="programs on a GPU need the package cupy")
    torch = pytest.importorskip("torch", reason="the modules are PyTorch's")

import capgraph
from capgraph.ir.builder import Builder
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.types import DType

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU answers here"),
]

CALLS = 3
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0)
DTYPES = ("float16", "bfloat16", "float32", "float64")


class Applied(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: Any) -> Any:
        return self.function(*given)


def run(function: Any, *given: Any) -> Any:
    """What the third call of the recorded program gives; nothing of it may run on the host."""
    torch.cuda.empty_cache()  # what PyTorch keeps for itself is most of a GPU after large tensors
    program = capgraph.optimize(Applied(function), args=given)
    with torch.no_grad():
        for _ in range(CALLS):
            found = program(*given)
    assert "runs on the host" not in program.explain(), program.explain()
    return found


def check(function: Any, *given: Any) -> None:
    found, expected = run(function, *given), function(*given)
    torch.testing.assert_close(found, expected, equal_nan=True)


def check_meaning(build: Any, *arrays: Any) -> None:
    """A graph of our ops on the device beside its meaning in NumPy."""
    b = Builder()
    values = [
        b.input(f"x{index}", f"{DType.of(each.dtype)}[{', '.join(map(str, each.shape))}]")
        for index, each in enumerate(arrays)
    ]
    made = build(b, *values)
    graph = b.finish(list(made) if isinstance(made, (list, tuple)) else [made])
    expected = evaluate_graph(graph, list(arrays))
    with capgraph.optimize(graph, executor="graph", device="cuda") as program:
        for _ in range(CALLS):
            found = list(program.run(dict(zip((value.name for value in graph.inputs), arrays, strict=True))).values())
    for ours, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(wanted))


# ---- NaN and infinities


def special(shape: tuple[int, ...], dtype: str) -> Any:
    """Numbers of which some in every row but the first are special."""
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    x = torch.randn(shape, device="cuda", generator=generator).to(getattr(torch, dtype))
    for turn, number in enumerate(SPECIAL):
        x[1:, (turn * 7 + 3) % shape[1] :: 11 + 2 * turn] = number
    return x


@pytest.mark.parametrize("shape", [(3, 40), (3, 5000), (2, 200_000)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_orders_and_extremes_of_special_numbers(shape: tuple[int, int], dtype: str) -> None:
    x, y = special(shape, dtype), special(shape, dtype).flip(1)

    def both(x: Any, y: Any) -> Any:
        found = [x.sort(-1), x.sort(-1, descending=True), x.topk(7, -1), x.topk(7, -1, largest=False)]
        found += [x.max(-1), x.min(-1), x.max(0), x.min(0)]
        values, places = [each[0] for each in found], [each[1] for each in found]
        alone = x.argmax(-1), x.argmin(-1)
        others = x.amax(-1), x.amin(-1), torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), x.clamp(-1, 1)
        return (*values, *others), (*places, *alone)

    values, places = run(both, x, y)
    expected, _ = both(x, y)
    for found, wanted in zip(values, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    axes = (1, 1, 1, 1, 1, 1, 0, 0)
    for place, value, axis in zip(places, expected, axes, strict=False):
        taken = x.gather(axis, place if place.dim() == 2 else place.unsqueeze(axis))
        torch.testing.assert_close(taken.view(value.shape), value, rtol=0, atol=0, equal_nan=True)
    for place, value in zip(places[-2:], (expected[4], expected[5]), strict=True):
        torch.testing.assert_close(x.gather(1, place[:, None])[:, 0], value, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("size", [40, 5000])
def test_orders_and_extremes_as_onnx_means_them(size: int) -> None:
    x = special((3, size), "float32").cpu().numpy()
    check_meaning(lambda b, v: b.ops("sort", v, axis=-1, descending=True), x)
    check_meaning(lambda b, v: b.ops("top_k", v, axis=-1, k=5), x)
    check_meaning(lambda b, v: b.op("argmax", v, axis=-1, select_last=True), x)
    check_meaning(lambda b, v: b.op("argmin", v, axis=0), x)
    check_meaning(lambda b, v: b.op("reduce_max", v, axes=(-1,)), x)
    check_meaning(lambda b, v: b.op("min", v, b.op("reverse", v, axes=(1,))), x)


# ---- indices


def test_indices_from_the_end_and_equal_ones() -> None:
    rng = np.random.default_rng(0)
    x, updates = rng.standard_normal((50, 8)).astype(np.float32), rng.standard_normal((300, 8)).astype(np.float32)
    rows = rng.integers(-50, 50, 300)
    places = rng.integers(-8, 8, (50, 20))
    check_meaning(lambda b, v, i: b.op("gather", v, i, axis=0), x, rows)
    check_meaning(lambda b, v, i: b.op("gather_elements", v, i, axis=1), x, places)
    check_meaning(lambda b, v, i: b.op("gather_nd", v, i), x, np.stack([rows, rng.integers(-8, 8, 300)], 1))
    check_meaning(lambda b, v, i, u: b.op("scatter_nd", v, i, u), x, rows[:, None], updates)
    for reduction in ("max", "min"):
        check_meaning(
            lambda b, v, i, u, r=reduction: b.op("scatter_nd", v, i, u, reduction=r), x, rows[:, None], updates
        )
    whole = (x * 8).astype(np.int32), rows[:, None], (updates * 8).astype(np.int32)
    check_meaning(lambda b, v, i, u: b.op("scatter_nd", v, i, u, reduction="add"), *whole)


def test_an_index_beside_its_axis_reads_the_nearest_element_and_writes_nothing() -> None:
    x = torch.arange(40.0, device="cuda").view(10, 4)
    rows = torch.tensor([3, 10, -11, 1 << 40, -(1 << 40), 9], device="cuda")
    near = torch.tensor([3, 9, 0, 9, 0, 9], device="cuda")
    program = capgraph.optimize(Applied(torch.embedding), args=(x, near))
    for _ in range(CALLS):
        torch.testing.assert_close(program(x, rows), x[near])

    def written(x: Any, rows: Any) -> Any:
        return x.index_add(0, rows, torch.ones_like(x[:6])), x.index_put((rows,), x[:6] * 0)

    program = capgraph.optimize(Applied(written), args=(x, near))
    kept = torch.tensor([3, 9], device="cuda")
    added, put = x.clone(), x.clone()
    added[kept] += 1
    put[kept] = 0
    for _ in range(CALLS):
        found = program(x, rows)
        torch.testing.assert_close(found[0], added)
        torch.testing.assert_close(found[1], put)


# ---- sizes

ROWWISE = {
    "linear": lambda x: torch.nn.functional.linear(x, torch.ones(3, 64, device="cuda")),
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (64,)),
    "sum of none": lambda x: (x.sum(0), x.mean(0), x.prod(0)),
    "of rows": lambda x: (x.sum(1), x.amax(1), x.argmax(1), x.sort(1)[0], x.cumsum(1)),
    "along none": lambda x: (x.sort(0)[0], x.cumsum(0)),
    "joined": lambda x: torch.cat([x, x.new_ones(2, 64)]),
    "picked": lambda x: x.new_ones(5, 64)[x[:, 0].long()],
    "added": lambda x: x.new_ones(5, 64).index_add(0, x[:, 0].long(), x),
    "of no inner axis": lambda x: x.T @ x,
}


@pytest.mark.parametrize("name", ROWWISE)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_no_rows(name: str, dtype: str) -> None:
    x = torch.empty(0, 64, device="cuda", dtype=getattr(torch, dtype))
    if name == "linear":
        x = x.float()
    found, expected = run(ROWWISE[name], x), ROWWISE[name](x)
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_no_samples_of_images_and_no_keys() -> None:
    weight = torch.ones(4, 3, 3, 3, device="cuda")
    check(lambda x: torch.nn.functional.conv2d(x, weight), torch.empty(0, 3, 8, 8, device="cuda"))
    q, none = torch.ones(1, 2, 5, 16, device="cuda"), torch.empty(1, 2, 0, 16, device="cuda")
    check(torch.nn.functional.scaled_dot_product_attention, none, q, q)
    check(lambda x: torch.nn.functional.max_pool2d(x, 2), torch.empty(0, 3, 8, 8, device="cuda"))


def test_the_greatest_of_nothing_is_an_error() -> None:
    b = Builder()
    x = b.input("x", "f32[N, 4]")
    graph = b.finish([b.op("argmax", x, axis=0)])
    with capgraph.optimize(graph, executor="graph", device="cuda", dynamic={"N": (0, 8)}) as program:
        with pytest.raises(capgraph.CapgraphError):
            program.run({"x": torch.empty(0, 4, device="cuda")})
        (found,) = program.run({"x": torch.eye(4, device="cuda")}).values()
        assert torch.as_tensor(found).flatten().tolist() == [0, 1, 2, 3]


MANY = (1 << 31) + 4096


@pytest.mark.alone
@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_more_elements_than_an_int_counts(dtype: str) -> None:
    x = torch.zeros(MANY, device="cuda", dtype=getattr(torch, dtype))
    x[-5:] = torch.arange(1, 6, device="cuda", dtype=x.dtype)
    far = torch.tensor([MANY - 1, 0, (1 << 31) + 1, MANY - 3], device="cuda")
    check(lambda x: x + 1, x)
    check(lambda x: (x.amax(0), x.sum(0, dtype=torch.float32), x[-7:].clone()), x)
    check(lambda x: x.view(-1, 4096).argmax(1)[-2:].clone(), x)
    check(lambda x, i: x[i], x, far)
    check(lambda x: x.view(-1, 4096).flip(0)[:3].clone(), x)


@pytest.mark.alone
def test_rows_of_more_elements_than_an_int_counts() -> None:
    x = torch.randn(MANY // 4096, 4096, device="cuda", dtype=torch.float16)
    check(lambda x: x.softmax(-1)[-3:].clone(), x)
    check(lambda x: torch.nn.functional.layer_norm(x, (4096,))[-3:].clone(), x)
    check(lambda x: x.sum(0, dtype=torch.float32), x * 0 + 0.5)
    check(lambda x: x.T.contiguous()[:2, -4:].clone(), x)
    halves = torch.zeros_like(x)
    halves[:, ::2] = 1  # their sums end at 2,048, so that each is a number of f16
    check(lambda x: x.cumsum(1)[-2:].clone(), halves)


# ---- dtypes


def test_a_dtype_without_a_kernel_runs_on_the_host_and_is_named() -> None:
    b = Builder()
    x, roi = b.input("x", "f8e8m0fnu[4, 4]"), b.input("roi", "f32[2]")
    crop = {"axes": (0,), "sizes": (2,), "mode": "nearest", "coordinate_mode": "tf_crop_and_resize"}
    graph = b.finish([b.op("resize", x, roi, **crop)])
    given = [np.arange(1, 17).astype(DType("f8e8m0fnu").numpy).reshape(4, 4), np.array([0, 1], np.float32)]
    (expected,) = evaluate_graph(graph, given)
    with capgraph.optimize(graph, executor="graph", device="cuda") as program:
        for _ in range(CALLS):
            (found,) = program.run(dict(zip(("x", "roi"), given, strict=True))).values()
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
        assert "no kernel fits its dtypes" in program.explain()
