"""Sums of so many floats that ONNX Runtime, which adds many of them one after another, loses digits: NumPy adds them.

Of random f32 in [0, 1), on the CPU with 1.31: 2^20 elements are off by up to 4e-5 of their sum, and squares by 4e-4;
2^24 by 1e-4 and 2e-2. At the limits here it is 1e-5. NumPy's are off by 1e-7.
"""

from collections.abc import Callable, Mapping

from ...ir.analysis import input_symbols
from ...ir.dims import Dim, evaluate, product, symbols
from ...ir.graph import Graph, Node
from ...ir.types import DType

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
