"""Which operators an exported model may use."""

from enum import Enum


class Dialect(Enum):
    """STANDARD: operators of the ONNX domains alone. ORT: ONNX Runtime's contrib operators too, where they are better.

    Export rules ask for it as `ctx.dialect`. None does yet, so that a model written for ORT is standard as well.
    """

    STANDARD = "standard"
    ORT = "ort"
