"""Foreign ONNX operators as nodes of the IR: their names, their attributes, and how they are written back.

An operator of the default domain is called `onnx.Foo`, any other `domain.Foo` (`ai.onnx.ml.ZipMap`,
`com.microsoft.Bar`).
Beside the operator's own attributes its node has

* `opset_version`: the first version of its domain in which it means what it does in the model; of an unknown operator,
  the version that the model imports;
* `captured`: for operators with subgraphs, how many outer values each of them reads. Those are the node's last
  operands, and the last inputs of the region;
* `results`: the positions of its results, where the model leaves out one that is not the last.
"""

from collections.abc import Sequence
from itertools import zip_longest

from ....ir.errors import ModelError, UnsupportedError
from ....ir.graph import Graph, Node
from ....ir.op import Op, foreign
from ..context.export_context import ExportContext, Operand
from ..ops.control import doubt_states, require_branches
from ..ops.recurrent import IMPORTS, require_hidden_size
from ..schemas import unchanged_span

OWN_ATTRIBUTES = ("opset_version", "captured", "results")

_DEFAULT = "onnx"


def foreign_op(domain: str, op_type: str) -> Op:
    """The foreign op of an operator. Raises `ModelError` when the two names cannot be told apart again."""
    if not op_type or "." in op_type or domain == _DEFAULT:
        raise ModelError(f"operator {op_type!r} of domain {domain!r} has a name that is not allowed")
    return foreign(f"{domain or _DEFAULT}.{op_type}")


def domain_and_operator(op: Op) -> tuple[str, str]:
    """The ONNX domain and operator type of a foreign op; those of another ecosystem give its prefix as the domain."""
    domain, _, op_type = op.name.rpartition(".")
    return ("" if domain == _DEFAULT else domain), op_type


def own_inputs(node: Node) -> int:
    """How many of the node's operands are the operator's own; the rest are captured by its regions."""
    return len(node.inputs) - sum(node.attrs.get("captured", ()))


def write_foreign(ctx: ExportContext, node: Node) -> None:
    """Writes a foreign node as the ONNX operator that it was."""
    domain, op_type = domain_and_operator(node.op)
    version = node.attrs.get("opset_version")
    if domain and version is None:
        raise UnsupportedError(
            f"{node.op.name} is no ONNX operator", remedy="keep the part of the model that uses it out of ONNX"
        )
    span = unchanged_span(op_type, int(version or 1), domain)
    ctx.use_domain(domain, int(version or 1), span[1] if span is not None else None)
    attributes = {name: value for name, value in node.attrs.items() if name not in OWN_ATTRIBUTES}
    if node.op.name == "onnx.SplitToSequence" and len(node.inputs) > 1:
        attributes.pop("keepdims", None)  # which is to be passed over there, and ONNX Runtime does not
    if not domain and op_type in IMPORTS:
        require_hidden_size(ctx, attributes.get("hidden_size"))
    if not domain and op_type == "If":
        require_branches(ctx, attributes["then_branch"], attributes["else_branch"])
    if not domain and op_type == "Scan":
        body = attributes["body"]
        doubt_states(ctx, body, len(body.inputs) - sum(node.attrs["captured"]) - attributes["num_scan_inputs"])
    counts = iter(node.attrs.get("captured", ()))
    taken = own_inputs(node)
    for name, value in attributes.items():
        if isinstance(value, Graph):
            count = next(counts, 0)
            captured = node.inputs[taken : taken + count]
            attributes[name] = ctx.region(value, captured, keep_names=bool(domain))  # BeamSearch knows them by name
            taken += count
    inputs, outputs = node.inputs[: own_inputs(node)], results_in_place(node)
    if not domain and op_type in _NAMED:
        outputs = _with_names(ctx, outputs, op_type == "Loop")
    ctx.writer.emit(node, op_type, inputs, outputs, domain, attributes)


_NAMED = ("If", "Loop", "Scan")
"""Operators whose results must all have names for ONNX Runtime, which ends the process at a Loop without one."""


def _with_names(ctx: ExportContext, outputs: Sequence[Operand], skipped: int) -> list[Operand]:
    """The results, as many as a region gives after the first few, with names for those that nobody reads."""
    region = next(iter(ctx.node.regions.values()))
    pairs = zip_longest(outputs, region.outputs[skipped:])
    return [ctx.writer.new_name("unread") if value is None else value for value, _ in pairs]


def results_in_place(node: Node) -> Sequence[Operand]:
    """The node's results at the operator's positions, None where the model leaves one out."""
    places = node.attrs.get("results")
    if places is None:
        return node.outputs
    by_place = dict(zip(places, node.outputs, strict=True))
    return [by_place.get(place) for place in range(max(places) + 1)]
