"""Long sums in the executor "ort" are held to the same sums in f64: what ONNX Runtime adds one by one is NumPy's."""

from functools import cache

import capgraph
import numpy as np
import pytest
from capgraph.executors.ort.executor import WHOLE
from capgraph.executors.ort.wrong_numbers import LONG, LONG_OF_SQUARES, long_sum, sums_to_watch
from capgraph.ir.constant import Array
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph
from capgraph.ir.text.parser import parse

EXACT = {"f16": 2e-3, "f32": 1e-6}
REDUCED = "{axes = [0]}"
CALLS = {
    "f32[1, 2]": [f"reduce_{kind}(%x) {REDUCED}" for kind in ("l1", "l2", "log_sum", "mean", "sum", "sum_square")],
    "f32[1, 1]": ["reduce_log_sum_exp(%x) {axes = [0, 1]}"],
    "f32[N, 2]": [
        *("cumsum(%x) {axis = 0}", "softmax(%x) {axis = 0}", "log_softmax(%x) {axis = 0}", "lp_norm(%x) {axis = 0}"),
        *("layer_norm(%x, _, _) {axis = 0}", "rms_norm(%x, _) {axis = 0}"),
    ],
    "f32[1, 1, N, 2]": ["instance_norm(%c, %w, %w)", "group_norm(%c, %w, %w) {groups = 1}"],
}


def sums(dtype: str = "f32", length: int | str = "N") -> Graph:
    """Each of `CALLS` over `length` rows, which lie two columns wide."""
    calls = [(result, call) for result, of_type in CALLS.items() for call in of_type]
    lines = "".join(f"%y{index}: {result} = {call}\n" for index, (result, call) in enumerate(calls))
    results = ", ".join(f"%y{index}" for index in range(len(calls)))
    text = f"graph @main(%x: f32[N, 2], %c: f32[1, 1, N, 2], %w: f32[1]) {{\n{lines}return {results}\n}}"
    return parse(text.replace("f32", dtype).replace("N", str(length)))


@cache
def drawn(dtype: str) -> tuple[dict[str, Array], tuple[Array, ...]]:
    """Operands, and what comes of them in f64."""
    x = (np.random.default_rng(0).random((LONG, 2)) / 16).astype(f"f{int(dtype[1:]) // 8}")
    operands = {"x": x, "c": x.reshape(1, 1, LONG, 2), "w": np.ones(1, x.dtype)}
    return operands, evaluate_graph(sums("f64"), [each.astype(np.float64) for each in operands.values()])


@pytest.mark.parametrize(
    ("dtype", "length", "executor"),
    [("f32", "N", "ort"), ("f32", LONG, "ort"), ("f32", "N", "eager"), ("f32", LONG, "graph"), ("f16", "N", "ort")],
)
def test_long_sums_keep_their_digits(dtype: str, length: int | str, executor: str) -> None:
    operands, expected = drawn(dtype)
    program = capgraph.optimize(sums(dtype, length), executor=executor, device="host")
    for wanted, (name, result) in zip(expected, program.run(operands).items(), strict=True):
        least = EXACT[dtype] * np.abs(wanted).max() + np.finfo(result.dtype).smallest_subnormal
        np.testing.assert_allclose(result, wanted, rtol=EXACT[dtype], atol=least, err_msg=name)


def summing(call: str, dtype: str, length: int | str) -> Graph:
    return parse(f"graph @main(%x: {dtype}[{length}, 2]) {{ %y: {dtype}[1, 2] = {call} {REDUCED} return %y }}")


@pytest.mark.parametrize(("call", "least"), [("reduce_mean(%x)", LONG), ("reduce_l2(%x)", LONG_OF_SQUARES)])
def test_sums_are_long_from_a_length_on(call: str, least: int) -> None:
    def fault(length: int, dtype: str = "f32") -> str:
        return long_sum(next(iter(summing(call, dtype, length).nodes)))

    assert "one after another" in fault(least)
    assert not fault(least - 1)
    assert not fault(least, "f64")


def test_the_first_long_call_takes_a_sum_out_of_the_session() -> None:
    program = capgraph.optimize(summing("reduce_l2(%x)", "f32", "N"), executor="ort")
    short, long = np.ones((4, 2), np.float32), np.ones((LONG_OF_SQUARES, 2), np.float32)
    assert program.run({"x": short})["y"].tolist() == [[2, 2]]
    assert WHOLE in program.explain()
    with pytest.warns(UserWarning, match="one after another"):
        assert program.run({"x": long})["y"].tolist() == [[256, 256]]
    assert "one after another" in program.explain()
    assert program.run({"x": short})["y"].tolist() == [[2, 2]]


def test_a_strict_program_refuses_a_long_call() -> None:
    program = capgraph.optimize(summing("reduce_l2(%x)", "f32", "N"), executor="ort", strict=True)
    with pytest.raises(UnsupportedError, match="one after another"):
        program.run({"x": np.ones((LONG_OF_SQUARES, 2), np.float32)})


def test_sums_over_what_only_running_tells_are_out_of_sessions() -> None:
    graph = parse(
        """graph @main(%x: f32[N]) {
  %i: i64[1, u0] = non_zero(%x)
  %f: f32[1, u0] = cast(%i) {to = f32}
  %y: f32[1, 1] = reduce_sum(%f) {axes = [1]}
  %z: f32[1] = reduce_sum(%x) {axes = [0]}
  return %y, %z
}"""
    )
    told = list(graph.nodes)[-1]
    assert [bool(long_sum(node)) for node in graph.nodes] == [False, False, True, False]
    assert list(sums_to_watch(graph)) == [told]
