"""Control flow: meanings against plain Python, type rules against what a run gives, symbols of bodies bound anew."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim, evaluate, symbol, symbols
from capgraph.ir.errors import CapgraphError, ExecutionError, ShapeError, TypeRuleError
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, SymbolTable, Value
from capgraph.ir.op import FRESH, I64, Op, Trait, op
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

B, L, M, N, T = (symbol(name) for name in "BLMNT")
F32 = DType.F32
SCALAR_I64, SCALAR_BOOL = TensorType(DType.I64, ()), TensorType(DType.BOOL, ())


def f32(*dims: Dim) -> TensorType:
    return TensorType(F32, dims)


ADD, MUL = native("add"), native("mul")


# Stand-ins for ops of other families, so that a fault there does not show here.
def _grow_type(x: TensorType, y: TensorType) -> TensorType:
    return f32(x.dims[0] + y.dims[0])


JOIN: Op = op(
    "test_join", "x: T, y: T", T=frozenset({F32}), infer=_grow_type, meaning=lambda x, y: np.concatenate([x, y])
)
POSITIVE: Op = op(
    "test_positive",
    "x: T",
    T=frozenset({F32}),
    infer=lambda x: f32(FRESH),
    meaning=lambda x: x[x > 0],
    traits=Trait.DATA_DEPENDENT,
)

IS_BELOW_TWO: Op = op(
    "test_is_below_two", "i: T", T=I64, infer=lambda i: TensorType(DType.BOOL, i.shape), meaning=lambda i: i < 2
)


def body_of(outer: Graph | None, inputs: list[TensorType], build: Any, name: str = "body") -> Graph:
    """A region with `inputs`; `build(graph, *values)` gives its outputs."""
    graph = Graph(name, symbols=outer.symbols if outer is not None else SymbolTable())
    values = [graph.add_input(f"{name}_{index}", ty) for index, ty in enumerate(inputs)]
    graph.set_outputs(build(graph, *values))
    return graph


def emit(graph: Graph, op: Op, *inputs: Value | None, **attrs: Any) -> Value:
    return graph.append(op, inputs, attrs).output


def constant(graph: Graph, content: Any, dtype: DType) -> Value:
    return emit(graph, native("constant"), value=Constant(np.asarray(content), dtype))


def runs_as_typed(graph: Graph, *inputs: Any) -> tuple[Any, ...]:
    """The outputs; the evaluator has checked each against its declared type."""
    return evaluate_graph(graph, [np.asarray(x) for x in inputs])


# ---- if


def choice(
    then_build: Any, else_build: Any, captured: list[TensorType], inside: list[TensorType] | None = None
) -> Graph:
    graph = Graph()
    cond = graph.add_input("cond", SCALAR_BOOL)
    values = [graph.add_input(f"x{index}", ty) for index, ty in enumerate(captured)]
    then_body = body_of(graph, inside or captured, then_build, "yes")
    else_body = body_of(graph, inside or captured, else_build, "no")
    node = graph.append(native("if"), [cond, *values], {"then_body": then_body, "else_body": else_body})
    graph.set_outputs(node.outputs)
    return graph


def test_if_runs_one_body_on_the_captured_values():
    graph = choice(
        lambda g, x, y: [emit(g, ADD, x, y), x], lambda g, x, y: [emit(g, MUL, x, y), y], [f32(N, 2), f32(N, 2)]
    )
    assert [value.type for value in graph.outputs] == [f32(N, 2), f32(N, 2)]
    x, y = np.full((3, 2), 2, np.float32), np.full((3, 2), 5, np.float32)
    assert np.array_equal(runs_as_typed(graph, True, x, y), [x + y, x])
    assert np.array_equal(runs_as_typed(graph, False, x, y), [x * y, y])


def test_if_gives_a_fresh_size_where_the_bodies_differ():
    graph = choice(lambda g, x, y: [emit(g, JOIN, x, y)], lambda g, x, y: [x], [f32(N), f32(N)])
    (dim,) = graph.outputs[0].shape
    assert symbols(dim) == {"u0"}
    assert runs_as_typed(graph, True, np.ones(2, np.float32), np.ones(2, np.float32))[0].shape == (4,)
    assert runs_as_typed(graph, False, np.ones(2, np.float32), np.ones(2, np.float32))[0].shape == (2,)


def test_if_does_not_let_a_data_dependent_size_of_a_body_out():
    graph = choice(lambda g, x: [emit(g, POSITIVE, x)], lambda g, x: [emit(g, POSITIVE, x)], [f32(N)])
    inner = {name for region in graph.last.regions.values() for name in symbols(region.outputs[0].shape[0])}
    assert not inner & symbols(graph.outputs[0].shape[0])
    assert runs_as_typed(graph, True, np.array([1, -1, 2], np.float32))[0].tolist() == [1, 2]


def test_a_symbol_of_the_bodys_own_is_bound_to_the_operands_size():
    graph = choice(lambda g, x: [x], lambda g, x: [emit(g, ADD, x, x)], [f32(N, 3)], inside=[f32(L, 3)])
    assert graph.outputs[0].type == f32(N, 3)


def test_a_symbol_that_only_an_attribute_in_both_bodies_mentions_is_kept():
    def build(g: Graph) -> list[Value]:
        return [emit(g, native("full"), shape=(B, 2), value=Constant(np.zeros((), np.float32)))]

    assert choice(build, build, []).outputs[0].type == f32(B, 2)


@pytest.mark.parametrize(
    ("then_build", "else_build", "message"),
    [
        (lambda g, x: [x, x], lambda g, x: [x], "then_body gives 2 results, else_body 1"),
        (lambda g, x: [x], lambda g, x: [constant(g, 1, DType.I64)], "result 0 is f32"),
        (lambda g, x: [x], lambda g, x: [constant(g, 1, DType.F32)], "result 0 is f32"),
    ],
)
def test_if_refuses_bodies_that_do_not_agree(then_build, else_build, message):
    with pytest.raises(TypeRuleError, match=message):
        choice(then_build, else_build, [f32(N)])


def test_a_body_refuses_an_operand_that_its_input_does_not_admit():
    with pytest.raises(TypeRuleError, match=r"input %yes_0 of then_body is i64\[N\], but gets f32\[N\]"):
        choice(lambda g, x: [x], lambda g, x: [x], [f32(N)], inside=[TensorType(DType.I64, (N,))])
    with pytest.raises(ShapeError, match="input %yes_0 of then_body"):
        choice(lambda g, x: [x], lambda g, x: [x], [f32(4)], inside=[f32(3)])
    with pytest.raises(TypeRuleError, match="then_body takes 2 inputs, but is given 1"):
        choice(lambda g, *x: [x[0]], lambda g, *x: [x[0]], [f32(4)], inside=[f32(4), f32(4)])


# ---- loop


def looped(
    values: list[TensorType], build: Any, carried: int, inside: list[TensorType] | None = None, *, has_cond: bool = True
) -> Graph:
    graph = Graph()
    trip = graph.add_input("trip", SCALAR_I64)
    cond = graph.add_input("cond", SCALAR_BOOL) if has_cond else None
    operands = [graph.add_input(f"x{index}", ty) for index, ty in enumerate(values)]
    body = body_of(graph, [SCALAR_I64, SCALAR_BOOL, *(inside or values)], build)
    node = graph.append(native("loop"), [trip, cond, *operands], {"body": body, "carried": carried})
    graph.set_outputs(node.outputs)
    return graph


def test_loop_carries_captures_and_gathers():
    graph = looped([f32(N), f32(N)], lambda g, i, c, x, y: [c, s := emit(g, ADD, x, y), s, i], carried=1)
    x, y = np.zeros(2, np.float32), np.array([1, 2], np.float32)
    last, each, steps = runs_as_typed(graph, 3, True, x, y)
    assert graph.outputs[0].type == f32(N)
    assert graph.outputs[1].shape[1:] == (N,)
    assert np.array_equal(last, 3 * y)
    assert np.array_equal(each, [y, 2 * y, 3 * y])
    assert steps.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("trip", "cond"), [(0, True), (-2, True), (5, False)])
def test_a_loop_that_never_runs_gives_its_initial_values_and_empty_stacks(trip, cond):
    graph = looped([f32(N, 2), f32(N)], lambda g, i, c, x, y: [c, x, y, i], carried=1)
    x = np.ones((3, 2), np.float32)
    last, rows, steps = runs_as_typed(graph, trip, cond, x, np.ones(3, np.float32))
    assert np.array_equal(last, x)
    assert rows.shape == (0, 3)
    assert rows.dtype == np.float32
    assert steps.shape == (0,)
    assert steps.dtype == np.int64


def test_loop_ends_when_the_body_says_so():
    def build(g: Graph, i: Value, c: Value, x: Value) -> list[Value]:
        return [emit(g, IS_BELOW_TWO, i), emit(g, ADD, x, x)]

    graph = looped([f32()], build, carried=1)
    assert runs_as_typed(graph, 10, True, np.float32(1))[0] == 8
    without = looped([f32()], build, carried=1, has_cond=False)
    assert runs_as_typed(without, 5, np.float32(1))[0] == 32  # without a condition the body's is ignored


def test_a_carried_size_that_grows_has_a_symbol_of_its_own():
    graph = looped([f32(N), f32(M)], lambda g, i, c, x, y: [c, emit(g, JOIN, x, y)], carried=1, inside=[f32(L), f32(M)])
    assert not symbols(graph.outputs[0].shape[0]) & {"N", "M", "L"}
    (grown,) = runs_as_typed(graph, 3, True, np.ones(2, np.float32), np.zeros(4, np.float32))
    assert grown.shape == (14,)


def test_a_carried_size_that_no_iteration_changes_is_known_outside():
    graph = looped([f32(N), f32(7)], lambda g, i, c, x, y: [c, x, y], carried=2, inside=[f32(L), f32(M)])
    assert [value.type for value in graph.outputs] == [f32(N), f32(7)]


def test_a_size_that_follows_from_a_changing_one_is_fresh_too():
    def swap_and_grow(g: Graph, i: Value, c: Value, x: Value, y: Value) -> list[Value]:
        return [c, emit(g, JOIN, x, x), x]

    graph = looped([f32(N), f32(N)], swap_and_grow, carried=2, inside=[f32(L), f32(M)])
    assert all(dim.symbols.isdisjoint({"N", "M", "L"}) for value in graph.outputs for dim in value.shape)
    x, y = runs_as_typed(graph, 2, True, np.ones(3, np.float32), np.ones(3, np.float32))
    assert (x.shape, y.shape) == ((12,), (6,))


def test_loop_refuses_a_carried_size_that_cannot_stay():
    with pytest.raises(ShapeError, match=r"an iteration gives f32\[2\*N \+ 1\]") as caught:
        looped([f32(N)], lambda g, i, c, x: [c, emit(g, JOIN, x, emit(g, JOIN, x, one(g)))], carried=1)
    assert "symbol of its own" in str(caught.value)


def one(g: Graph) -> Value:
    return constant(g, [1], DType.F32)


@pytest.mark.parametrize(
    ("inside", "build", "carried", "message"),
    [
        ([f32(N), f32(N)], lambda g, i, c, x, y: [c, x], 1, "4 inputs, but the operands call for 3"),
        ([f32(N)], lambda g, i, c, x: [i, x], 1, r"first result is the condition, bool\[\], not i64"),
        ([f32(N)], lambda g, i, c, x: [c], 1, "at least 2 results"),
        ([f32(N)], lambda g, i, c, x: [c, i], 1, r"is f32\[N\], but gets i64\[\]"),
        ([f32(N)], lambda g, i, c, x: [c, x], 2, "loop carries 2 values, but is given 1"),
    ],
)
def test_loop_checks_the_signature_of_its_body(inside, build, carried, message):
    with pytest.raises(TypeRuleError, match=message):
        looped([f32(N)], build, carried, inside)


def test_a_loop_without_trip_and_condition_is_refused():
    graph = Graph()
    body = body_of(graph, [SCALAR_I64, SCALAR_BOOL], lambda g, i, c: [c])
    with pytest.raises(TypeRuleError, match="neither a trip count nor a condition"):
        graph.append(native("loop"), [None, None], {"body": body, "carried": 0})


def test_scanned_values_of_different_shapes_are_an_error_that_names_the_loop():
    graph = looped([f32(2)], lambda g, i, c, x: [c, emit(g, JOIN, x, x), x], carried=1, inside=[f32(L)])
    with pytest.raises(ExecutionError, match="different shapes") as caught:
        runs_as_typed(graph, 2, True, np.ones(2, np.float32))
    assert "loop" in str(caught.value)


def test_control_flow_nests_and_inner_bodies_see_the_sizes_of_the_iteration():
    def inner(g: Graph, i: Value, c: Value, x: Value) -> list[Value]:
        then_body = body_of(g, [f32(L)], lambda h, v: [emit(h, JOIN, v, v)], "yes")
        else_body = body_of(g, [f32(L)], lambda h, v: [v], "no")
        attrs = {"then_body": then_body, "else_body": else_body}
        return [c, g.append(native("if"), [c, x], attrs).output]

    graph = looped([f32(N)], inner, carried=1, inside=[f32(L)])
    assert runs_as_typed(graph, 3, True, np.ones(2, np.float32))[0].shape == (16,)


# ---- scan


def scanned(values: list[TensorType], inside: list[TensorType], build: Any, **attrs: Any) -> Graph:
    graph = Graph()
    operands = [graph.add_input(f"x{index}", ty) for index, ty in enumerate(values)]
    body = body_of(graph, inside, build)
    graph.set_outputs(graph.append(native("scan"), operands, {"body": body, **attrs}).outputs)
    return graph


def accumulate(g: Graph, state: Value, row: Value) -> list[Value]:
    total = emit(g, ADD, state, row)
    return [total, total]


@given(st.integers(0, 4), st.integers(0, 3), st.integers(-2, 1), st.integers(-2, 1), st.booleans(), st.booleans())
def test_scan_runs_along_any_axis_in_either_direction(length, width, axis_in, axis_out, backwards_in, backwards_out):
    shape = (T, N) if axis_in in {0, -2} else (N, T)
    graph = scanned(
        [f32(N), f32(*shape)],
        [f32(N), f32(N)],
        accumulate,
        states=1,
        scan_inputs=1,
        input_axes=[axis_in],
        output_axes=[axis_out],
        input_reverse=[int(backwards_in)],
        output_reverse=[int(backwards_out)],
    )
    start = np.arange(width, dtype=np.float32)
    x = np.arange(length * width, dtype=np.float32).reshape(length, width)
    given_x = x if axis_in in {0, -2} else x.T
    rows = x[::-1] if backwards_in else x
    sums = start + np.cumsum(rows, axis=0)
    stacked = sums[::-1] if backwards_out else sums
    last, each = runs_as_typed(graph, start, given_x)
    assert graph.outputs[1].type == (f32(T, N) if axis_out in {0, -2} else f32(N, T))
    assert np.array_equal(last, sums[-1] if length else start)
    assert np.array_equal(each, stacked if axis_out in {0, -2} else stacked.T)


def test_scan_slices_rank_one_inputs_and_passes_captured_values():
    graph = scanned(
        [f32(T), f32(T), f32(N)],
        [f32(), f32(), f32(N)],
        lambda g, a, b, c: [emit(g, MUL, emit(g, ADD, a, b), c)],
        states=0,
        scan_inputs=2,
    )
    assert graph.outputs[0].type == f32(T, N)
    a, b, c = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32), np.array([1, 10], np.float32)
    assert np.array_equal(runs_as_typed(graph, a, b, c)[0], np.outer(a + b, c))


def test_a_state_of_scan_may_change_its_size():
    graph = scanned(
        [f32(N), f32(T, M)], [f32(L), f32(M)], lambda g, s, x: [emit(g, JOIN, s, x)], states=1, scan_inputs=1
    )
    assert runs_as_typed(graph, np.ones(1, np.float32), np.ones((3, 2), np.float32))[0].shape == (7,)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"states": 1, "scan_inputs": 0}, "cannot split"),
        ({"states": 2, "scan_inputs": 1}, "cannot split"),
        ({"states": 1, "scan_inputs": 1, "input_axes": [0, 0]}, "input_axes has 2 entries instead of 1"),
        ({"states": 1, "scan_inputs": 1, "output_reverse": [0, 0]}, "output_reverse has 2 entries instead of 1"),
        ({"states": 1, "scan_inputs": 1, "input_axes": [2]}, "axis 2 is out of range"),
        ({"states": 1, "scan_inputs": 1, "output_axes": [2]}, "axis 2 is out of range"),
    ],
)
def test_scan_checks_its_attributes(attrs, message):
    with pytest.raises(CapgraphError, match=message):
        scanned([f32(N), f32(T, N)], [f32(N), f32(N)], accumulate, **attrs)


def test_scan_inputs_have_one_length():
    with pytest.raises(ShapeError, match="must have one length"):
        scanned([f32(3), f32(4)], [f32(), f32()], lambda g, a, b: [a], states=0, scan_inputs=2)


# ---- fused, costs


def test_fused_means_its_body_with_the_bodys_symbols_bound():
    graph = Graph()
    x, y = graph.add_input("x", f32(B, 4)), graph.add_input("y", f32(4))
    body = body_of(graph, [f32(L, 4), f32(4)], lambda g, a, b: [emit(g, MUL, emit(g, ADD, a, b), a), a])
    node = graph.append(native("fused"), [x, y], {"body": body})
    graph.set_outputs(node.outputs)
    assert [value.type for value in node.outputs] == [f32(B, 4), f32(B, 4)]
    assert node.op.is_capturable
    a, b = np.ones((2, 4), np.float32), np.arange(4, dtype=np.float32)
    assert np.array_equal(runs_as_typed(graph, a, b)[0], (a + b) * a)


def cost(graph: Graph, **sizes: int) -> int:
    node = graph.last
    assert node is not None
    inputs = [value.type if value is not None else None for value in node.inputs]
    return evaluate(node.op.flops(inputs, [value.type for value in node.outputs], node.attrs), sizes)


def test_the_cost_of_a_region_is_the_cost_of_its_body():
    twice = choice(lambda g, x: [emit(g, ADD, emit(g, ADD, x, x), x)], lambda g, x: [x], [f32(N)], inside=[f32(L)])
    assert cost(twice, N=5) == 10
    once = looped([f32(N)], lambda g, i, c, x: [c, emit(g, ADD, x, x)], carried=1)
    assert cost(once, N=5) == 5
    assert cost(scanned([f32(N), f32(T, N)], [f32(N), f32(N)], accumulate, states=1, scan_inputs=1), N=5, T=3) == 15
    growing = looped([f32(N)], lambda g, i, c, x: [c, emit(g, JOIN, x, emit(g, ADD, x, x))], carried=1, inside=[f32(L)])
    assert cost(growing, N=5) == 0  # only running tells
