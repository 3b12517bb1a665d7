"""Where the contents of tensors go while a model is written."""

from typing import Protocol

from onnx import TensorProto

from ....ir.constant import Constant
from ....ir.errors import ResourceError
from ..tensors import constant_to_proto, element_number

MAX_INLINE_BYTES = 2_000_000_000
"""More content than this does not fit into one protobuf message."""


class Storage(Protocol):
    """Where the contents of large tensors go."""

    def tensor(self, content: Constant, name: str) -> TensorProto:
        """The tensor proto, which holds or refers to the content."""
        ...


class Inline:
    """Contents stand in the model itself."""

    def __init__(self) -> None:
        self.nbytes = 0

    def tensor(self, content: Constant, name: str) -> TensorProto:
        """The tensor with its bytes. Raises `ResourceError` when the model would pass protobuf's limit."""
        self.nbytes += content.nbytes
        if self.nbytes > MAX_INLINE_BYTES:
            raise ResourceError(
                "the model holds more than 2 GB of constants, which one protobuf message cannot",
                remedy="write it with save_model(graph, path), which keeps them in a file beside the model",
            )
        return constant_to_proto(content, name)


class Nowhere:
    """Contents are left out: for a model that is written to see whether it can be."""

    def tensor(self, content: Constant, name: str) -> TensorProto:
        """The tensor without its content."""
        return TensorProto(name=name, data_type=element_number(content.dtype), dims=content.shape)
