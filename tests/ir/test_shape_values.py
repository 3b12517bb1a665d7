"""Following the contents of small integer tensors: chains that models contain, and how far it goes."""

from typing import Any

import numpy as np
import pytest
from capgraph.ir.analysis.shape_values import MAX_ELEMENTS, ShapeValues
from capgraph.ir.constant import Constant
from capgraph.ir.dims import Dim, evaluate, symbol
from capgraph.ir.evaluate import evaluate_graph
from capgraph.ir.graph import Graph, Value
from capgraph.ir.ops import native
from capgraph.ir.text.parser import parse
from capgraph.ir.types import DType, TensorType
from hypothesis import given
from hypothesis import strategies as st

from tests.counted_work import lines_in

B, T = symbol("B"), symbol("T")


class Chain:
    """A graph over `x: f32[B, T, 12]` that is built op by op."""

    def __init__(self, dtype: DType = DType.F32) -> None:
        self.graph = Graph()
        self.x = self.graph.add_input("x", TensorType(dtype, (B, T, 12)))

    def op(self, name: str, *inputs: Value, **attrs: Any) -> Value:
        return self.graph.append(native(name), inputs, attrs).outputs[0]

    def constant(self, content: Any, dtype: Any = np.int64) -> Value:
        return self.op("constant", value=Constant(np.array(content, dtype=dtype)))

    def size(self, axis: int) -> Value:
        return self.op("gather", self.op("shape", self.x), self.constant(axis))


def test_the_operand_of_a_reshape_is_known() -> None:
    chain = Chain()
    batch = chain.op("unsqueeze", chain.size(0), axes=(0,))
    rows = chain.op("unsqueeze", chain.op("mul", chain.size(1), chain.constant(12)), axes=(0,))
    shape = chain.op("concat", batch, rows, chain.constant([64]), axis=0)
    assert ShapeValues().as_dims(shape) == (B, 12 * T, 64)


def test_arithmetic_on_sizes_is_followed() -> None:
    chain = Chain()
    last = chain.op("sub", chain.size(1), chain.constant(1))
    half = chain.op("div", chain.op("add", last, chain.size(0)), chain.constant(2))
    values = ShapeValues()
    assert values.as_dim(last) == T - 1
    found = values.as_dim(half)
    assert found is None or found == (B + T - 1) // 2


def test_every_result_of_a_split_is_followed() -> None:
    chain = Chain()
    parts = chain.graph.append(native("split"), [chain.op("shape", chain.x)], {"axis": 0, "sizes": (1, 2)}).outputs
    values = ShapeValues()
    assert [values.as_dims(part) for part in parts] == [(B,), (T, 12)]


def test_creation_and_moves_are_followed() -> None:
    chain = Chain()
    values = ShapeValues()
    shape = chain.op("shape", chain.x, start=1)
    cases: list[tuple[Value, Any]] = [
        (chain.op("size", chain.x), 12 * B * T),
        (chain.op("dims", values=(B, 3)), [B, 3]),
        (chain.op("dim", value=B + T), B + T),
        (chain.op("full", shape=(2,), value=Constant(np.array(7))), [7, 7]),
        (chain.op("arange", start=T, limit=T + 3), [T, T + 1, T + 2]),
        (chain.op("slice", shape, axes=(0,), starts=(-1,), ends=(-3,), steps=(-1,)), [12, T]),
        (chain.op("expand", chain.op("dims", values=(B,)), shape=(2,)), [B, B]),
        (chain.op("squeeze", chain.op("dims", values=(B,)), axes=(0,)), B),
        (chain.op("reshape", shape, shape=(2, 1)), [[T], [12]]),
        (chain.op("transpose", chain.op("reshape", shape, shape=(2, 1)), perm=(1, 0)), [[T, 12]]),
        (chain.op("gather", shape, chain.constant([-1, -2])), [12, T]),
    ]
    for value, expected in cases:
        found = values.of(value)
        assert found is not None
        assert found.tolist() == expected, value
        assert found.shape == value.shape


