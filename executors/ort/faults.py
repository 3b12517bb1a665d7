"""Nodes that ONNX Runtime takes and then gets wrong: they run eagerly instead.

Each was found by comparing ONNX Runtime 1.31 on the CPU with the meanings of the ops on random graphs. Other nodes it
refuses by itself, when it reads a model (`support`) or when it runs one (`partition`).
"""

from collections.abc import Callable

from ...ir.analysis import input_symbols
from ...ir.dims import Dim, symbols
from ...ir.graph import Graph, Node
from ...ir.types import DType, TensorType, Type

_WIDE = frozenset((DType.F64, DType.I64, DType.U64, DType.I32, DType.U32))
_TAKES_NOTHING = frozenset(("concat", "identity", "if", "loop"))
"""Ops that empty operands are usual for, and right: the first content of a cache, or of a list that a loop makes."""


def known_fault(node: Node) -> str:
    """What ONNX Runtime does wrong at `node`; empty when nothing is known."""
    if node.op.name not in _TAKES_NOTHING and any(0 in _shape(value.type) for value in node.operands):
        return "it has an operand without elements"
    if node.op.name in _WATCHED and not _is_told(node):
        return "it may have an operand without elements, which only running tells"
    check = _FAULTS.get(node.op.name)
    return check(node) if check is not None else ""


def dims_to_watch(graph: Graph) -> tuple[Dim, ...]:
    """Sizes of `graph` which, where one is 0, must keep a whole call out of ONNX Runtime.

    Recurrent cells over an empty sequence or batch give results without the initial state, or end the process; so does
    a scan that stacks empty tensors along another axis than the first.
    """
    told = frozenset(input_symbols(graph))
    dims = (dim for node in graph.nodes for dim in _WATCHED.get(node.op.name, _nothing)(node))
    return tuple({dim: None for dim in dims if symbols(dim) and symbols(dim) <= told})


def _is_told(node: Node) -> bool:
    assert node.graph is not None
    told = frozenset(input_symbols(node.graph))
    return all(symbols(dim) <= told for dim in _WATCHED[node.op.name](node))


def _first_dims(node: Node) -> tuple[Dim, ...]:
    return _shape(node.operands[0].type)


def _all_dims(node: Node) -> tuple[Dim, ...]:
    return tuple(dim for value in (*node.operands, *node.outputs) for dim in _shape(value.type))


def _nothing(_node: Node) -> tuple[Dim, ...]:
    return ()


_WATCHED: dict[str, Callable[[Node], tuple[Dim, ...]]] = {
    "gru": _first_dims,
    "lstm": _first_dims,
    "rnn": _first_dims,
    "scan": _all_dims,
}


def _shape(ty: Type) -> tuple[Dim, ...]:
    return ty.shape or () if isinstance(ty, TensorType) else ()


def _narrow(node: Node) -> str:
    dtype = node.operands[0].tensor.dtype
    return f"ONNX Runtime computes it in f32, which is too little for {dtype}" if dtype in _WIDE else ""


def _named_truth(node: Node) -> str:
    is_bool = node.operands[0].tensor.dtype is DType.BOOL
    return "ONNX Runtime writes 0 and 1" if is_bool and node.attrs["to"] is DType.STRING else ""


def _scalar(node: Node) -> str:
    return "" if _shape(node.operands[0].type) else "ONNX Runtime takes a scalar for a vector"


def _string_rows(node: Node) -> str:
    is_string = node.operands[0].tensor.dtype is DType.STRING
    return "ONNX Runtime takes just the first string of each row" if is_string else ""


_FAULTS: dict[str, Callable[[Node], str]] = {
    "cast": _named_truth,
    "gather": _string_rows,
    "gelu": _narrow,
    "group_norm": _narrow,
    "non_zero": _scalar,
    "roll": _string_rows,
    "shrink": _narrow,
}
