"""How a file is written: where, its opset, IR version and place of weights, and where contents go meanwhile.

Where something in it needs newer versions it gets these. A graph keeps in its metadata how its model came. One from
elsewhere is written at the newest opset that ONNX Runtime has taken since 1.17.
"""

import stat
from pathlib import Path
from typing import Protocol

import onnx
from onnx import ModelProto, TensorProto

from ....ir.constant import Constant
from ....ir.errors import InputError, ResourceError
from ....ir.graph import Graph
from ..tensors import constant_to_proto, element_number

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_SHOWN_NAME = 60


def file_to_write(path: Path) -> Path:
    """The file that writing to `path` makes or replaces: `path`, or what it links to, be that there or not.

    Raises `InputError` where that is no regular file, or where no file can have this name.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG
    except OSError as error:
        raise InputError(f"{_shown(path)} cannot be written: {error.strerror}", remedy="write elsewhere") from error
    except ValueError as error:  # a NUL
        raise InputError(f"{_shown(path)!r} is no name of a file: {error}", remedy="use another name") from error
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "no regular file")
        raise InputError(f"{path} is {kind}", remedy="name the file to write")
    return path.resolve() if path.is_symlink() else path


def part_prefix(target: Path) -> str:
    """How the name of a file begins that will become `target`; short, so that it is valid whenever `target` is."""
    return f".{target.name[:32]}."


def _shown(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 2 * _SHOWN_NAME else f"{text[:_SHOWN_NAME]}...{text[-_SHOWN_NAME:]}"


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


OPSET_KEY, IR_KEY, EXTERNAL_KEY = "onnx.opset", "onnx.ir_version", "onnx.external_data"
USUAL_OPSET = 20

INITIALIZERS_ALONE = 4  # before, they had to be inputs as well
_FUNCTIONS = 8


def known_opset(graph: Graph) -> int:
    """The opset of the model that the graph was imported from, 0 for one from elsewhere."""
    return _number(graph, OPSET_KEY)


def source_opset(graph: Graph) -> int:
    """The same, `USUAL_OPSET` for one from elsewhere."""
    return known_opset(graph) or USUAL_OPSET


def source_ir_version(graph: Graph) -> int:
    """The IR version of the model that the graph was imported from, 0 for one from elsewhere."""
    return _number(graph, IR_KEY)


def had_external_data(graph: Graph) -> bool:
    """Whether the model that the graph was imported from kept weights outside of its file."""
    return EXTERNAL_KEY in graph.metadata


def _number(graph: Graph, key: str) -> int:
    text = graph.metadata.get(key, "")
    return int(text) if text.isdecimal() else 0


def opset_of(model: ModelProto) -> int:
    """The version of the default domain that a model imports."""
    return next(int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx"))


def least_ir_version(model: ModelProto, came_with: int = 0) -> int:
    """The oldest IR version that has what the model consists of; element types come with the opsets that have them.

    Opsets go with IR version `came_with`, too, where a model had them there.
    """
    of_opsets = onnx.helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
    of_opsets = min(of_opsets, came_with or of_opsets)
    return max(INITIALIZERS_ALONE, of_opsets, _FUNCTIONS if model.functions else 0)
