"""In which form a file is written: the opset, IR version and place of weights that its model came with.

Where something in it needs newer versions it gets these. A graph keeps in its metadata how its model came. One from
elsewhere is written at the newest opset that ONNX Runtime has taken since 1.17.
"""

import onnx
from onnx import ModelProto

from ....ir.graph import Graph

OPSET_KEY, IR_KEY, EXTERNAL_KEY = "onnx.opset", "onnx.ir_version", "onnx.external_data"
USUAL_OPSET = 20

_INITIALIZERS_ALONE = 4  # before, they had to be inputs as well
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


def least_ir_version(model: ModelProto) -> int:
    """The oldest IR version that has what the model consists of; element types come with the opsets that have them."""
    of_opsets = onnx.helper.find_min_ir_version_for(list(model.opset_import), ignore_unknown=True)
    return max(_INITIALIZERS_ALONE, of_opsets, _FUNCTIONS if model.functions else 0)
