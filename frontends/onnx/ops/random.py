"""Random tensors, and Dropout, which only draws while training. ONNX's seeds are floats, native ones integers."""

import struct
from collections.abc import Callable, Sequence

from ....ir.constant import Constant
from ....ir.dims import Dim
from ....ir.graph import Node, Value
from ....ir.types import DType
from ..context.dialect import Dialect
from ..context.export_context import ExportContext, Operand
from ..context.import_context import ImportContext, NotNative
from ..tensors import dtype_of
from .rows import attribute_default

_PARAMETERS = {"normal": ("mean", "scale"), "uniform": ("low", "high")}

# ---- coming in


def _seed(ctx: ImportContext) -> int | None:
    """The seed as an integer: its value when it is whole, else its bits."""
    seed = ctx.attr("seed")
    if seed is None:
        return None
    return int(seed) if float(seed).is_integer() else int(struct.unpack("<i", struct.pack("<f", seed))[0])


def _fill(distribution: str) -> Callable[[ImportContext], Value]:
    def rule(ctx: ImportContext) -> Value:
        dtype = dtype_of(ctx.attr("dtype", 1))
        return _drawn(ctx, distribution, tuple(ctx.attr("shape", ())), dtype)

    return rule


def _fill_like(distribution: str) -> Callable[[ImportContext], Value]:
    def rule(ctx: ImportContext) -> Value:
        like = ctx.tensor(0)
        if not ctx.may_mention(like.dims):
            raise NotNative("a shape that depends on data")
        number = ctx.attr("dtype", 0)
        return _drawn(ctx, distribution, like.dims, dtype_of(number) if number else like.dtype)

    return rule


def _drawn(ctx: ImportContext, distribution: str, shape: Sequence[Dim], dtype: DType) -> Value:
    parameters = {name: ctx.attr(name, attribute_default(ctx, name)) for name in _PARAMETERS[distribution]}
    return ctx.op(f"random_{distribution}", shape=tuple(shape), dtype=dtype, seed=_seed(ctx), **parameters)


def import_bernoulli(ctx: ImportContext) -> Value:
    """Bernoulli."""
    number = ctx.attr("dtype", 0)
    dtype = dtype_of(number) if number else ctx.tensor(0).dtype
    return ctx.op("bernoulli", ctx.input(0), dtype=dtype, seed=_seed(ctx))


def import_multinomial(ctx: ImportContext) -> Value:
    """Multinomial."""
    dtype, count = dtype_of(ctx.attr("dtype", 6)), ctx.attr("sample_size", 1)
    return ctx.op("multinomial", ctx.input(0), dtype=dtype, sample_size=count, seed=_seed(ctx))


def import_dropout(ctx: ImportContext) -> Sequence[Value | None]:
    """Dropout outside training: its operand itself, and a mask that keeps everything."""
    x = ctx.input(0)
    if ctx.optional(2) is not None and _may_train(ctx):
        raise NotNative("training")
    if not ctx.wants(1):
        return (x,)
    if ctx.version < 10 or not ctx.may_mention(x.shape):
        raise NotNative("a mask that is not of bools, or of a shape that depends on data")
    return x, ctx.op("full", shape=x.shape, value=Constant(True))


def _may_train(ctx: ImportContext) -> bool:
    training_mode = ctx.array(2)
    return training_mode is None or bool(training_mode.any())


IMPORTS = {
    "RandomNormal": _fill("normal"),
    "RandomUniform": _fill("uniform"),
    "RandomNormalLike": _fill_like("normal"),
    "RandomUniformLike": _fill_like("uniform"),
    "Bernoulli": import_bernoulli,
    "Multinomial": import_multinomial,
    "Dropout": import_dropout,
}

# ---- going out


def _export_fill(operator: str, *parameters: str) -> Callable[[ExportContext, Node], None]:
    """By its size or like a tensor; in f32 and cast where ONNX Runtime draws no such numbers."""

    def rule(ctx: ExportContext, node: Node) -> None:
        shape, dtype = node.attrs["shape"], node.attrs["dtype"]
        attrs = {name: node.attrs[name] for name in ("dtype", "seed", *parameters)}
        is_cast = ctx.dialect is not Dialect.FAITHFUL and dtype.bits < 32
        if is_cast:
            attrs["dtype"] = DType.F32
        operands: tuple[Operand, ...] = ()
        if all(isinstance(dim, int) for dim in shape):
            name, attrs["shape"] = operator, shape
        else:
            name, operands = f"{operator}Like", (ctx.like(shape),)
        if is_cast:
            ctx.emit("Cast", (ctx.emit_value(name, operands, **attrs),), node.outputs, to=dtype)
        else:
            ctx.emit(name, operands, node.outputs, **attrs)

    return rule


def export_bernoulli(ctx: ExportContext, node: Node) -> None:
    """Bernoulli."""
    ctx.emit("Bernoulli", node.inputs, node.outputs, dtype=node.attrs["dtype"], seed=node.attrs["seed"])


def export_multinomial(ctx: ExportContext, node: Node) -> None:
    """Multinomial."""
    attrs = {name: node.attrs[name] for name in ("dtype", "sample_size", "seed")}
    ctx.emit("Multinomial", node.inputs, node.outputs, **attrs)


EXPORTS = {
    "random_normal": _export_fill("RandomNormal", *_PARAMETERS["normal"]),
    "random_uniform": _export_fill("RandomUniform", *_PARAMETERS["uniform"]),
    "bernoulli": export_bernoulli,
    "multinomial": export_multinomial,
}
