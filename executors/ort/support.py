"""Which nodes ONNX Runtime can run: asked of ONNX Runtime itself, one small model for each kind of node."""

from typing import Any

from ...ir.errors import CapgraphError
from ...ir.extract import extract
from ...ir.graph import Graph, Node
from ...ir.op import Trait
from ...ir.types import DType, TensorType, Type
from .session import Session

_DTYPES = frozenset(
    {DType.BOOL, DType.U8, DType.U16, DType.U32, DType.U64, DType.I8, DType.I16, DType.I32, DType.I64}
    | {DType.F16, DType.F32, DType.F64, DType.STRING}
)
"""Element types that its Python interface takes and gives as plain NumPy arrays."""


class Support:
    """Remembers the answer for each op, attributes and operand types."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._answers: dict[Any, str] = {}

    def problem(self, node: Node) -> str:
        """Why ONNX Runtime cannot run `node`, empty when it can."""
        if not all(map(_is_plain, [value.type for value in (*node.operands, *node.outputs)])):
            return "it has a type that ONNX Runtime's interface does not take"
        if not node.operands and not node.op.has(Trait.IMPURE):
            return ""
        key = (node.op, node.attrs, tuple(value.type for value in node.operands))
        if key not in self._answers:
            self._answers[key] = self._asked(node)
        return self._answers[key]

    def _asked(self, node: Node) -> str:
        cut = [value for value in node.operands if value.producer is not None and value.producer.inputs]
        part, _ = extract(self.graph, node.outputs, cut)
        try:
            Session(part)
        except CapgraphError as error:
            return error.message
        return ""


def _is_plain(ty: Type) -> bool:
    return isinstance(ty, TensorType) and ty.dtype in _DTYPES
