"""If, Loop and Scan: regions, whose outer values the importer has lifted to inputs."""

from collections.abc import Sequence

from ....ir.dims import Dim, SymDim, Truth, compare
from ....ir.dims.constraints import assume_bound, collect_constraints
from ....ir.errors import CapgraphError, ModelError, ShapeError, UnsupportedError
from ....ir.graph import Graph, Node, Value
from ....ir.op import FRESH
from ....ir.ops import native
from ....ir.types import DType, TensorType, compatible
from ..context.export_context import ExportContext
from ..context.import_context import MAX_PRECISE_DEPTH, ImportContext, ImportedRegion, NotNative

# ---- If


def import_if(ctx: ImportContext) -> tuple[Value, ...]:
    """If. Both bodies get the values that either of them reads; of a constant condition one body is taken."""
    known = ctx.array(0)
    if known is not None and known.size == 1:
        return ctx.in_place("then_branch" if known.item() else "else_branch")
    regions = {"then_body": ctx.region("then_branch"), "else_body": ctx.region("else_branch")}
    captured = tuple(dict.fromkeys(value for region in regions.values() for value in region.captured))
    for region in regions.values():
        _give_inputs(region, captured)
    bodies = {name: region.body for name, region in regions.items()}
    return ctx.ops("if", _scalar(ctx, ctx.input(0)), *captured, **bodies)


def _give_inputs(region: ImportedRegion, captured: Sequence[Value]) -> None:
    """Makes the inputs of a body that has none of its own stand for `captured`, in this order."""
    if region.captured == captured:
        return
    body, old = region.body, dict(zip(region.captured, region.body.inputs, strict=True))
    for value in captured:
        new = body.add_input(body.unused_name(value.name), value.type)
        if value in old:
            body.replace_uses(old[value], new)
            body.remove_input(old[value])


def _scalar(ctx: ImportContext, value: Value) -> Value:
    """A one-element operand as rank 0."""
    return value if value.tensor.rank == 0 else ctx.op("reshape", value, shape=())


# ---- Loop


def import_loop(ctx: ImportContext) -> tuple[Value, ...]:
    """Loop over tensors."""
    trip, cond = (_scalar(ctx, value) if value is not None else None for value in (ctx.optional(0), ctx.optional(1)))
    initial = [ctx.input(index) for index in range(2, len(ctx.inputs))]
    types = [ctx.tensor(index) for index in range(2, len(ctx.inputs))]
    counters = [TensorType(dtype, (1,) * _declared_rank(ctx, index)) for index, dtype in enumerate(_COUNTERS)]
    region = _import_carrying(ctx, counters, types, [], first_result=1)
    _make_counters_scalar(region.body)
    return ctx.ops("loop", trip, cond, *initial, *region.captured, body=region.body, carried=len(initial))


_COUNTERS = (DType.I64, DType.BOOL)  # a body's first inputs: iteration and condition


def _declared_rank(ctx: ImportContext, index: int) -> int:
    """The rank of the iteration or condition in the body: 0, but 1 where the model declares that."""
    inputs = ctx.attributes["body"].g.input
    if index >= len(inputs):
        raise ModelError("the body of a Loop has the iteration and the condition as inputs")
    return 1 if len(inputs[index].type.tensor_type.shape.dim) == 1 else 0


def _make_counters_scalar(body: Graph) -> None:
    """Makes iteration, condition and resulting condition of a loop body rank 0, as the native op has them."""
    if any(value.tensor.rank for value in body.inputs[:2]):
        for index, old in enumerate(body.inputs):
            scalar = index < 2 and old.tensor.rank
            new = body.add_input(body.unused_name(old.name), old.tensor.with_shape(()) if scalar else old.type)
            body.replace_uses(old, _reshaped(body, new, (1,)) if scalar else new)
            body.remove_input(old)
    cond, *others = body.outputs
    if cond.tensor.rank:
        flat = body.append(native("reshape"), [cond], {"shape": ()}).output
        body.set_outputs([flat, *others], body.output_names)


def _reshaped(body: Graph, value: Value, shape: tuple[int, ...]) -> Value:
    """`value` in another shape, before all other nodes."""
    if body.first is None:
        return body.append(native("reshape"), [value], {"shape": shape}).output
    return body.insert_before(body.first, native("reshape"), [value], {"shape": shape}).output


