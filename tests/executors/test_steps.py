"""Steps against the evaluator on drawn graphs, and what they promise beyond it: lifetimes, memory, reuse."""

import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from capgraph.executors import steps as steps_module
from capgraph.executors.steps import KEPT_SIZES, Steps
from capgraph.ir import foreign
from capgraph.ir.builder import Builder
from capgraph.ir.dims import symbol
from capgraph.ir.errors import CapgraphError, ExecutionError, ResourceError, ShapeError, UnsupportedError
from capgraph.ir.evaluate import bind_inputs, evaluate_graph
from capgraph.ir.graph import Graph, Node, Origin
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.causes import causes
from tests.counted_work import calls_in, lines_in

F32 = np.float32


def run(graph: Graph, *inputs: Any) -> tuple[Any, ...]:
    sizes: dict[str, int] = {}
    bind_inputs(graph, inputs, sizes)
    with np.errstate(all="ignore"):
        return Steps(graph).run(inputs, sizes)


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Node, list[Any]]]]:
    """Makes `probe.*` foreign ops copy their first operand (or make a zero), and lists the calls."""
    calls: list[tuple[Node, list[Any]]] = []

    def meaning(node: Node, operands: Sequence[Any]) -> Sequence[Any]:
        calls.append((node, list(operands)))
        return [np.array(operands[0] if operands else 0, F32) for _ in node.outputs]

    monkeypatch.setattr(foreign, "_meanings", {**foreign._meanings, "probe": meaning})
    yield calls
    calls.clear()


# ---- the same as the evaluator


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """A DAG of elementwise ops, reshapes, reductions and matmuls over f32[B, 4]."""
    b = Builder()
    values = [b.input("x", "f32[B, 4]"), b.input("y", "f32[B, 4]"), b.constant(np.ones((1, 4), F32))]
    for _ in range(draw(st.integers(1, 12))):
        first, second = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        kind = draw(st.sampled_from(["add", "mul", "sub", "exp", "reduce", "rows", "gram"]))
        match kind:
            case "exp":
                values.append(b.op("exp", first))
            case "reduce":
                values.append(b.op("add", b.op("reduce_sum", first, axes=[0], keep_dims=True), second))
            case "rows":
                rows = b.op("reshape", first, shape=[first.shape[0] * 2, 2])
                values.append(b.op("reshape", rows, shape=first.shape))
            case "gram":
                matmul = b.op("matmul", first, b.op("transpose", first, perm=[1, 0]))
                values.append(b.op("matmul", matmul, first))
            case _:
                values.append(b.op(kind, first, second))
    return b.finish({f"o{index}": value for index, value in enumerate(draw(st.permutations(values))[:3])})


@given(graphs(), st.integers(0, 3))
def test_the_same_as_the_evaluator(graph: Graph, rows: int) -> None:
    inputs = [np.linspace(-1, 1, rows * 4, dtype=F32).reshape(rows, 4) for _ in range(2)]
    for ours, expected in zip(run(graph, *inputs), evaluate_graph(graph, inputs), strict=True):
        assert ours.dtype == expected.dtype
        assert np.array_equal(ours, expected, equal_nan=True)


def test_sizes_that_only_running_tells() -> None:
    b = Builder()
    x = b.input("x", "f32[N]")
    places = b.op("reshape", b.op("non_zero", x), shape=[symbol("u0")])
    filled = b.op("expand", b.op("gather", x, places, axis=0), shape=[2, symbol("u0")])
    graph = b.finish({"y": filled})
    steps = Steps(graph)
    for content in ([1, 0, 2], [0, 0, 0], [3, 4, 5]):
        given_array = np.array(content, F32)
        (result,) = steps.run([given_array], {"N": 3})
        assert np.array_equal(result, np.stack([given_array[given_array != 0]] * 2))


