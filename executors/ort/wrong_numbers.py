"""Numbers that ONNX Runtime gets wrong: NaN passed over, divisions that end the process, and sums that lose digits.

A session gets a reduction with a choice behind it: NaN where some element is. Which it is tells a reduction of bytes.
The logarithm of a sum of exponentials over all axes gets one too, as it passes over NaN beside infinity.
The greatest few it looks for among keys: infinity for NaN, the greatest number for infinity, and no more than the one
before that for numbers.

NumPy wraps around, as the ops here do: the quotient is the least number again, the remainder 0. 8 and 16 bits are
divided in 32 and are safe.

Of random f32 in [0, 1), on the CPU with 1.31: 2^20 elements are off by up to 4e-5 of their sum, and squares by 4e-4;
2^24 by 1e-4 and 2e-2. At the limits here it is 1e-5. NumPy's are off by 1e-7.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from ...ir.analysis import all_nodes, input_symbols, nested_graphs
from ...ir.analysis.shape_values import ShapeValues
from ...ir.attrs import AttrValue
from ...ir.binding import mentioned
from ...ir.builder import Emitter
from ...ir.constant import Constant
from ...ir.dims import Dim, SymDim, evaluate, lower_bound, product, solve, symbols, upper_bound
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import CAST, DIV, DYNAMIC_TOP_K, GATHER, MOD, REDUCE_LOG_SUM_EXP, REDUCE_MAX, REDUCE_MIN, TOP_K
from ...ir.types import DType, Kind, TensorType, type_symbols


def size_givers(graph: Graph, nodes: Iterable[Node], known: Collection[Value]) -> list[Value]:
    """Values that `nodes` need, besides the values `known`, only to know sizes that they mention.

    They are inputs of `graph`, or for sizes that only running tells, what `nodes` are made of.
    """
    inside = dict.fromkeys(nodes)
    shapes = [value.type.shape or () for value in known if isinstance(value.type, TensorType)]
    seen = mentioned(value.type for value in known)
    asked = {dim for node in inside for dim in _dims_of(node) if not any(dim in shape for shape in shapes)}
    untold = frozenset[str]().union(*(dim.symbols for dim in asked)).difference(*map(_told, known))
    missing = untold | mentioned(value.type for node in inside for value in node.outputs) - seen
    if not missing:
        return []
    givers = [value for value in graph.inputs if type_symbols(value.type) & missing]
    return givers + _givers_before(inside, untold & seen - mentioned(value.type for value in graph.inputs))


def _givers_before(nodes: Collection[Node], missing: frozenset[str]) -> list[Value]:
    """The nearest values before `nodes` that tell the sizes `missing`."""
    givers: list[Value] = []
    pending = [value for node in nodes for value in node.operands]
    seen = set(pending)
    for value in pending:
        if not missing:
            break
        if value.producer not in nodes and missing & _told(value):
            givers.append(value)
            missing -= _told(value)
        if value.producer is not None:
            new = [each for each in value.producer.operands if each not in seen]
            seen.update(new)
            pending += new
    return givers


def _told(value: Value) -> frozenset[str]:
    """The symbols whose sizes can be told from the shape of a value."""
    shape = value.type.shape or () if isinstance(value.type, TensorType) else ()
    dims = [dim for dim in shape if isinstance(dim, SymDim) and solve(dim, dim.constant, {})]
    return frozenset[str]().union(*(dim.symbols for dim in dims))


def _dims_of(node: Node) -> Iterable[SymDim]:
    """The symbolic sizes in the attributes of a node, those of nodes in its bodies and their results included."""
    for name in node.op.bound_attrs:
        yield from _dims_in(node.attrs[name])


def _dims_in(value: AttrValue) -> Iterable[SymDim]:
    if isinstance(value, SymDim):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _dims_in(item)
    elif isinstance(value, Graph):
        for node in value.nodes:
            yield from _dims_of(node)
            yield from (d for v in node.outputs for d in getattr(v.type, "shape", None) or () if isinstance(d, SymDim))


def passes_over(node: Node) -> bool:
    """Whether a node looks for the greatest or the least, and would pass over NaN."""
    if node.op is REDUCE_LOG_SUM_EXP:
        return 0 < len(node.attrs["axes"]) == node.operands[0].tensor.rank
    return node.op in (DYNAMIC_TOP_K, REDUCE_MAX, REDUCE_MIN, TOP_K) and node.operands[0].tensor.dtype.is_float


def with_choices(graph: Graph) -> Graph:
    """`graph`, or a copy in which such nodes treat NaN as ours do, regions included."""
    if not any(map(passes_over, all_nodes(graph))):
        return graph
    copy = graph.clone()
    for body in nested_graphs(copy):
        for node in [node for node in body.nodes if passes_over(node)]:
            if node.op in (DYNAMIC_TOP_K, TOP_K):
                _by_keys(body, node)
            else:
                _guard(body, node)
    return copy


def _guard(graph: Graph, node: Node) -> None:
    x, dtype = node.operands[0], node.output.tensor.dtype
    emit = Emitter(graph, anchor=node, origin=node.origin)
    bytes_ = emit.op("cast", emit.op("is_nan", x), to=DType.U8)
    is_any = emit.op("cast", emit.op("reduce_max", bytes_, **node.attrs), to=DType.BOOL)
    nan = emit.constant(math.nan, dtype)
    graph.replace_uses(node.output, emit.op("where", is_any, nan, emit.op(node.op.name, x, **node.attrs)))
    graph.erase(node)


def _by_keys(graph: Graph, node: Node) -> None:
    x, *more = node.operands
    emit = Emitter(graph, anchor=node, origin=node.origin)
    dtype = DType.F64 if x.tensor.dtype is DType.F64 else DType.F32
    kind = np.float64 if dtype is DType.F64 else np.float32
    greatest = kind(np.finfo(kind).max)
    wide = emit.op("cast", x, to=dtype)
    number = emit.op("min", wide, emit.constant(np.nextafter(greatest, kind(0)), dtype))
    infinite = emit.op("is_inf", wide, detect_negative=False)
    ordered = emit.op("where", infinite, emit.constant(greatest, dtype), number)
    keys = emit.op("where", emit.op("is_nan", wide), emit.constant(math.inf, dtype), ordered)
    types = [node.outputs[0].tensor.with_dtype(dtype), node.outputs[1].type]
    places = emit.node(node.op, (keys, *more), node.attrs, types).outputs[1]
    graph.replace_uses(node.outputs[0], emit.op("gather_elements", x, places, axis=node.attrs["axis"]))
    graph.replace_uses(node.outputs[1], places)
    graph.erase(node)


_DIVISIONS = (DIV, MOD)  # not fmod: it is computed in floats
_TRAPPING = frozenset((DType.I32, DType.I64))


def may_trap(node: Node) -> bool:
    """Whether a node, or one in its regions, may divide the least integer by -1."""
    if _divides_least(node):
        return True
    bodies = (body for region in node.regions.values() for body in nested_graphs(region))
    return any(_divides_least(inner) for body in bodies for inner in body.nodes)


def _divides_least(node: Node) -> bool:
    if node.op not in _DIVISIONS or node.outputs[0].tensor.dtype not in _TRAPPING:
        return False
    dividend, divisor = node.operands
    least = -(1 << (dividend.tensor.dtype.bits - 1))
    known = ShapeValues()
    return _may_hold(divisor, -1, known) and _may_hold(dividend, least, known)


def _may_hold(value: Value, number: int, known: ShapeValues) -> bool:
    """Whether an element may be `number`: no, where constants, sizes or a narrower type that it was cast from tell."""
    elements = known.of(value)
    if elements is not None:
        return any(_may_be(element, number) for element in elements.reshape(-1).tolist())
    node = value.producer
    if node is None:
        return True
    content = node.attrs.get("value")
    if isinstance(content, Constant):
        return bool((content.array == number).any())
    if node.op.has(Trait.VIEW) or node.op is GATHER:
        return _may_hold(node.operands[0], number, known)
    if node.op is CAST:
        return _may_be_cast_to(number, node.operands[0], value.tensor.dtype, known)
    return True


def _may_be(dim: Dim, number: int) -> bool:
    low, high = lower_bound(dim), upper_bound(dim)
    return (low is None or low <= number) and (high is None or number <= high)


def _may_be_cast_to(number: int, given: Value, dtype: DType, known: ShapeValues) -> bool:
    """A wider type keeps every number, so that one that the narrower has not is none of the results."""
    narrow = given.tensor.dtype
    if narrow is DType.BOOL:
        return False
    if not narrow.is_integer or narrow.bits >= dtype.bits:
        return True
    least = -(1 << (narrow.bits - 1)) if narrow.kind is Kind.INT else 0
    return least <= number and _may_hold(given, number, known)


LONG = 1 << 18
LONG_OF_SQUARES = 1 << 16
REASON = "ONNX Runtime adds so many floats one after another"
_MAYBE = "ONNX Runtime adds floats one after another, and only running tells how many"


def long_sum(node: Node) -> str:
    """Why a sum has no place in a session, whatever a call gives; empty where it has one, or where a call tells."""
    terms = _terms(node)
    if isinstance(terms, int):
        return REASON if terms >= _limit(node) else ""
    assert node.graph is not None
    return "" if symbols(terms) <= frozenset(input_symbols(node.graph)) else _MAYBE


def sums_to_watch(graph: Graph) -> dict[Node, Dim]:
    """The nodes that a call may make long sums of, each with how many floats it adds up."""
    terms = {node: _terms(node) for node in graph.nodes}
    known = frozenset(input_symbols(graph))
    return {node: count for node, count in terms.items() if symbols(count) and symbols(count) <= known}


def long_ones(sums: Mapping[Node, Dim], sizes: Mapping[str, int]) -> list[Node]:
    """Those of `sums` that are long at `sizes`."""
    return [node for node, count in sums.items() if evaluate(count, sizes) >= _limit(node)]


def _limit(node: Node) -> int:
    name = str(node.attrs.get("kind") or node.op.name)
    return LONG_OF_SQUARES if name.removeprefix("reduce_") in _OF_SQUARES else LONG


def _terms(node: Node) -> Dim:
    """How many floats below 64 bits are added up for an element of the result; 0 where none are."""
    count = _COUNTS.get(node.op.name)
    if count is None:
        return 0
    dtype = node.operands[0].tensor.dtype
    return count(node) if dtype.is_float and dtype is not DType.F64 else 0


def _reduced(node: Node) -> Dim:
    dims = node.operands[0].tensor.dims
    axes = node.attrs["axes"]
    return product(dims if axes is None else (dims[axis] for axis in axes))


def _along_axis(node: Node) -> Dim:
    return node.operands[0].tensor.dims[node.attrs["axis"]]


def _trailing(node: Node) -> Dim:
    return product(node.operands[0].tensor.dims[node.attrs["axis"] :])


def _grouped(node: Node) -> Dim:
    _, channels, *rest = node.operands[0].tensor.dims
    return product((channels // node.attrs["groups"], *rest))


def _everything(node: Node) -> Dim:
    return node.operands[0].tensor.size if node.attrs.get("kind", "sum") in _SUMS else 0


_OF_SQUARES = frozenset(("l2", "lp_norm", "lp_pool", "sum_square"))
_SUMS = frozenset(("l1", "l2", "log_sum", "log_sum_exp", "mean", "sum", "sum_square"))

_COUNTS: dict[str, Callable[[Node], Dim]] = {
    **{f"reduce_{kind}": _reduced for kind in _SUMS},
    "cumsum": _along_axis,
    "dynamic_cumsum": _everything,
    "dynamic_reduce": _everything,
    "group_norm": _grouped,
    "instance_norm": lambda node: product(node.operands[0].tensor.dims[2:]),
    "layer_norm": _trailing,
    "log_softmax": _along_axis,
    "lp_norm": _along_axis,
    "lp_pool": lambda node: product(node.attrs["kernel"]),
    "rms_norm": _trailing,
    "softmax": _along_axis,
}
"""By op, how many floats are added up."""