def _import_carrying(
    ctx: ImportContext,
    before: Sequence[TensorType],
    initial: Sequence[TensorType],
    after: Sequence[TensorType],
    *,
    first_result: int,
) -> ImportedRegion:
    """The body of a loop whose carried inputs stand between `before` and `after`, its results from `first_result` on.

    It is imported with the sizes of the initial values first; a size that comes out otherwise than it went in becomes
    a symbol of the body's own, and if that changes other sizes, all of them do.
    """
    unknown = [ty.with_shape((FRESH,) * ty.rank) for ty in initial]
    types = list(initial)
    if ctx.scope.depth < MAX_PRECISE_DEPTH:
        for _ in range(2):
            with collect_constraints() as found:
                region = _tried(ctx, [*before, *types, *after])
            if region is None:
                break
            wider = _widened(types, region.body, len(before), first_result)
            if wider == types:
                assume_bound(found, _first_sizes(region.body, len(before), initial))
                return region
            types = wider
    with collect_constraints() as found:
        region = ctx.region_with_types("body", [*before, *unknown, *after])
    assume_bound(found, _first_sizes(region.body, len(before), initial))
    return region


def _first_sizes(body: Graph, first_input: int, initial: Sequence[TensorType]) -> dict[str, Dim]:
    """The body's own symbols for sizes that it carries, with what they are in the first round."""
    carried = body.inputs[first_input : first_input + len(initial)]
    return {
        next(iter(own.symbols)): size
        for value, ty in zip(carried, initial, strict=True)
        for own, size in zip(value.tensor.dims, ty.dims, strict=True)
        if isinstance(own, SymDim) and own != size and len(own.symbols) == 1
    }


def _tried(ctx: ImportContext, types: Sequence[TensorType]) -> ImportedRegion | None:
    """The body with inputs of these types, None when it cannot have such sizes: not all of them need to occur."""
    try:
        return ctx.region_with_types("body", types)
    except ShapeError:
        return None


def _widened(types: Sequence[TensorType], body: Graph, first_input: int, first_result: int) -> list[TensorType]:
    """The carried types with FRESH for every size that the body does not give as it got it."""
    wider: list[TensorType] = []
    for position, ty in enumerate(types):
        if first_result + position >= len(body.outputs):
            raise ModelError(
                f"the body of a Loop or Scan gives {len(body.outputs)} results, too few for what it carries"
            )
        went_in, came_out = body.inputs[first_input + position].tensor, body.outputs[first_result + position].type
        if not isinstance(came_out, TensorType) or came_out.shape is None or came_out.rank != ty.rank:
            raise NotNative(f"a carried value is {ty} and becomes {came_out}")
        wider.append(ty.with_shape(tuple(map(_kept, ty.dims, went_in.dims, came_out.dims))))
    return wider


def _kept(dim: Dim, went_in: Dim, came_out: Dim) -> Dim:
    return dim if compare(went_in, came_out) is Truth.YES else FRESH


# ---- Scan


def import_scan(ctx: ImportContext) -> tuple[Value, ...]:
    """Scan, which in opset 8 has a batch as leading axis."""
    if ctx.version < 9:
        return _import_batched_scan(ctx)
    count = int(ctx.attr("num_scan_inputs"))
    states, values = len(ctx.inputs) - count, [ctx.input(index) for index in range(len(ctx.inputs))]
    types = [ctx.tensor(index) for index in range(len(ctx.inputs))]
    if states < 0 or any(ty.rank == 0 for ty in types[states:]):
        raise ModelError(f"a Scan over {count} inputs has {len(values)} operands, or runs over a scalar")
    axes = ctx.attr("scan_input_axes", ())
    slices = [_slice_type(ty, axes[index] if axes else 0) for index, ty in enumerate(types[states:])]
    region = _import_carrying(ctx, [], types[:states], slices, first_result=0)
    return ctx.ops(
        "scan",
        *values,
        *region.captured,
        body=region.body,
        states=states,
        scan_inputs=count,
        input_axes=axes,
        output_axes=ctx.attr("scan_output_axes", ()),
        input_reverse=ctx.attr("scan_input_directions", ()),
        output_reverse=ctx.attr("scan_output_directions", ()),
    )


