"""Which operators an exported model may use."""

from enum import Enum


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
