"""Nodes that ONNX Runtime takes and then gets wrong: they run eagerly instead.

Each was found by comparing ONNX Runtime 1.31 on the CPU with the meanings of the ops on random graphs. Other nodes it
refuses by itself, when it reads a model (`support`) or when it runs one (`partition`).
"""

from collections.abc import Callable

from ...ir.analysis import input_symbols
from ...ir.dims import Dim, symbols
from ...ir.graph import Graph, Node
from ...ir.types import DType, Kind, TensorType, Type

_WIDE = frozenset((DType.F64, DType.I64, DType.U64, DType.I32, DType.U32))
_RECURRENT = frozenset(("gru", "lstm", "rnn"))


def known_fault(node: Node) -> str:
    """What ONNX Runtime does wrong at `node`; empty when nothing is known."""
    if any(0 in _shape(value.type) for value in node.operands):
        return "it has an operand without elements"
    check = _FAULTS.get(node.op.name)
    return check(node) if check is not None else ""


def dims_to_watch(graph: Graph) -> tuple[Dim, ...]:
    """Sizes of `graph` which, where they are 0, must keep a whole call out of ONNX Runtime.

    Recurrent cells over an empty sequence or batch give results without the initial state, or end the process.
    """
    known = frozenset(input_symbols(graph))
    cells = (node for node in graph.nodes if node.op.name in _RECURRENT)
    dims = (dim for node in cells for dim in _shape(node.operands[0].type))
    return tuple({dim: None for dim in dims if symbols(dim) and symbols(dim) <= known})


def _shape(ty: Type) -> tuple[Dim, ...]:
    return ty.shape or () if isinstance(ty, TensorType) else ()


def _narrow(node: Node) -> str:
    dtype = node.operands[0].tensor.dtype
    return f"ONNX Runtime computes it in f32, which is too little for {dtype}" if dtype in _WIDE else ""


def _rounded(node: Node) -> str:
    kind = node.operands[0].tensor.dtype.kind
    return "ONNX Runtime computes it in floats, not in integers" if kind in (Kind.INT, Kind.UINT) else ""


def _scalar(node: Node) -> str:
    return "" if _shape(node.operands[0].type) else "ONNX Runtime takes a scalar for a vector"


_FAULTS: dict[str, Callable[[Node], str]] = {
    "dynamic_reduce": _rounded,
    "fmod": _rounded,
    "gelu": _narrow,
    "group_norm": _narrow,
    "non_zero": _scalar,
    "reduce_l1": _rounded,
    "reduce_l2": _rounded,
    "reduce_log_sum": _rounded,
    "reduce_log_sum_exp": _rounded,
    "reduce_mean": _rounded,
    "shrink": _narrow,
}
