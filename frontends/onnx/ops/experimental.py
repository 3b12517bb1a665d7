"""Operators that were experimental and left ONNX before opset 10; converters from Core ML still wrote them.

The onnx package has no schemas of them any more: their signatures and meanings are those of ONNX Runtime, which runs
them up to opset 9. They go out as the standard operators that they consist of.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from onnx.defs import OpSchema

from ....ir.dims import Dim, Truth, is_at_least
from ....ir.errors import ModelError
from ....ir.graph import Node, Value
from ..context.export_context import ExportContext
from ..context.import_context import ImportContext, NotNative
from ..schemas import signature_problem

_REMOVED = 10
"""The first opset without them."""

_REMEDY = "export the model again"
_FLOAT, _FLOATS, _INTS = OpSchema.AttrType.FLOAT, OpSchema.AttrType.FLOATS, OpSchema.AttrType.INTS


def import_image_scaler(ctx: ImportContext) -> Value:
    """ImageScaler: x * scale + bias, with a bias for each channel of x [N, C, H, W]."""
    x, bias, channels = ctx.input(0), ctx.attr("bias"), _image_dims(ctx)[1]
    if isinstance(channels, int) and channels != len(bias):
        raise ModelError(f"ImageScaler has {len(bias)} biases for {channels} channels", remedy=_REMEDY)
    scaled = ctx.op("mul", x, ctx.scalar_like(ctx.attr("scale", 1.0), x))
    return ctx.op("add", scaled, ctx.constant(np.reshape(bias, (-1, 1, 1)), x.tensor.dtype))


def import_scale(ctx: ImportContext) -> Value:
    """Scale: x * scale."""
    x = ctx.input(0)
    return ctx.op("mul", x, ctx.scalar_like(ctx.attr("scale", 1.0), x))


def import_affine(ctx: ImportContext) -> Value:
    """Affine: alpha * x + beta."""
    x = ctx.input(0)
    scaled = ctx.op("mul", x, ctx.scalar_like(ctx.attr("alpha", 1.0), x))
    return ctx.op("add", scaled, ctx.scalar_like(ctx.attr("beta", 0.0), x))


def _import_scaled(ctx: ImportContext, *, function: str) -> Value:
    """ScaledTanh and ParametricSoftplus: alpha * function(beta * x)."""
    x = ctx.input(0)
    inner = ctx.op("mul", x, ctx.scalar_like(ctx.attr("beta"), x))
    return ctx.op("mul", ctx.op(function, inner), ctx.scalar_like(ctx.attr("alpha"), x))


def import_crop(ctx: ImportContext) -> Value:
    """Crop: x [N, C, H, W] without its borders, or as much of it as `scale` says from the left and top border on.

    Where only running tells the sizes it takes what is there, as slices do; ONNX Runtime refuses what is too small.
    """
    border, scale = ctx.attr("border"), ctx.attr("scale", ())
    if len(border) != 4 or len(scale) not in (0, 2) or min(*border, *scale) < 0:
        raise ModelError(
            f"Crop needs four borders and no or two sizes, none negative, not {border} and {scale}", remedy=_REMEDY
        )
    left, top, right, bottom = border
    height, width = _image_dims(ctx)[2:]
    ends = (top + scale[0], left + scale[1]) if scale else (-bottom or height, -right or width)
    needed = ends if scale else (top + bottom, left + right)
    for size, least in ((height, needed[0]), (width, needed[1])):
        if is_at_least(size, least) is Truth.NO:
            raise ModelError(f"Crop needs a size of at least {least}, not {size}", remedy=_REMEDY)
    return ctx.op("slice", ctx.input(0), axes=(2, 3), starts=(top, left), ends=ends, steps=(1, 1))


def _image_dims(ctx: ImportContext) -> tuple[Dim, ...]:
    """The sizes of operand 0, which must be [N, C, H, W]."""
    ty = ctx.tensor(0)
    if ty.rank != 4:
        raise ModelError(f"{ctx.op_type} needs a tensor of rank 4, not {ty}", remedy=_REMEDY)
    return ty.dims


_Rule = Callable[[ImportContext], Value]
_Types = Mapping[str, OpSchema.AttrType]


def _row(operator: str, rule: _Rule, required: _Types, optional: _Types) -> tuple[str, _Rule]:
    """A row of the table: `rule` behind the checks that other operators get from their schemas."""
    attributes = [OpSchema.Attribute(name, kind, required=True) for name, kind in required.items()]
    attributes += [OpSchema.Attribute(name, kind, required=False) for name, kind in optional.items()]
    operand, result = OpSchema.FormalParameter("x", "T"), OpSchema.FormalParameter("y", "T")
    types = [("T", ["tensor(float16)", "tensor(float)", "tensor(double)"], "")]
    schema = OpSchema(
        operator, "", 1, inputs=[operand], outputs=[result], type_constraints=types, attributes=attributes
    )

    def checked(ctx: ImportContext) -> Value:
        if ctx.version >= _REMOVED:
            raise NotNative(f"{operator} left ONNX before opset {_REMOVED}")
        problem = signature_problem(schema, ctx.attributes, len(ctx.inputs), ctx.output_count)
        if problem:
            raise ModelError(f"{operator} {problem}", remedy=_REMEDY)
        return rule(ctx)

    return operator, checked


_ALPHA_BETA = {"alpha": _FLOAT, "beta": _FLOAT}

IMPORTS = dict(
    [
        _row("Affine", import_affine, {}, _ALPHA_BETA),
        _row("Crop", import_crop, {"border": _INTS}, {"scale": _INTS}),
        _row("ImageScaler", import_image_scaler, {"bias": _FLOATS}, {"scale": _FLOAT}),
        _row("ParametricSoftplus", partial(_import_scaled, function="softplus"), _ALPHA_BETA, {}),
        _row("Scale", import_scale, {}, {"scale": _FLOAT}),
        _row("ScaledTanh", partial(_import_scaled, function="tanh"), _ALPHA_BETA, {}),
    ]
)

EXPORTS: dict[str, Callable[[ExportContext, Node], None]] = {}
