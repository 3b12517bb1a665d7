from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.executors.ort.faults import known_fault
from capgraph.executors.ort.integers import inexact
from capgraph.ir.builder import Builder
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

DTYPES = ("i32", "u32", "i64", "u64")

PAIRS = ("add", "sub", "mul", "div", "mod", "fmod", "pow", "min", "max", "less", "bitwise_and")
ALONE = ("abs", "sign", "neg", "cumsum", "cumprod", "clip", "matmul", "einsum", "reduce_max", "reduce_sum")
ALONE += ("reduce_prod", "reduce_mean", "reduce_l1", "reduce_l2", "reduce_sum_square", "reduce_log_sum", "argmax")

INEXACT = {
    "einsum": ("i32", "i64"),
    "fmod": ("i64", "u64"),
    "pow": ("i32", "i64"),
    "reduce_l1": ("i32", "i64"),
    "reduce_l2": ("i32", "i64"),
    "reduce_log_sum": ("i32", "i64"),
    "reduce_mean": ("i32", "i64"),
    "reduce_prod": ("i32", "i64"),
    "reduce_sum": ("i32", "i64"),
    "reduce_sum_square": ("i32", "i64"),
    "sign": ("i64",),
}
"""By op, the dtypes of which ONNX Runtime's CPU does not compute every number exactly."""

ATTRS: dict[str, dict[str, Any]] = {
    "argmax": {"axis": 1},
    "cumprod": {"axis": 1},
    "cumsum": {"axis": 1},
    "einsum": {"equation": "ij->i"},
}