def test_regions_run_as_steps() -> None:
    b = Builder()
    x, trips = b.input("x", "f32[N]"), b.input("trips", "i64[]")
    body = b.region("step")
    body.input("i", "i64[]")
    going = body.input("going", "bool[]")
    state, step = body.input("state", "f32[N]"), body.input("by", "f32[N]")
    after = body.op("add", state, step)
    region = body.finish([going, after, after])
    total, history = b.ops("loop", trips, None, x, x, body=region, carried=1)
    graph = b.finish({"total": total, "history": history})
    given_array = np.array([1, 2], F32)
    total_of_3, history_of_3 = run(graph, given_array, np.array(3))
    assert total_of_3.tolist() == [4, 8]
    assert history_of_3.tolist() == [[2, 4], [3, 6], [4, 8]]
    assert run(graph, given_array, np.array(0))[1].shape == (0, 2)


# ---- what is computed, and when it ends


def test_values_end_with_their_last_use(probes: list[tuple[Node, list[Any]]]) -> None:
    b = Builder()
    value = b.input("x", "f32[2]")
    for _ in range(5):
        (value,) = b.foreign("probe.copy", [value], ["f32[2]"])
    graph = b.finish({"y": value})
    alive: list[int] = []
    references: list[weakref.ref[Any]] = []

    def meaning(_node: Node, operands: Sequence[Any]) -> Sequence[Any]:
        made = operands[0].copy()
        references.append(weakref.ref(made))
        alive.append(sum(reference() is not None for reference in references))
        return [made]

    foreign._meanings["probe"] = meaning
    run(graph, np.ones(2, F32))
    assert max(alive) == 2  # the operand and the result


def test_what_nobody_reads_is_not_computed(probes: list[tuple[Node, list[Any]]]) -> None:
    b = Builder()
    x = b.input("x", "f32[2]")
    (unused,) = b.foreign("probe.unused", [x], ["f32[2]"])
    b.foreign("probe.after", [unused], ["f32[2]"])
    kept, _ = b.foreign("probe.kept", [x], ["f32[2]", "f32[2]"])
    run(b.finish({"y": kept}), np.ones(2, F32))
    assert [node.op.name for node, _ in probes] == ["probe.kept"]


def test_absent_operands_are_none(probes: list[tuple[Node, list[Any]]]) -> None:
    b = Builder()
    x = b.input("x", "f32[2]")
    (y,) = b.foreign("probe.copy", [x, None, x], ["f32[2]"])
    run(b.finish({"y": y}), np.ones(2, F32))
    assert probes[0][1][1] is None


def test_what_depends_on_nothing_is_computed_once() -> None:
    b = Builder()
    x = b.input("x", "f32[2]")
    small = b.op("arange", start=0, limit=2, step=1, dtype="f32")
    steps = Steps(b.finish({"y": b.op("add", x, small)}))
    assert len(steps) == 1
    assert steps.run([np.ones(2, F32)], {})[0].tolist() == [1, 2]


def test_large_fills_are_made_again_and_random_numbers_drawn_again() -> None:
    b = Builder()
    large = b.op("full", shape=[steps_module.KEPT_BYTES], value=b.constant(F32(2)).producer.attrs["value"])
    noise = b.op("random_normal", shape=[4], dtype="f32")
    steps = Steps(b.finish({"large": large, "noise": noise}))
    first, second = steps.run([], {}), steps.run([], {})
    assert first[0] is not second[0]
    assert not np.array_equal(first[1], second[1])


def test_bound_sizes_are_kept_for_the_latest_calls_only() -> None:
    b = Builder()
    x = b.input("x", "f32[N, 2]")
    steps = Steps(b.finish({"y": b.op("reshape", x, shape=[symbol("N") * 2])}))
    for rows in [*range(3 * KEPT_SIZES), 0]:
        assert steps.run([np.zeros((rows, 2), F32)], {"N": rows})[0].shape == (2 * rows,)
    assert len(steps._bound) == KEPT_SIZES