def test_what_is_no_small_integer_tensor_is_not_followed() -> None:
    chain = Chain()
    values = ShapeValues()
    assert values.of(chain.x) is None
    assert values.of(chain.constant([1.5], np.float32)) is None
    assert values.of(chain.op("arange", limit=MAX_ELEMENTS + 1)) is None
    assert values.of(chain.op("arange", limit=T)) is None
    assert values.as_dims(chain.op("arange", limit=MAX_ELEMENTS)) == tuple(range(MAX_ELEMENTS))
    assert values.of(chain.graph.add_input("n", TensorType(DType.I64, (2,)))) is None


def test_ranks_are_told_apart() -> None:
    chain = Chain()
    values = ShapeValues()
    scalar, one, two = chain.constant(3), chain.constant([3]), chain.constant([3, 4])
    assert [values.as_dim(value) for value in (scalar, one, two)] == [3, 3, None]
    assert [values.as_dims(value) for value in (scalar, one, two)] == [None, (3,), (3, 4)]


def test_a_weight_is_not_loaded() -> None:
    def load() -> Any:
        raise AssertionError("nothing may look at this")

    chain = Chain()
    for dtype in (DType.I64, DType.F32):
        weight = chain.op("constant", value=Constant.lazy(TensorType(dtype, (8, 9)), load))
        assert ShapeValues().of(weight) is None
        row = chain.op("slice", weight, axes=(0,), starts=(0,), ends=(1,), steps=(1,))
        assert ShapeValues().of(chain.op("cast", row, to=DType.I32)) is None


def test_errors_in_shape_arithmetic_are_left_to_the_run() -> None:
    chain = Chain()
    values = ShapeValues()
    out_of_range = chain.op("gather", chain.op("shape", chain.x), chain.constant([5]))
    assert values.of(out_of_range) is None
    assert values.of(chain.op("unsqueeze", out_of_range, axes=(0,))) is None
    product = chain.size(0)
    for _ in range(8):  # past the limits of a dim
        product = chain.op("mul", product, product)
    assert values.of(product) is None


def test_what_depends_on_constants_alone_is_computed_in_its_own_dtype() -> None:
    chain = Chain()
    values = ShapeValues()
    half = chain.op("floor", chain.op("mul", chain.constant([7, 9], np.float32), chain.constant(0.5, np.float32)))
    assert values.as_dims(chain.op("cast", half, to=DType.I64)) == (3, 4)
    wrapped = chain.op("add", chain.constant(200, np.uint8), chain.constant(100, np.uint8))
    assert values.as_dim(wrapped) == 44
    chosen = chain.op("where", chain.op("equal", half, half), chain.op("shape", chain.x, start=2), chain.constant(5))
    assert values.as_dims(chosen) == (12, 12)
    order = chain.graph.append(native("sort"), [chain.constant([3, 1, 2])], {}).outputs
    assert [values.as_dims(value) for value in order] == [(1, 2, 3), (1, 2, 0)]


def test_what_is_drawn_or_depends_on_data_is_not_told() -> None:
    chain = Chain()
    drawn = chain.op("random_uniform", shape=(2,), dtype=DType.F32, low=0.0, high=9.0, seed=1)
    assert ShapeValues().of(chain.op("cast", drawn, to=DType.I64)) is None
    data = chain.graph.add_input("data", TensorType(DType.F32, (2,)))
    assert ShapeValues().of(chain.op("cast", chain.op("floor", data), to=DType.I64)) is None


def test_what_does_not_fit_its_dtype_is_not_told() -> None:
    chain = Chain()
    values = ShapeValues()
    assert values.as_dims(chain.op("arange", start=100, limit=103, dtype=DType.I8)) == (100, 101, 102)
    assert values.as_dims(chain.op("arange", start=254, limit=257, dtype=DType.U8)) == (254, 255, 0)
    assert values.of(chain.op("arange", start=T, limit=T + 1, dtype=DType.U8)) is None
    assert values.as_dims(chain.constant([True, False], np.bool_)) == (True, False)


