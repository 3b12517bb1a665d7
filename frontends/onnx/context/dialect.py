"""Which operators an exported model may use."""

from enum import Enum

from ....ir.graph import Node
from ....ir.types import DType


class Dialect(Enum):
    """Who a model is written for.

    FAITHFUL: each op as the operator that means it, so that a model comes back as the same graph. STANDARD: operators
    of the ONNX domains alone, in the form that runtimes have and run well. ORT: ONNX Runtime's contrib operators too,
    where one does what several nodes do (`contrib`).

    Export rules ask for it as `ctx.dialect`.
    """

    FAITHFUL = "faithful"
    STANDARD = "standard"
    ORT = "ort"

    @property
    def opset(self) -> int:
        """The version of the default domain that is written where no operator needs a newer one.

        Runtimes get 24, the newest with a new operator that is worth writing: ONNX Runtime 1.31 makes the same of a
        model at 24 and at 26, except that it runs Swish, as its body, at 24 alone.
        """
        return 26 if self is Dialect.FAITHFUL else 24


def takes_attention_apart(node: Node, dialect: Dialect) -> bool:
    """Whether parts are written though there is the operator: it gives zeros, or runtimes would not run it as it is.

    ONNX Runtime 1.31 has a kernel for operands of one dtype, which is not f64. Others it runs as the operator's body,
    which is that before the standard's erratum: rows that see no key are NaN, and causal queries start at the first key
    whatever the lengths are.
    """
    dtypes = {value.tensor.dtype for value in node.inputs[:4] if value is not None} - {DType.BOOL}
    return node.attrs["nan_rows"] or (dialect is not Dialect.FAITHFUL and (len(dtypes) > 1 or DType.F64 in dtypes))