def test_threads_do_not_disturb_each_other() -> None:
    b = Builder()
    x = value = b.input("x", "f32[N]")
    for _ in range(50):
        value = b.op("add", b.op("mul", value, b.constant(F32(0.5))), x)
    steps = Steps(b.finish({"y": value}))
    faults: list[Any] = []

    def call(seed: int) -> None:
        generator = np.random.default_rng(seed)
        for _ in range(20):
            array = generator.standard_normal(int(generator.integers(1, 40))).astype(F32)
            (result,) = steps.run([array], {"N": array.size})
            if not np.allclose(result, 2 * array, rtol=1e-5, atol=0):
                faults.append((array, result))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_a_step_is_little_beside_its_meaning() -> None:
    def steps_of(count: int) -> Steps:
        b = Builder()
        x = value = b.input("x", "f32[B, 4]")
        for _ in range(count):
            value = b.op("add", value, x)
        return Steps(b.finish({"y": value}))

    few, many, array, meaning = steps_of(10), steps_of(110), np.ones((4, 4), F32), native("add").meaning
    for steps in (few, many):
        steps.run([array], {"B": 4})  # what each step needs is found at first
    for count, most in ((calls_in, 5), (lines_in, 12)):
        step = (count(lambda: many.run([array], {"B": 4})) - count(lambda: few.run([array], {"B": 4}))) / 100
        bare = count(lambda: [meaning(array, array) for _ in range(100)]) / 100
        assert step - bare <= most


# ---- errors


def test_a_failing_node_is_named_with_its_origin() -> None:
    graph = Graph()
    x, i = graph.add_input("x", TensorType(DType.F32, (3,))), graph.add_input("i", TensorType(DType.I64, (1,)))
    node = graph.append(native("gather"), [x, i], {"axis": 0}, origin=Origin("embed", "net.py:7"))
    graph.set_outputs([node.output])
    with pytest.raises(ExecutionError, match=r"gather.*\n.*%0 = gather\(%x, %i\) from embed \(net.py:7\)"):
        run(graph, np.zeros(3, F32), np.array([5]))


def test_a_failing_node_inside_a_region_is_named() -> None:
    b = Builder()
    cond, x, i = b.input("cond", "bool[]"), b.input("x", "f32[3]"), b.input("i", "i64[1]")
    bodies = []
    for name in ("then", "else"):
        body = b.region(name)
        data, at = body.input("data", "f32[3]"), body.input("at", "i64[1]")
        bodies.append(body.finish([body.op("gather", data, at, axis=0)]))
    (y,) = b.ops("if", cond, x, i, then_body=bodies[0], else_body=bodies[1])
    with pytest.raises(ExecutionError, match=r"gather\(%data, %at\)"):
        run(b.finish({"y": y}), np.array(True), np.zeros(3, F32), np.array([9]))


@pytest.mark.parametrize(
    ("given_results", "message"),
    [
        ([np.zeros(2, F32), np.zeros(2, F32)], "gave 2 results instead of 1"),
        ([np.zeros(3, F32)], r"declared as f32\[2\], but got shape \[3\]"),
        ([np.zeros(2)], "got float64 instead of f32"),
    ],
)
def test_a_foreign_op_is_held_to_its_types(
    monkeypatch: pytest.MonkeyPatch, given_results: list[Any], message: str
) -> None:
    monkeypatch.setattr(foreign, "_meanings", {"probe": lambda _node, _operands: given_results})
    b = Builder()
    (y,) = b.foreign("probe.bad", [b.input("x", "f32[2]")], ["f32[2]"])
    with pytest.raises(ExecutionError, match=message) as caught:
        run(b.finish({"y": y}), np.zeros(2, F32))
    assert "probe.bad(%x)" in str(caught.value)
    assert causes(caught.value) == []


def test_an_unknown_foreign_op_matters_only_when_it_runs() -> None:
    b = Builder()
    cond, x = b.input("cond", "bool[]"), b.input("x", "f32[2]")
    known, unknown = b.region("known"), b.region("unknown")
    kept = known.input("x", "f32[2]")
    asked = unknown.input("x", "f32[2]")
    (answer,) = unknown.foreign("nowhere.op", [asked], ["f32[2]"])
    bodies = {"then_body": known.finish([kept]), "else_body": unknown.finish([answer])}
    (y,) = b.ops("if", cond, x, **bodies)
    graph = b.finish({"y": y})
    assert run(graph, np.array(True), np.ones(2, F32))[0].tolist() == [1, 1]
    with pytest.raises(UnsupportedError, match=r"nowhere\.op"):
        run(graph, np.array(False), np.ones(2, F32))


