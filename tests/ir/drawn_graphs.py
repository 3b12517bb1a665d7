"""Small random graphs for the tests of the IR's own machinery: any names, few ops, foreign nodes, regions, states."""

from capgraph.ir.builder import Builder
from capgraph.ir.dims import symbol
from capgraph.ir.graph import Graph, Origin, Value
from capgraph.ir.types import DType, TensorType
from hypothesis import strategies as st

B, T = symbol("B"), symbol("T")
F32 = DType.F32
TYPES = tuple(TensorType(F32, shape) for shape in [(), (4,), (B, 4), (T, 4), (3, 4), (2 * B + T // 2, 4)])
BINARY = ("add", "sub", "mul")
names = st.one_of(st.sampled_from(["x", "y", "0", "1", "x_1", "u0"]), st.text(min_size=1, max_size=5))
attr_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=5),
        st.sampled_from([*DType, *TYPES, B, 2 * T + 1]),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
origins = st.none() | st.builds(
    Origin, st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.just(()) | st.just((("k", "v"),))
)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 8) -> Graph:
    """A valid graph; some of its values are called as the draw likes."""
    b = Builder(draw(names))
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        b.input(name, draw(st.sampled_from(TYPES)))
    for _ in range(draw(st.integers(0, max_nodes))):
        made = _add_node(draw, b)
        if made is not None and draw(st.booleans()):
            b.graph.rename(made, draw(names))
    values = list(b.graph.values)
    outputs = draw(st.lists(st.sampled_from(values), max_size=4))
    if draw(st.booleans()):
        named = draw(st.lists(names, min_size=len(outputs), max_size=len(outputs), unique=True))
        graph = b.finish(dict(zip(named, outputs, strict=True)))
    else:
        graph = b.finish(outputs)
    _set_states(draw, graph)
    return graph


def _add_node(draw: st.DrawFn, b: Builder) -> Value | None:
    values = list(b.graph.values)
    kind = draw(st.sampled_from(["unary", "binary", "constant", "foreign", "region"]))
    x = draw(st.sampled_from(values))
    if kind == "constant":
        return b.constant(draw(st.floats(width=32)), F32)
    if kind == "unary":
        return b.op("exp", x) if _is_f32(x) else None
    if kind == "binary":
        # One of the operands is a row or a scalar, so that every pair broadcasts.
        small = draw(st.sampled_from([value for value in values if value.type in TYPES[:2]] or [x]))
        pair = (x, small) if draw(st.booleans()) else (small, x)
        return b.op(draw(st.sampled_from(BINARY)), *pair) if _is_f32(x) and _is_f32(small) else None
    if kind == "region":
        inner = b.region(draw(names))
        y = inner.op("exp", inner.input("y", x.type)) if _is_f32(x) else inner.input("y", x.type)
        made = b.foreign("onnx.Region", [x], [x.type], {"body": inner.finish([y])})
        return made[0]
    types = draw(st.lists(st.sampled_from(TYPES[:2]), max_size=3))
    operands = [x, None, x] if draw(st.booleans()) else [None]
    attrs = draw(st.dictionaries(names, attr_values.filter(_mentions_nothing), max_size=2))
    made = b.foreign(draw(st.sampled_from(["onnx.Foo", "a.b.c"])), operands, [*types, _made(b)], attrs)
    return made[0]


def _made(b: Builder) -> TensorType:
    """A type whose size only running tells."""
    return TensorType(F32, (b.graph.symbols.fresh(), 4))


def _is_f32(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is F32


def _mentions_nothing(value: object) -> bool:
    """Symbols in attributes must be bound: these are not worth more than a text."""
    if isinstance(value, tuple):
        return all(map(_mentions_nothing, value))
    return "B" not in str(value) and "T" not in str(value)


def _set_states(draw: st.DrawFn, graph: Graph) -> None:
    pairs = [
        (i, o)
        for i, value in enumerate(graph.inputs)
        for o, output in enumerate(graph.outputs)
        if value.type == output.type
    ]
    chosen: dict[int, int] = {}
    for i, o in draw(st.lists(st.sampled_from(pairs), max_size=2)) if pairs else []:
        if i not in chosen and o not in chosen.values():
            chosen[i] = o
    graph.set_states(chosen.items())
