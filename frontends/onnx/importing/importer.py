"""From an ONNX model to a graph: the inputs and initializers of the main graph, then its nodes in a `ValueScope`.

A model that makes no sense as it stands is read again: with open sizes that are 1, then with bodies that may fail.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, combinations
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto

from ....ir.constant import Constant
from ....ir.errors import CapgraphError, ModelError, ShapeError, TypeRuleError
from ....ir.graph import Graph, Value
from ....ir.types import TensorType
from ..files.loading import load_proto
from ..files.metadata import read_metadata, read_states, text_of
from ..tensors import constant_from_proto, dense_constant
from .model_reader import ModelReader
from .value_scope import ValueScope, declared_type

MAX_TRIED = 4
"""How many open sizes are tried to be 1, where the model makes no sense otherwise."""

MAX_TRIED_NODES = 10_000
"""How many nodes are read again for more than the first few of that."""

_OF_SHAPES = (ModelError, ShapeError, TypeRuleError)
"""What a model raises in which some rank or size is wrong."""

_REMEDY = "correct this part of the model, or export it again"


@dataclass
class ImportedModel:
    """A graph and remarks for `explain()`."""

    graph: Graph
    notes: list[str] = field(default_factory=list)

    @property
    def defaults(self) -> Mapping[str, Constant]:
        """The contents of inputs that callers may leave out."""
        return self.graph.defaults


def import_model(
    source: str | Path | bytes | ModelProto,
    *,
    folder: Path | None = None,
    freeze_initializers: bool | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> ImportedModel:
    """Imports an ONNX model from a path, bytes or proto.

    `folder` is where external data lies (default: the folder of the path). `freeze_initializers` makes initializers
    that are also inputs constants; by default this is done for IR versions below 4, where every initializer had to be
    listed as an input. `shapes` gives inputs fixed shapes.

    Raises `ModelError` for a broken model, `UnsupportedError` for one that is too old.
    """
    proto, beside = load_proto(source)
    frozen = proto.ir_version < 4 if freeze_initializers is None else freeze_initializers
    model = ModelReader(proto, folder or beside, shapes or {})
    try:
        return _import_main(model, proto.graph, frozen)
    except CapgraphError as error:
        imported = None
        if isinstance(error, _OF_SHAPES):
            imported = _with_ones(model, proto.graph, frozen) or _with_failing_bodies(model, proto.graph, frozen)
        if imported is not None:
            return imported
        error.of_model(text_of(proto.graph.name), _REMEDY)
        raise
    except RecursionError as error:
        too_deep = ModelError("the model nests subgraphs or types too deeply")
        raise too_deep.of_model(text_of(proto.graph.name), _REMEDY) from error


def _import_main(model: ModelReader, proto: GraphProto, frozen: bool) -> ImportedModel:
    graph = Graph(text_of(proto.name) or "main")
    graph.metadata.update(read_metadata(model.proto))
    scope = ValueScope(model, graph, model.versions)
    sparse = {each.values.name: each for each in proto.sparse_initializer}
    initializers = {tensor.name: tensor for tensor in proto.initializer}
    imported = ImportedModel(graph, notes=model.notes)
    shadowed = [info for info in proto.input if info.name in initializers or info.name in sparse]
    kept = [info for info in proto.input if not (frozen and info in shadowed)]
    for info in kept:
        ty = declared_type(info, model.dim_of)
        if info.name in model.shapes and isinstance(ty, TensorType):
            ty = ty.with_shape(model.shapes[info.name])
        value = scope.add_input(info.name, ty)
        if info.name in initializers:
            _set_default(value, constant_from_proto(initializers[info.name], model.folder))
        elif info.name in sparse:
            _set_default(value, dense_constant(sparse[info.name], model.folder))
    model.given = scope.bound_symbols()
    if frozen and shadowed:
        model.notes.append(
            f"inputs with an initializer were frozen: {len(shadowed)} (freeze_initializers=False keeps them)"
        )
    scope.fill(proto)
    model.note_remarks()
    remark = read_states(model.proto, graph)
    if remark:
        model.notes.append(remark)
    return imported


def _with_ones(model: ModelReader, proto: GraphProto, frozen: bool) -> ImportedModel | None:
    """The model where open sizes that `Squeeze` took not to be 1 are 1: as few as make it right, at worst all."""
    taken = [*dict.fromkeys(model.taken_not_to_be_one)]
    first = taken[:MAX_TRIED]
    some = chain.from_iterable(combinations(first, count) for count in range(1, len(first)))
    tried = [*dict.fromkeys(map(frozenset, (*some, taken)))] if taken else []
    for ones in tried[: max(MAX_TRIED, MAX_TRIED_NODES // max(1, len(proto.node)))]:
        try:
            return _import_main(ModelReader(model.proto, model.folder, model.shapes, ones), proto, frozen)
        except _OF_SHAPES:
            continue
    return None


def _with_failing_bodies(model: ModelReader, proto: GraphProto, frozen: bool) -> ImportedModel | None:
    """The model where nodes in bodies, of which no run need come, may have operands that they refuse when they run."""
    if not any(attribute.HasField("g") for node in _all_nodes(model.proto) for attribute in node.attribute):
        return None
    again = ModelReader(model.proto, model.folder, model.shapes, model.ones, bodies_may_fail=True)
    with suppress(CapgraphError):  # the first one tells more
        return _import_main(again, proto, frozen)
    return None


def _all_nodes(proto: ModelProto) -> Iterable[NodeProto]:
    return chain(proto.graph.node, *(function.node for function in proto.functions))


def _set_default(value: Value, content: Constant) -> None:
    try:
        value.graph.set_default(value, content)
    except TypeRuleError as error:
        raise ModelError(error.message, remedy="correct the input's type or its initializer") from error
