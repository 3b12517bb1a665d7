"""From a graph to an ONNX model.

Each node is written by the export rule of its op; constants become initializers, fused regions are written in place,
and foreign ONNX operators as themselves. The model is IR 13 and of its dialect's opset unless an operator or the
caller wants another; the reason for a newer one stands in the model's metadata.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import onnx
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

from ....ir.analysis import all_nodes
from ....ir.errors import CapgraphError, InternalError, UnsupportedError
from ....ir.graph import Graph, Node
from ..context.dialect import Dialect
from ..contrib import IN_FILES
from ..contrib.group import DOMAIN, Operator
from ..contrib.norms import in_default_domain
from ..files.loading import nested_graphs
from ..files.metadata import declare_outputs, write_metadata, write_signature
from ..files.writing import (
    INITIALIZERS_ALONE,
    Inline,
    Nowhere,
    Storage,
    known_opset,
    least_ir_version,
    opset_of,
    source_ir_version,
    source_opset,
)
from ..schemas import unchanged_span
from .early_inlining import ask_for_early_inlining
from .foreign_nodes import domain_and_operator
from .graph_writer import GraphWriter, declaration
from .model_writer import NEWEST_IR, NEWEST_OPSET, LacksKernel, Large, ModelWriter, NeedsOpset

DEFAULT_IR_VERSION = 13


def export_model(
    graph: Graph,
    *,
    opset: int | None = None,
    ir_version: int | None = None,
    keep_versions: bool = False,
    value_info: bool = True,
    check: bool = True,
    dialect: Dialect = Dialect.FAITHFUL,
    operators: Collection[Operator] = IN_FILES,
    storage: Storage | None = None,
) -> ModelProto:
    """`graph` as an ONNX model.

    `dialect` says which operators export rules may use, `operators` which of ONNX Runtime's own may be written for it.
    `opset` is the version of the default domain (default: the dialect's, or the next one that every operator exists
    in), `ir_version` that of the file format. With `keep_versions` the defaults are those of the model that the graph
    came from, see `versions`; for ONNX Runtime older ones where it takes these or has a kernel there alone. Ops
    whose operator is newer than the opset are written as their parts. `value_info` writes the types of all values,
    which foreign operators of unknown domains need to be imported again. `check` runs onnx's checker with shape
    inference over the result. `storage` says where large tensors go (default: inline).

    Raises `UnsupportedError` when the opset cannot express a node, or the IR version the opset, and for versions that
    the installed onnx does not know, `ResourceError` past 2 GB of inline constants.
    """
    _check_known("opset", opset, onnx.defs.onnx_opset_version())
    _check_known("IR version", ir_version, int(onnx.IR_VERSION))
    low, high = _span(graph)
    if opset is not None and not _within(opset, (low, high)):
        others = _least_opset(graph, low, dialect, operators) if opset < low else high
        raise _means_something_else(next(each for each in _limits(graph) if not _within(opset, each.span)), others)
    wants_kernels = is_for_ort = keep_versions and dialect is Dialect.ORT
    first = opset or (source_opset(graph) if keep_versions else dialect.opset)
    reason = ""
    if is_for_ort and opset is None and first > NEWEST_OPSET:
        first, reason = NEWEST_OPSET, f"opset {NEWEST_OPSET}: ONNX Runtime 1.31 takes none newer"
    target = opset or max(low, first if high is None else min(high, first))
    reason = reason if target <= first else f"opset {target}: an operator means something else before"
    while True:
        writer = ModelWriter(target, storage or Inline(), value_info, dialect, operators)
        writer.is_fixed, writer.came_at = opset is not None, known_opset(graph)
        writer.wants_kernels, writer.last = wants_kernels, opset or high
        usual_ir = _kept_ir_version(graph, target) if keep_versions else DEFAULT_IR_VERSION
        usual_ir = min(usual_ir, NEWEST_IR) if is_for_ort else usual_ir
        try:
            model = _written(writer, graph, reason, check)
            came_with = source_ir_version(graph) if keep_versions and target == known_opset(graph) else 0
            return _with_ir_version(model, ir_version, usual_ir, least_ir_version(model, came_with))
        except NeedsOpset as need:
            if opset is not None or (high is not None and need.version > high):
                remedy = _with_opset(_least_opset(graph, need.version, dialect, operators))
                raise UnsupportedError(f"{need.message} in opset {target}", where=need.where, remedy=remedy) from need
            target, reason = need.version, f"opset {need.version}: {need.message} in opset {target}"
            low = max(low, target)
        except LacksKernel as lack:
            if opset is not None:
                raise UnsupportedError(lack.message, where=lack.where, remedy=_with_opset(lack.last)) from lack
            reason = f"opset {max(low, lack.last)}: {lack.message}"
            wants_kernels = lack.last >= low
            target = max(low, lack.last)


def _with_opset(version: int | None) -> str:
    """What to do, in Python and on the command line."""
    return f"opset={version} (--opset {version})"


def _check_known(what: str, chosen: int | None, newest: int) -> None:
    if chosen is not None and not 1 <= chosen <= newest:
        raise UnsupportedError(
            f"{what} {chosen} is not known: the installed onnx has 1 to {newest}", remedy=f"choose one up to {newest}"
        )


def _least_opset(graph: Graph, first: int, dialect: Dialect, operators: Collection[Operator]) -> int:
    """The lowest opset from `first` on that has every node, as far as `NeedsOpset` says it."""
    while True:
        writer = ModelWriter(first, Nowhere(), False, dialect, operators)
        writer.is_fixed, writer.came_at = True, known_opset(graph)
        try:
            _written(writer, graph, "", False)
        except NeedsOpset as need:
            first = need.version
        except CapgraphError:
            return first
        else:
            return first


def _with_ir_version(model: ModelProto, chosen: int | None, usual: int, least: int) -> ModelProto:
    if chosen is not None and chosen < least:
        lacking = f"opset {opset_of(model)}" if least > INITIALIZERS_ALONE else "weights that are no inputs"
        raise UnsupportedError(f"IR {chosen} is too old for {lacking}", remedy=f"ir_version={least} (--ir {least})")
    model.ir_version = max(least, usual) if chosen is None else chosen
    return model


def _kept_ir_version(graph: Graph, opset: int) -> int:
    """The IR version of the model that `graph` came from if it is written at its opset or a newer one; 0: the least."""
    return source_ir_version(graph) if opset >= source_opset(graph) else 0


class _Limit(NamedTuple):
    """A node of a foreign operator of the default domain, and the opsets in which that means what it does."""

    node: Node
    op_type: str
    span: tuple[int, int | None]


def _limits(graph: Graph) -> Iterator[_Limit]:
    for node in all_nodes(graph):
        domain, op_type = domain_and_operator(node.op) if node.op.is_foreign else ("?", "")
        version = int(node.attrs.get("opset_version") or 1)
        span = unchanged_span(op_type, version, "", frozenset(node.attrs)) if domain == "" else None
        if span is not None:
            yield _Limit(node, op_type, span)


def _span(graph: Graph) -> tuple[int, int | None]:
    """The opsets in which every foreign operator of the default domain means what it meant where it came from."""
    low, high = 1, None
    for limit in _limits(graph):
        first, last = limit.span
        low = max(low, first)
        high = last if high is None or (last is not None and last < high) else high
        if high is not None and low > high:
            raise _means_something_else(limit, last or first)
    return low, high


def _means_something_else(limit: _Limit, other: int | None) -> UnsupportedError:
    first, last = limit.span
    message = f"{limit.op_type} means something else outside opsets {first} to {last or 'the newest'}"
    return UnsupportedError(message, where=limit.node.where(), remedy=_with_opset(other))


def _within(version: int, span: tuple[int, int | None]) -> bool:
    return span[0] <= version and (span[1] is None or version <= span[1])


# ---- the model around the graph


def _written(writer: ModelWriter, graph: Graph, reason: str, check: bool) -> ModelProto:
    """The whole model, of the oldest IR version that has it."""
    _reserve_signature(writer, graph)
    main = GraphWriter(writer)
    inputs = [value.name for value in graph.inputs]
    main.write_body(graph, inputs, list(graph.output_names))
    proto = main.proto(graph, inputs, graph.output_names)
    model = onnx.helper.make_model(
        proto, opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in writer.versions.items()]
    )
    write_metadata(model, graph, reason, writer.as_parts)
    if writer.is_inlined_early:
        ask_for_early_inlining(model)
    model.ir_version = least_ir_version(model)
    large = [Large(name, content) for name, content in graph.defaults.items()] + main.large
    if check:
        _check(model, main.large, writer)
    if DOMAIN in writer.versions:
        in_default_domain(model)
    declare_outputs(model.graph, graph)
    write_signature(model, graph)
    model.graph.initializer.extend(writer.storage.tensor(item.content, item.name) for item in large)
    return model


def _reserve_signature(writer: ModelWriter, graph: Graph) -> None:
    inputs = {value.name: value for value in graph.inputs}
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        if inputs.get(name, value) is not value:
            raise UnsupportedError(
                f"output {name} is called like an input that it does not return, which ONNX cannot express",
                remedy="give the output another name",
            )
        writer.reserve(name)
    for name in inputs:
        writer.reserve(name)


def _check(model: ModelProto, large: Sequence[Large], writer: ModelWriter) -> None:
    """Runs onnx's checker with the large initializers as inputs, so that their contents need not be copied.

    Inputs and outputs of unknown rank, which every runtime takes and the checker does not, are checked as scalars.
    Raises the first of the writer's doubts where it refuses the model, and one that a newer opset settles where it
    does not look at sizes.
    """
    outside = _take_external(model.graph)
    declared = [declaration(item.name, item.content.type) for item in large]
    declared += [
        onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for _, tensors in outside
        for tensor in tensors
    ]
    unknown = [info for info in (*model.graph.input, *model.graph.output) if not _has_shape(info)]
    for doubt in writer.doubts if unknown else ():
        if isinstance(doubt, NeedsOpset) and (writer.last is None or doubt.version <= writer.last):
            raise doubt
    model.graph.input.extend(declared)
    for info in unknown:
        info.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model, full_check=not unknown)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        if writer.doubts:
            raise writer.doubts[0] from error
        raise InternalError(f"the exported model is not valid: {error}", remedy="report it with the graph") from error
    finally:
        del model.graph.input[len(model.graph.input) - len(declared) :]
        for info in unknown:
            info.type.tensor_type.ClearField("shape")
        for graph, tensors in outside:
            graph.initializer.extend(tensors)


def _take_external(graph: GraphProto) -> list[tuple[GraphProto, list[TensorProto]]]:
    """Takes out of subgraphs the initializers that will lie in a file: until it is there the checker refuses them."""
    taken: list[tuple[GraphProto, list[TensorProto]]] = []
    for inner in nested_graphs(graph):
        if not any(map(_is_external, inner.initializer)):
            continue
        tensors = [inner.initializer.pop() for _ in range(len(inner.initializer))][::-1]
        inner.initializer.extend(tensor for tensor in tensors if not _is_external(tensor))
        taken.append((inner, list(filter(_is_external, tensors))))
    return taken


def _is_external(tensor: TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def _has_shape(info: ValueInfoProto) -> bool:
    return not info.type.HasField("tensor_type") or info.type.tensor_type.HasField("shape")
