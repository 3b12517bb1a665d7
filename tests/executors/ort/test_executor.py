import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import capgraph
import numpy as np
import pytest
from capgraph.executors.ort.executor import OrtExecutable, OrtExecutor
from capgraph.executors.ort.session import Session
from capgraph.ir.constant import Array
from capgraph.ir.errors import CapgraphError, ExecutionError, InputError, UnsupportedError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.foreign import _meanings, register_meaning
from capgraph.ir.graph import Graph, Node
from capgraph.ir.notices import CapgraphWarning
from capgraph.ir.ops import OPS
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType
from capgraph.passes.framework.exactness import Exactness
from capgraph.passes.framework.numeric import difference
from ml_dtypes import bfloat16

from tests.api.models import affine, with_default
from tests.counted_work import calls_in
from tests.executors.ort.test_faults import COMPRESSED, RECIPROCAL
from tests.strategies.graphs import random_graph, random_inputs, subjects

F32 = np.float32
WHOLE = "one session of ONNX Runtime runs the whole graph"
COUNT = 400

LEFT_OUT = {
    "affine_grid": "another place for the only point of an aligned axis of size 1",
    "attention": "a row that may see nothing is NaN in ONNX Runtime, and 0 by what it means",
    "bernoulli": "draws other numbers",
    "dynamic_resize": "rounds numbers of 8 bits otherwise, and i32 to f32",
    "dynamic_reduce": "as `reduce_log_sum`",
    "dynamic_slice": "as `slice`",
    "dynamic_top_k": "as `top_k`",
    "grid_sample": "f64 places are rounded to f32",
    "gru": "as `rnn`",
    **{f"keyed_{name}": "ONNX draws from no state" for name in ("bernoulli", "multinomial")},
    **{f"keyed_random_{name}": "ONNX draws from no state" for name in ("normal", "uniform")},
    "loop": "results that are stacked over no iteration have other sizes",
    "lrn": "squares of f16 overflow",
    "lstm": "as `rnn`",
    "max_unpool": "says nothing of an index that comes twice",
    "multinomial": "as `bernoulli`",
    "non_max_suppression": "boxes of negative size overlap otherwise",
    "random_normal": "as `bernoulli`",
    "random_uniform": "as `bernoulli`",
    "reduce_log_sum": "of nothing, ONNX Runtime gives nothing instead of minus infinity",
    "reduce_log_sum_exp": "as `reduce_log_sum`",
    "reduce_prod": "as `reduce_log_sum`",
    "resize": "as `dynamic_resize`",
    "rnn": "for a row of length 0 ONNX Runtime gives zeros instead of the initial state",
    "slice": "with a negative step, ONNX clamps a start before the axis to its first element, NumPy to before it",
    "stft": "as `lrn`",
    "top_k": "the order is free without `sorted`",
    "varlen_attention": "as `attention`, by which it is written",
}
"""Ops that ONNX Runtime may answer otherwise, and why."""

DRAWN = [name for name in OPS if name not in LEFT_OUT]


def compiled(text: str, **options: Any) -> OrtExecutable:
    return OrtExecutor(threads=1, **options).compile(parse(text))


@pytest.fixture
def known_domain() -> Any:
    """`example.double` means what it says."""

    def double(_node: Node, operands: Sequence[Any]) -> Sequence[Any]:
        return [operands[0] * 2]

    register_meaning("example", double)
    yield
    _meanings.pop("example")


# ---- one session


def test_a_whole_graph_runs_in_one_session() -> None:
    program = capgraph.optimize(affine(), executor="ort")
    assert program.run({"x": np.ones((2, 3), F32)})["y"].tolist() == [[3, 3, 3]] * 2
    assert WHOLE in program.explain()


def test_inputs_are_checked_as_for_every_executor() -> None:
    executable = compiled("graph @main(%x: f32[B], %y: f32[B]) { %z: f32[B] = add(%x, %y) return %z }")
    with pytest.raises(InputError, match="B=2"):
        executable.run({"x": np.ones(2, F32), "y": np.ones(3, F32)})
    with pytest.raises(InputError, match="float64"):
        executable.run({"x": np.ones(2), "y": np.ones(2, F32)})


def test_defaults_may_be_left_out_or_given() -> None:
    program = capgraph.optimize(with_default(), executor="ort")
    assert program.run({"x": np.zeros(3, F32)})["y"].tolist() == [1, 2, 3]
    assert program.run({"x": np.zeros(3, F32), "w": np.ones(3, F32)})["y"].tolist() == [1, 1, 1]


