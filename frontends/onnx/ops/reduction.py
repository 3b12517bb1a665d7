"""Reductions. Their axes are an attribute before opset 18 (13 for ReduceSum), an operand from then on."""

from collections.abc import Callable, Sequence

from ....ir.dims import Truth, is_at_least
from ....ir.graph import Node, Value
from ....ir.types import DType, TensorType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext
from .rows import export_as, import_as

_KINDS = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
    "ReduceSumSquare": "sum_square",
}

# ---- coming in


def import_reduce(ctx: ImportContext) -> Value:
    """Any Reduce operator. Axes that are absent or empty mean all, with `noop_with_empty_axes` none."""
    kind, x = _KINDS[ctx.op_type], ctx.input(0)
    keep_dims, noop = bool(ctx.attr("keepdims", 1)), bool(ctx.attr("noop_with_empty_axes", 0))
    operand = ctx.optional(1)
    given = tuple(ctx.attr("axes", ())) if operand is None else ctx.ints(1)
    if given is None:
        attrs = {"keep_dims": keep_dims, "noop_with_empty_axes": noop}
        return ctx.op("dynamic_reduce", x, operand, kind=kind, **attrs)
    rank = ctx.tensor(0).rank
    axes = given if given or noop else range(rank)
    return ctx.op(
        f"reduce_{kind}", x, axes=tuple(axis % rank if axis < 0 else axis for axis in axes), keep_dims=keep_dims
    )


def _cumulative(name: str) -> Callable[[ImportContext], Value]:
    def rule(ctx: ImportContext) -> Value:
        x, operand, axis = ctx.input(0), ctx.input(1), ctx.ints(1)
        direction = {"exclusive": bool(ctx.attr("exclusive", 0)), "reverse": bool(ctx.attr("reverse", 0))}
        if axis is None:
            return ctx.op(f"dynamic_{name}", x, operand, **direction)
        return ctx.op(name, x, axis=axis[0], **direction)

    return rule


IMPORTS = {
    **dict.fromkeys(_KINDS, import_reduce),
    "ArgMax": import_as("argmax", "axis", keepdims="keep_dims", select_last_index="select_last"),
    "ArgMin": import_as("argmin", "axis", keepdims="keep_dims", select_last_index="select_last"),
    "CumSum": _cumulative("cumsum"),
    "CumProd": _cumulative("cumprod"),
}

# ---- going out


def _axes_are_operand(operator: str, opset: int) -> bool:
    return opset >= (13 if operator == "ReduceSum" else 18)


def _is_global_pool(ty: TensorType, axes: Sequence[int], keep_dims: bool) -> bool:
    """Whether a reduction is what models write as a global pool.

    Runtimes sum the two in different orders; a model whose pool came in as such should leave with the same numbers. Not
    so of the greatest: ONNX Runtime's GlobalMaxPool has the lowest finite number for -inf. Nor where sizes behind the
    batch may be 0: it refuses to pool those.
    """
    spatial = tuple(range(2, ty.rank))
    normal = tuple(sorted(axis % ty.rank for axis in axes))
    has_elements = all(isinstance(dim, int) and dim > 0 for dim in (ty.shape or ())[1:])
    return keep_dims and ty.dtype is DType.F32 and bool(spatial) and normal == spatial and has_elements


def _export_reduce(operator: str) -> Callable[[ExportContext, Node], None]:
    def rule(ctx: ExportContext, node: Node) -> None:
        axes, keep_dims = node.attrs["axes"], node.attrs["keep_dims"]
        x = node.operands[0]
        if operator == "ReduceMean" and not ctx.is_part and _is_global_pool(x.tensor, axes, keep_dims):
            ctx.emit("GlobalAveragePool", (x,), node.outputs)
            return
        if not axes and not _axes_are_operand(operator, ctx.opset):
            if operator in ("ReduceL2", "ReduceLogSum") and x.tensor.dtype.is_integer:
                # Squares wrap around, Log takes floats: over an axis of one element instead.
                last = (x.tensor.rank,)
                is_attribute = ctx.opset < 13
                operands = (x,) if is_attribute else (x, ctx.ints(last))
                column = ctx.emit_value("Unsqueeze", operands, axes=last if is_attribute else None)
                ctx.emit(operator, (column,), node.outputs, axes=last, keepdims=False)
                return
            _write_elementwise(ctx, node, operator)
            return
        noop = True if not axes else None
        if _axes_are_operand(operator, ctx.opset):
            operands = (x, ctx.ints(axes))
            ctx.emit(operator, operands, node.outputs, keepdims=keep_dims, noop_with_empty_axes=noop)
        else:
            ctx.emit(operator, (x,), node.outputs, axes=axes, keepdims=keep_dims)

    return rule


_OF_ONE = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log"}


def _write_elementwise(ctx: ExportContext, node: Node, operator: str) -> None:
    """A reduction over no axis, which older operators take for one over all of them."""
    x = node.operands[0]
    if operator == "ReduceSumSquare":
        ctx.emit("Mul", (x, x), node.outputs)
    else:
        ctx.emit(_OF_ONE.get(operator, "Identity"), (x,), node.outputs)


def export_dynamic_reduce(ctx: ExportContext, node: Node) -> None:
    """The Reduce operator of its kind, with the axes as operand.

    Of an operand without elements ONNX Runtime keeps axes that are counted from the end.
    """
    operator = next(key for key, kind in _KINDS.items() if kind == node.attrs["kind"])
    if not _axes_are_operand(operator, ctx.opset):
        ctx.require_opset(18, f"{operator} with axes that are an operand")
    x, axes = node.operands
    given: Value | str = axes
    if ctx.dialect is Dialect.ORT and x.tensor.rank and is_at_least(x.tensor.size, 1) is not Truth.YES:
        given = ctx.emit_value("Mod", (axes, ctx.ints([x.tensor.rank])))
    noop = node.attrs["noop_with_empty_axes"]
    ctx.emit(operator, (x, given), node.outputs, keepdims=node.attrs["keep_dims"], noop_with_empty_axes=noop)


def _export_cumulative(operator: str) -> Callable[[ExportContext, Node], None]:
    def rule(ctx: ExportContext, node: Node) -> None:
        axis = ctx.constant(node.attrs["axis"], DType.I64)
        attrs = {name: node.attrs[name] for name in ("exclusive", "reverse")}
        ctx.emit(operator, (node.operands[0], axis), node.outputs, **attrs)

    return rule


EXPORTS = {
    **{f"reduce_{kind}": _export_reduce(operator) for operator, kind in _KINDS.items()},
    "dynamic_reduce": export_dynamic_reduce,
    "argmax": export_as("ArgMax", "axis", keepdims="keep_dims", select_last_index="select_last"),
    "argmin": export_as("ArgMin", "axis", keepdims="keep_dims", select_last_index="select_last"),
    "cumsum": _export_cumulative("CumSum"),
    "cumprod": _export_cumulative("CumProd"),
    "dynamic_cumsum": export_as("CumSum", "exclusive", "reverse"),
    "dynamic_cumprod": export_as("CumProd", "exclusive", "reverse"),
}