def test_running_out_of_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def meaning(_node: Node, _operands: Sequence[Any]) -> Sequence[Any]:
        raise MemoryError

    monkeypatch.setattr(foreign, "_meanings", {"probe": meaning})
    b = Builder()
    (y,) = b.foreign("probe.huge", [b.input("x", "f32[2]")], ["f32[2]"])
    with pytest.raises(ResourceError, match=r"out of memory for f32\[2\]\n.*probe.huge"):
        run(b.finish({"y": y}), np.zeros(2, F32))


def test_absurd_sizes_are_refused_before_anything_runs(probes: list[tuple[Node, list[Any]]]) -> None:
    b = Builder()
    (x,) = b.foreign("probe.copy", [b.input("x", "f32[N]")], ["f32[N]"])
    grown = b.op("tile", x, repeats=[1 << 50])
    graph = b.finish({"y": b.op("exp", grown)})
    with pytest.raises(ResourceError, match=r"(?s)8.0 PiB are needed .* f32\[2251799813685248\].*tile"):
        run(graph, np.zeros(2, F32))
    assert probes == []


def test_what_lives_at_the_same_time_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    x = value = b.input("x", "f32[N]")
    for _ in range(10):
        value = b.op("exp", value)  # one after the other: two live at a time
    chain = b.finish({"y": value})
    monkeypatch.setattr(steps_module, "available_bytes", lambda: 2 * 4 * 100)
    assert run(chain, np.zeros(100, F32))[0].shape == (100,)
    b = Builder()
    x = b.input("x", "f32[N]")
    three = [b.op(name, x) for name in ("exp", "sqrt", "neg")]
    with pytest.raises(ResourceError, match=r"1.2 KiB are needed .* but 800 B are available"):
        run(b.finish(three), np.zeros(100, F32))


def test_views_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    x = b.input("x", "f32[1]")
    graph = b.finish({"y": b.op("reduce_sum", b.op("expand", x, shape=[1000]), axes=[0])})
    monkeypatch.setattr(steps_module, "available_bytes", lambda: 100)
    assert run(graph, np.ones(1, F32))[0].shape == (1,)


def test_a_machine_that_does_not_know_its_memory_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_module, "available_bytes", lambda: None)
    b = Builder()
    assert run(b.finish({"y": b.op("exp", b.input("x", "f32[2]"))}), np.zeros(2, F32))[0].tolist() == [1, 1]


def test_sizes_that_an_attribute_cannot_take_name_the_node() -> None:
    graph = Graph()
    graph.add_input("x", TensorType(DType.F32, (symbol("N"), symbol("M"))))
    made = graph.append(native("dim"), [], {"value": symbol("N") // symbol("M")})
    graph.set_outputs([made.output])
    with pytest.raises(ShapeError, match=r"(?s)division by zero.*= dim\(\)") as caught:
        run(graph, np.zeros((3, 0), F32))
    assert causes(caught.value) == []


def test_errors_are_for_users(probes: list[tuple[Node, list[Any]]]) -> None:
    def meaning(_node: Node, _operands: Sequence[Any]) -> Sequence[Any]:
        raise RuntimeError("the library failed")

    foreign._meanings["probe"] = meaning
    b = Builder()
    (y,) = b.foreign("probe.bad", [b.input("x", "f32[2]")], ["f32[2]"])
    with pytest.raises(CapgraphError, match=r"(?s)probe.bad failed: the library failed.*probe.bad\(%x\)") as caught:
        run(b.finish({"y": y}), np.zeros(2, F32))
    (cause,) = causes(caught.value)
    assert str(cause) == "the library failed"