def test_inputs_need_not_be_contiguous_or_writeable() -> None:
    executable = compiled("graph @main(%x: f32[2, 3]) { %y: f32[2, 3] = neg(%x) return %y }")
    x = np.arange(6, dtype=F32).reshape(3, 2).T
    x.flags.writeable = False
    assert np.array_equal(executable.run({"x": x})["y"], -x)


def test_inputs_are_handed_over_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    program = capgraph.optimize(affine(), executor="ort")
    seen: list[Any] = []
    run = Session.run
    monkeypatch.setattr(Session, "run", lambda self, values: seen.extend(values) or run(self, values))
    x = np.ones((2, 3), F32)
    program.run({"x": x})
    assert any(value is x for value in seen)


def test_a_call_is_few_calls_of_python_beside_its_session() -> None:
    graph = parse("graph @main(%x: f32[4]) { %y: f32[4] = add(%x, %x) return %y }")
    program, session, x = capgraph.optimize(graph, executor="ort"), Session(graph)._session, np.ones(4, F32)
    program.run({"x": x})
    own, bare = calls_in(lambda: program.run({"x": x})), calls_in(lambda: session.run(["y"], {"x": x}))
    assert own - bare <= 20


def test_an_operator_without_a_kernel_runs_as_its_decomposition() -> None:
    executable = compiled("graph @main(%x: f32[3]) { %y: f32[3] = silu(%x) return %y }")
    assert executable.remarks == (WHOLE,)
    x = np.array([-1, 0, 2], F32)
    np.testing.assert_allclose(executable.run({"x": x})["y"], x / (1 + np.exp(-x)), rtol=1e-6)


def test_an_operator_with_neither_is_named_and_runs_by_numpy() -> None:
    executable = compiled("graph @main(%x: u32[3]) { %y: i64[1] = argmin(%x) {axis = 0} return %y }")
    assert any("ArgMin" in line for line in executable.remarks)
    assert "1 node of 1 run eagerly" in executable.remarks[1]
    assert executable.run({"x": np.array([3, 1, 2], np.uint32)})["y"].tolist() == [1]


def test_strings_go_in_and_out() -> None:
    executable = compiled(
        "graph @main(%x: string[2, 2]) { %y: string[2, 2] = transpose(%x) {perm = [1, 0]} return %y }"
    )
    assert executable.run({"x": np.array([["a", "b"], ["ü", ""]])})["y"].tolist() == [["a", "ü"], ["b", ""]]


def test_outputs_are_the_caller_s_own() -> None:
    executable = compiled(
        """graph @main(%x: f32[2]) {
  %c: f32[2] = constant() {value = dense<f32[2]: [1.0, 2.0]>}
  %y: f32[2] = add(%x, %c)
  return %x, %y, %y as y_1, %c
}"""
    )
    x = np.array([3, 4], F32)
    outputs = list(executable.run({"x": x}).values())
    for array in outputs:
        np.add(array, 10, out=array)
    assert [array.tolist() for array in outputs] == [[13, 14], [14, 16], [14, 16], [11, 12]]
    assert x.tolist() == [3, 4]
    assert [array.tolist() for array in executable.run({"x": x}).values()] == [[3, 4], [4, 6], [4, 6], [1, 2]]


def test_a_batch_of_zero_runs() -> None:
    executable = compiled(
        """graph @main(%x: f32[B, 4]) {
  %w: f32[4, 2] = full() {shape = [4, 2], value = dense<f32[]: 1.0>}
  %y: f32[B, 2] = matmul(%x, %w)
  return %y
}"""
    )
    assert executable.run({"x": np.ones((0, 4), F32)})["y"].shape == (0, 2)