def test_answers_are_read_only_and_kept() -> None:
    chain = Chain()
    values = ShapeValues()
    shape = chain.op("shape", chain.x)
    found = values.of(shape)
    assert found is not None
    assert values.of(shape) is found
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def test_a_graph_can_grow_between_questions() -> None:
    chain = Chain()
    values = ShapeValues()
    value = chain.size(0)
    for step in range(1, 5):
        value = chain.op("add", value, chain.constant(1))
        assert values.as_dim(value) == B + step


def test_an_input_of_a_region_can_be_taken_for_an_outer_value() -> None:
    chain = Chain()
    values = ShapeValues()
    body = Graph("body", symbols=chain.graph.symbols)
    inner = body.add_input("n", TensorType(DType.I64, ()))
    values.assume(inner, chain.size(1))
    doubled = body.append(native("add"), [inner, inner]).output
    assert values.as_dim(doubled) == 2 * T


def test_chains_are_followed_in_linear_work_and_without_recursion() -> None:
    chain = Chain()
    value = chain.size(0)
    values = [value := chain.graph.append(native("reshape"), (value,), {"shape": ()}).output for _ in range(20_000)]
    assert ShapeValues().as_dim(values[-1]) == B
    few, many = (lines_in(lambda end=values[count - 1]: ShapeValues().as_dim(end)) for count in (100, 1_000))
    assert many <= 11 * few


STEPS = ("add", "sub", "mul")


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(-3, 3), st.booleans()), max_size=6))
def test_what_is_followed_is_what_the_evaluator_computes(steps: list[tuple[str, int, bool]]) -> None:
    chain = Chain()
    value = chain.size(0)
    for name, number, takes_size in steps:
        value = chain.op(name, value, chain.size(1) if takes_size else chain.constant(number))
    chain.graph.set_outputs([value])
    found: Dim | None = ShapeValues().as_dim(value)
    assert found is not None
    (result,) = evaluate_graph(chain.graph, [np.zeros((2, 3, 12), dtype=np.float32)])
    assert evaluate(found, {"B": 2, "T": 3}) == int(result)


def test_sizes_that_could_only_come_from_wrapping_are_not_known() -> None:
    graph = parse(
        "graph @main(%x: f32[B]) {\n %s = shape(%x)\n %f = constant() {value = dense<i64[]: -4326119450921527585>}\n"
        " %a = add(%s, %f)\n %g = constant() {value = dense<i64[]: 1024>}\n %b = mul(%s, %g)\n return %a, %b\n}"
    )
    values = ShapeValues()
    assert values.of(graph.value("a")) is None
    assert values.as_dims(graph.value("b")) == (1024 * symbol("B"),)


@pytest.mark.parametrize(
    ("dtype", "body", "known"),
    [
        ("i32", "%y = mul(%s, %f)", False),  # wraps from T = 8 on
        ("i32", "%y = mul(%s, %s)", True),
        ("i64", "%q = mul(%s, %s) %r = mul(%q, %q) %t = mul(%r, %r) %y = mul(%t, %t)", False),
    ],
)
def test_arithmetic_that_wraps_for_ordinary_sizes_is_not_known(dtype: str, body: str, known: bool) -> None:
    graph = parse(
        f"graph @main(%x: f32[T]) {{\n %z = shape(%x)\n %s = cast(%z) {{to = {dtype}}}\n"
        f" %f = constant() {{value = dense<{dtype}[]: 268435456>}}\n"
        f" %one = constant() {{value = dense<{dtype}[]: 1>}}\n"
        f" {body}\n return %y\n}}"
    )
    assert (ShapeValues().of(graph.value("y")) is not None) is known