def limits(dtype: str) -> Any:
    info = np.iinfo(np.dtype({"i": "int", "u": "uint"}[dtype[0]] + dtype[1:]))
    numbers = [0, 1, 2, 3, 7, 65537, (1 << 24) + 1, info.max, info.max - 1, info.max // 2 + 1, info.min, info.min + 1]
    numbers += [-1, -2, -7] if info.min else []
    numbers += [(1 << 53) + 1, 3037000501] if info.bits == 64 else []
    return np.array(numbers, info.dtype)


def built(op: str, dtype: str) -> tuple[Graph, dict[str, Any]]:
    numbers = limits(dtype)
    b = Builder()
    if op in PAIRS:
        x, y = (each.ravel() for each in np.meshgrid(numbers, numbers))
        kept = np.ones(x.shape, bool)
        if op in ("div", "mod", "fmod"):
            kept = (y != 0) & ~((x == numbers.min()) & (y == np.array(-1).astype(y.dtype)))
        if op == "pow":
            kept = (y >= 0) & (y < 64)
        feeds = {"x": x[kept], "y": y[kept]}
        if op in ("div", "mod"):  # those that the processor does not trap
            feeds["y"] = np.full_like(feeds["x"], 3)
            divisor = b.constant(feeds.pop("y"))
            return b.finish({"z": b.op(op, b.input("x", f"{dtype}[{kept.sum()}]"), divisor)}), feeds
        operands = [b.input(name, f"{dtype}[{kept.sum()}]") for name in feeds]
        return b.finish({"z": b.op(op, *operands)}), feeds
    rows = np.stack([np.roll(numbers, at) for at in range(4)])
    rows[1:, ::2] = 3
    x = b.input("x", f"{dtype}[4, {rows.shape[1]}]")
    operands = {"matmul": (x, b.op("transpose", x, perm=[1, 0])), "clip": (x, *_bounds(b, rows.dtype))}.get(op, (x,))
    attrs = {"axes": [1]} if op.startswith("reduce_") else ATTRS.get(op, {})
    return b.finish({"z": b.op(op, *operands, **attrs)}), {"x": rows}


def _bounds(b: Builder, dtype: Any) -> tuple[Any, Any]:
    return b.constant(np.array(0, dtype)), b.constant(np.array(100, dtype))


def has(op: str, dtype: str) -> bool:
    return not (op == "pow" and dtype[0] == "u") and not (op == "neg" and dtype[0] == "u")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", PAIRS + ALONE)
def test_at_the_limits(op: str, dtype: str) -> None:
    if not has(op, dtype):
        return
    graph, feeds = built(op, dtype)
    fault = inexact(list(graph.nodes)[-1])
    assert bool(fault) is (dtype in INEXACT.get(op, ()))
    found, expected = (
        capgraph.optimize(graph, level=0, executor=executor).run(feeds)["z"] for executor in ("ort", "eager")
    )
    np.testing.assert_array_equal(found, expected)


def last(text: str) -> Any:
    return list(parse(text).nodes)[-1]


def test_what_a_user_saw() -> None:
    graph = parse("graph @main(%x: i64[3]) { %y: i64[1] = reduce_sum(%x) {axes = [0]} return %y }")
    for level in (0, 2):
        found = capgraph.optimize(graph, executor="ort", level=level).run({"x": np.array([1 << 53, 1, 1])})["y"]
        assert found.tolist() == [(1 << 53) + 2]


@pytest.mark.parametrize("exponent", [2, 3])
@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_squares_and_cubes_are_multiplied(dtype: str, exponent: int) -> None:
    b = Builder()
    numbers = limits(dtype)
    y = b.op("pow", b.input("x", f"{dtype}[{numbers.size}]"), b.constant(np.array(exponent, numbers.dtype)))
    graph = b.finish({"y": y})
    assert inexact(list(graph.nodes)[-1]) == ""
    found = capgraph.optimize(graph, level=0, executor="ort").run({"x": numbers})["y"]
    np.testing.assert_array_equal(found, numbers**exponent)


SMALL = (
    "graph @main(%x: bool[N, M]) { %i: i64[N, M] = cast(%x) {to = i64} "
    "%y: i64[N, 1] = reduce_sum(%i) {axes = [1]} return %y }",
    "graph @main(%x: u8[N, 9]) { %i: i32[N, 9] = cast(%x) {to = i32} "
    "%y: i32[N, 1] = reduce_sum(%i) {axes = [1]} return %y }",
    "graph @main(%x: u8[4]) { %i: i64[4] = cast(%x) {to = i64} %k: i64[] = constant() {value = dense<i64[]: 5>} "
    "%y: i64[4] = pow(%i, %k) return %y }",
    "graph @main(%x: i32[4]) { %i: i64[4] = cast(%x) {to = i64} %k: i64[] = constant() {value = dense<i64[]: 5>} "
    "%y: i64[4] = fmod(%i, %k) return %y }",
    "graph @main(%x: i8[4]) { %i: i64[4] = cast(%x) {to = i64} %n: i64[4] = neg(%i) %a: i64[4] = sub(%n, %i) "
    "%y: i64[4] = max(%a, %i) return %y }",
    "graph @main(%x: f32[4]) { %i: i64[4] = arange() {limit = 4} %k: i64[] = constant() {value = dense<i64[]: 5>} "
    "%y: i64[4] = min(%i, %k) return %y }",
)
LARGE = (
    "graph @main(%x: bool[N]) { %i: i32[N] = cast(%x) {to = i32} %y: i32[1] = reduce_sum(%i) {axes = [0]} return %y }",
    "graph @main(%x: i64[4]) { %i: i32[4] = cast(%x) {to = i32} %y: i32[1] = reduce_sum(%i) {axes = [0]} return %y }",
    "graph @main(%x: i64[4]) { %m: i64[4] = mul(%x, %x) %y: i64[4] = sign(%m) return %y }",
)


@pytest.mark.parametrize("text", SMALL)
def test_small_numbers_stay_in_the_session(text: str) -> None:
    assert inexact(last(text)) == ""


@pytest.mark.parametrize("text", LARGE)
def test_large_numbers_do_not(text: str) -> None:
    assert "ONNX Runtime" in known_fault(last(text))


def test_choices_between_large_numbers_stay_in_one_session() -> None:
    graph = parse(
        "graph @main(%x: i64[4], %k: i64[]) {"
        "  %a: i64[4] = min(%x, %k) %b: i64[4] = max(%a, %x, %a) %y: i64[4] = clip(%b, %k, %k) return %a, %b, %y }"
    )
    program = capgraph.optimize(graph, executor="ort", strict=True, level=0)
    x, k = np.array([5, (1 << 40) + 5, -(1 << 40) - 7, 3]), np.array(1 << 40)
    a, b, y = program.run({"x": x, "k": k}).values()
    assert a.tolist() == np.minimum(x, k).tolist()
    assert b.tolist() == np.maximum(np.minimum(x, k), x).tolist()
    assert y.tolist() == [1 << 40] * 4