def test_a_recurrent_cell_over_nothing_keeps_its_state() -> None:
    """In ONNX Runtime it ends the process, or gives zeros."""
    graph = parse(
        """graph @main(%x: f32[T, 1, 3], %w: f32[1, 12, 3], %r: f32[1, 12, 4], %h: f32[1, 1, 4]) {
  %y: f32[T, 1, 1, 4], %last: f32[1, 1, 4] = gru(%x, %w, %r, _, _, %h)
  return %last
}"""
    )
    executable = OrtExecutor().compile(graph)
    random = np.random.default_rng(0)
    shapes = {"w": (1, 12, 3), "r": (1, 12, 4), "h": (1, 1, 4)}
    inputs = {name: random.standard_normal(shape, F32) for name, shape in shapes.items()}
    assert np.array_equal(executable.run({"x": np.ones((0, 1, 3), F32), **inputs})["last"], inputs["h"])
    given = {"x": np.ones((5, 1, 3), F32), **inputs}
    (expected,) = evaluate_graph(graph, list(given.values()))
    np.testing.assert_allclose(executable.run(given)["last"], expected, rtol=1e-4)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_integer_division_is_rounded_before_it_is_multiplied(dtype: str) -> None:
    executable = compiled(RECIPROCAL.replace("i64", dtype))
    given = {"x": np.array([1, 2, 3, 4], dtype.replace("i", "int")), "z": np.array([7, 8, 9, 12], f"int{dtype[1:]}")}
    assert executable.run(given)["y"].tolist() == [7, 0, 0, 0]
    assert executable.remarks == (WHOLE,)


def test_slices_of_nothing_are_told_apart_by_numpy() -> None:
    executable = compiled(COMPRESSED)
    assert any("unique" in line or "%y" in line for line in executable.remarks[2:])
    found = executable.run({"x": np.ones((2, 3), F32), "m": np.zeros(3, bool)})
    assert found["y"].shape == (1, 0)
    assert found["v"].tolist() == [0, 0]


def test_threads_may_run_it_at_the_same_time() -> None:
    executable = compiled(
        """graph @main(%x: i32[B], %y: i32[B]) {
  %q: i32[B] = div(%x, %y)
  %n: i32[B] = neg(%q)
  return %n
}"""
    )
    wrong: list[Any] = []

    def work(number: int) -> None:
        for size in range(1, 30):
            x = np.full(size, number * 6, np.int32)
            divisor = 0 if (size, number) == (9, 3) else 2  # where sessions fail, while the others run
            found = executable.run({"x": x, "y": np.full(size, divisor, np.int32)})["n"]
            if divisor and found.tolist() != [-number * 3] * size:
                wrong.append(found)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert wrong == []


def test_what_is_closed_does_not_run() -> None:
    executable = compiled("graph @main(%x: f32[2]) { return %x }")
    executable.close()
    executable.close()
    with pytest.raises(ExecutionError, match="closed"):
        executable.run({"x": np.ones(2, F32)})
    assert executable.remarks == ("the program is closed",)


# ---- segments


def test_a_foreign_node_runs_between_sessions(known_domain: None) -> None:
    text = """graph @main(%x: f32[B]) {
  %a: f32[B] = neg(%x)
  %b: f32[B] = example.double(%a)
  %c: f32[B] = abs(%b)
  return %c, %b
}"""
    executable = compiled(text)
    assert executable.run({"x": np.ones(2, F32)})["c"].tolist() == [2, 2]
    head, count, *reasons = executable.remarks
    assert "does not run the graph as a whole" in head
    assert count == "2 sessions and 1 eager segment; 1 node of 3 run eagerly:"
    assert len(reasons) == 1
    assert "%b = example.double(%a)" in reasons[0]
    assert executable.coverage() == (2, 1)
    with pytest.raises(UnsupportedError, match="whole graph"):
        compiled(text, strict=True)


def test_outputs_of_eager_segments_are_the_caller_s_own() -> None:
    executable = compiled(
        """graph @main(%x: bf16[2, 2]) {
  %w: bf16[2] = constant() {value = dense<bf16[2]: [1.0, 2.0]>}
  %y: bf16[4] = reshape(%x) {shape = [4]}
  return %y, %y as y_1, %x, %w
}"""
    )
    x = np.ones((2, 2)).astype(bfloat16)
    outputs = executable.run({"x": x})
    for array in outputs.values():
        array[...] = 7
    assert x.astype(F32).tolist() == [[1, 1], [1, 1]]
    again = executable.run({"x": x})
    assert again["y"].astype(F32).tolist() == [1, 1, 1, 1]
    assert again["w"].astype(F32).tolist() == [1, 2]


def test_a_node_that_fails_at_run_time_runs_eagerly_from_then_on() -> None:
    text = """graph @main(%x: i16[2], %y: i16[2]) {
  %a: i16[2] = neg(%x)
  %q: i16[2] = div(%a, %y)
  %b: i16[2] = neg(%q)
  return %b
}"""
    executable, inputs = compiled(text), {"x": np.array([6, 7], np.int16), "y": np.array([2, 0], np.int16)}
    assert executable.remarks == (WHOLE,)
    expected = evaluate_graph(parse(text), list(inputs.values()))[0]
    assert np.array_equal(executable.run(inputs)["b"], expected)
    assert executable.remarks[1].startswith("2 sessions and 1 eager segment; 1 node of 3")
    assert "division by zero" in executable.remarks[2]
    assert np.array_equal(executable.run(inputs)["b"], expected)
    with pytest.raises(ExecutionError, match="division by zero"):
        compiled(text, strict=True).run(inputs)