def _import_batched_scan(ctx: ImportContext) -> tuple[Value, ...]:
    """Scan of opset 8: a scan over the samples of a batch, whose body is the scan that each of them is."""
    if ctx.optional(0) is not None:
        raise NotNative("a Scan over samples of different lengths")
    count = int(ctx.attr("num_scan_inputs"))
    values, states = [ctx.input(index) for index in range(1, len(ctx.inputs))], len(ctx.inputs) - 1 - count
    types = [_slice_type(value.tensor, 0) for value in values]
    region = _import_carrying(ctx, [], types[:states], [_slice_type(ty, 0) for ty in types[states:]], first_result=0)
    sample = Graph("sample", symbols=ctx.graph.symbols)
    inner = [sample.add_input(f"x{index}", ty) for index, ty in enumerate(types)]
    inner += [sample.add_input(f"outer{index}", value.type) for index, value in enumerate(region.captured)]
    directions = ctx.attr("directions", ())
    attrs = {"body": region.body, "states": states, "scan_inputs": count, "input_reverse": directions}
    sample.set_outputs(sample.append(native("scan"), inner, attrs, origin=ctx.origin).outputs)
    return ctx.ops("scan", *values, *region.captured, body=sample, states=0, scan_inputs=len(values))


def _slice_type(ty: TensorType, axis: int) -> TensorType:
    at = axis % ty.rank
    return ty.with_shape((*ty.dims[:at], *ty.dims[at + 1 :]))


IMPORTS = {"If": import_if, "Loop": import_loop, "Scan": import_scan}

# ---- going out


def export_if(ctx: ExportContext, node: Node) -> None:
    """If, whose branches read captured values from around them."""
    cond, *captured = node.inputs
    require_branches(ctx, *node.regions.values())
    branches = {onnx: ctx.region(node.attrs[ours], captured) for onnx, ours in _BRANCHES.items()}
    ctx.emit("If", (cond,), node.outputs, **branches)


def require_branches(ctx: ExportContext, one: Graph, other: Graph) -> None:
    """Says that the node needs opset 11 where branches of an If give results of other shapes."""
    alike = [compatible(left.type, right.type) for left, right in zip(one.outputs, other.outputs, strict=False)]
    try:
        if set(alike) - {Truth.YES}:
            ctx.require_opset(11, "If of branches whose results have other shapes")
    except CapgraphError as error:
        if Truth.NO in alike:
            raise
        ctx.doubt(error)


_BRANCHES = {"then_branch": "then_body", "else_branch": "else_body"}


def export_loop(ctx: ExportContext, node: Node) -> None:
    """Loop, whose body reads captured values from around it."""
    own = 2 + node.attrs["carried"]
    body = ctx.region(node.attrs["body"], node.inputs[own:])
    ctx.emit("Loop", node.inputs[:own], node.outputs, body=body)


def doubt_states(ctx: ExportContext, body: Graph, states: int) -> None:
    """Notes that the sizes of a Scan's states may change, which ONNX does not allow."""
    pairs = zip(body.inputs[:states], body.outputs, strict=False)
    if any(compatible(old.type, new.type) is not Truth.YES for old, new in pairs):
        ctx.doubt(UnsupportedError("ONNX has no Scan whose states change their sizes", remedy="make it a loop"))


def export_scan(ctx: ExportContext, node: Node) -> None:
    """Scan, whose body reads captured values from around it."""
    own = node.attrs["states"] + node.attrs["scan_inputs"]
    doubt_states(ctx, node.attrs["body"], node.attrs["states"])
    ctx.emit(
        "Scan",
        node.inputs[:own],
        node.outputs,
        body=ctx.region(node.attrs["body"], node.inputs[own:]),
        num_scan_inputs=node.attrs["scan_inputs"],
        scan_input_axes=node.attrs["input_axes"] or None,
        scan_output_axes=node.attrs["output_axes"] or None,
        scan_input_directions=node.attrs["input_reverse"] or None,
        scan_output_directions=node.attrs["output_reverse"] or None,
    )


EXPORTS = {"if": export_if, "loop": export_loop, "scan": export_scan}