def test_calls_without_elements_are_counted_and_named_and_refused_under_strict() -> None:
    text = "graph @main(%x: f32[B, 3]) { %y: f32[3] = reduce_sum(%x) {axes = [0], keep_dims = false} return %y }"
    executable = compiled(text)
    with pytest.warns(CapgraphWarning, match="NumPy runs calls without elements") as told:
        given = [executable.run({"x": np.ones((rows, 3), F32)})["y"].tolist() for rows in (2, 0, 0)]
    assert given == [[2] * 3, [0] * 3, [0] * 3]
    assert len(told) == 1
    assert executable.coverage() == (1, 0)
    whole, calls = executable.remarks
    assert whole == WHOLE
    assert calls.startswith("2 calls by NumPy")
    assert "%y = reduce_sum(%x)" in calls
    strict = compiled(text, strict=True)
    assert strict.run({"x": np.ones((2, 3), F32)})["y"].tolist() == [2, 2, 2]
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="without elements") as caught:
            strict.run({"x": np.ones((0, 3), F32)})
        assert "reduce_sum" in (caught.value.where or "")


def test_what_numpy_cannot_do_either_is_the_inputs_fault() -> None:
    executable = compiled("graph @main(%x: f32[3], %i: i64[2]) { %y: f32[2] = gather(%x, %i) {axis = 0} return %y }")
    with pytest.raises(ExecutionError, match=r"out of range|out of bounds") as caught:
        executable.run({"x": np.ones(3, F32), "i": np.array([0, 7])})
    assert "gather" in (caught.value.where or "")
    assert executable.remarks == (WHOLE,)


# ---- any graph


def mild(array: Array) -> Array:
    """Without NaN and infinities, and small: ONNX Runtime sums integers in f64, and transforms in more than one way."""
    if not DType.of(array.dtype).is_float:
        return np.clip(array, -1000, 1000) if array.dtype.kind in "iu" and array.dtype.itemsize > 1 else array
    with np.errstate(all="ignore"):
        return np.clip(np.nan_to_num(array.astype(F32)), -4, 4).astype(array.dtype)


def rounded(result: Any) -> Any:
    """ONNX holds numbers in attributes in f32, so that f64 is no more exact than that."""
    coarse = {"float64": np.float32, "complex128": np.complex64}
    wanted = coarse.get(str(getattr(result, "dtype", "")))
    with np.errstate(all="ignore"):
        return result if wanted is None else result.astype(wanted)


def require_meaning(graph: Graph, seed: int) -> OrtExecutable | None:
    """Runs a graph in ONNX Runtime and in the evaluator; None for data that an op cannot take."""
    sizes, arrays = random_inputs(graph, seed)
    arrays = [mild(array) for array in arrays]
    try:
        expected = evaluate_graph(graph, arrays, sizes)
    except CapgraphError:
        return None
    executable = OrtExecutor(threads=1).compile(graph)
    given = executable.run(dict(zip([value.name for value in graph.inputs], arrays, strict=True)))
    for name, old, new in zip(graph.output_names, expected, given.values(), strict=True):
        assert difference(rounded(old), rounded(new), Exactness.ROUNDING, terms=1 << 12) == "", (seed, name)
    return executable


def test_random_graphs_give_what_they_mean() -> None:
    every = list(subjects(DRAWN))
    seen: Counter[str] = Counter()
    for seed in range(COUNT):
        graph = random_graph(seed, ops=DRAWN, subject=every[seed * 997 % len(every)], max_nodes=3)
        executable = require_meaning(graph, seed)
        if executable is not None:
            seen["whole" if executable.remarks == (WHOLE,) else "segments"] += 1
    assert min(seen.values()) > COUNT * 0.15
    assert seen.total() > COUNT * 0.7


def test_long_random_graphs_give_what_they_mean() -> None:
    found = [require_meaning(random_graph(seed, ops=DRAWN), seed) for seed in range(COUNT // 5)]
    assert sum(each is not None for each in found) > COUNT // 10
