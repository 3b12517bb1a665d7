"""Softmax, norms and more as reductions over axes and elementwise work around them: what each op means in a program.

A reduction gives one value for each row, which later statements use like any other. So a region of several such nodes,
with elementwise ones before, between and behind them, is one program.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ....ir.errors import UnsupportedError
from ....ir.graph import Node, Value
from ....ir.op import Trait
from ....ir.ops.rules import normal_axes, normal_axis
from ....ir.types import DType, Kind
from ..kernel_ir.casts import converted
from ..kernel_ir.layouts import INT_LIMIT, Layout, dense
from ..kernel_ir.pointwise import StatementBuilder, is_pointwise
from ..kernel_ir.program import NOWHERE, KernelProgram
from ..kernel_ir.regions import FusedRegion, shape_of
from ..kernel_ir.types import Name, computed, number, unsigned


class ReductionBuilder(StatementBuilder):
    """Turns nodes into statements with reductions; `groups`, where not 0, divides axis 1 into groups of channels."""

    def __init__(self, region: FusedRegion, program: KernelProgram, shape: tuple[int, ...], groups: int = 0) -> None:
        super().__init__(region, program)
        self.shape = shape
        self.groups = groups

    def seen(self, layout: Layout) -> Layout:
        """A tensor as the domain sees it."""
        if not self.groups:
            return layout
        whole = layout.broadcast(self.shape)
        return whole.split(1, (self.groups, self.shape[1] // self.groups))

    def per_channel(self, value: Value) -> Name:
        """A vector with one element for each index of axis 1."""
        constant = None if value in self.region.sources else self.region.constants.get(value)
        layout = self.source(value) if constant is None else dense(constant.dtype, shape_of(value), NOWHERE)
        for _ in self.shape[2:]:
            layout = layout.inserted(len(layout.shape), 1)
        seen = self.seen(layout)
        return self.program.load(seen) if constant is None else self.program.table(constant, seen)

    def finish(self) -> None:
        """Adds the elementwise work of the region, and its results.

        Raises `UnsupportedError` for other work.
        """
        for node in self.region.nodes:
            if node.output in self.names:
                continue
            if not is_pointwise(node) or shape_of(node.output) != self.shape:
                raise UnsupportedError(f"{node.op.name} gives {node.output.type} beside a norm of {list(self.shape)}")
            self.elementwise(node)
        for value, layout in self.region.results:
            self.program.store(self.name(value), self.seen(layout))

    # ---- reductions in the type of the operand

    def sum(self, text: str, dtype: DType) -> Name:
        """The sum of `text`, which is of type `dtype`; integers wrap around."""
        return self._total("sum", "0", text, dtype)

    def prod(self, text: str, dtype: DType) -> Name:
        """The product of `text`."""
        return self._total("prod", "1", text, dtype)

    def _total(self, functor: str, start: str, text: str, dtype: DType) -> Name:
        if not dtype.is_integer:
            return self.program.reduce(functor, computed(dtype), start, text, dtype)
        wide = unsigned(dtype)
        total = self.program.reduce(functor, wide, start, f"({wide})({text})", dtype)
        return self.program.define(dtype, f"({computed(dtype)}){total.text}")

    def extremum(self, name: str, text: str, dtype: DType) -> Name:
        """The greatest ("max_of") or least ("min_of") of `text`."""
        is_greatest = name == "max_of"
        if dtype.is_float:
            ctype = computed(dtype)
            start = number(float("-inf") if is_greatest else float("inf"), ctype)
            return self.program.reduce(name, ctype, start, text, dtype)
        wide, start = _integer_limit(dtype, is_greatest)
        found = self.program.reduce(name, wide, start, f"({wide}){text}", dtype)
        return self.program.define(dtype, found.text if dtype is not DType.BOOL else f"{found.text} != 0")

    def best(self, x: Name, axis: int, *, greatest: bool, last: bool, nan_first: bool) -> tuple[str, Name]:
        """The best element along `axis` and its index, as the C++ type of the pair and its name.

        Raises `UnsupportedError` for an axis whose indices do not fit an int.
        """
        if self.program.domain[axis] >= INT_LIMIT:
            raise UnsupportedError(f"an axis of {self.program.domain[axis]} elements is too long for argmax")
        wide = "int" if x.dtype.kind is Kind.BOOL or (x.dtype.is_integer and x.dtype.bits < 32) else x.ctype
        ctype = f"indexed<{wide}>"
        at = self.program.coordinate(axis)
        flags = ", ".join("true" if flag else "false" for flag in (greatest, last, nan_first))
        text = f"{ctype}{{({wide}){x.text}, (int){at.text}}}"
        return wide, self.program.reduce(f"best<{flags}>", ctype, f"{ctype}{{0, -1}}", text, x.dtype)


def _integer_limit(dtype: DType, is_greatest: bool) -> tuple[str, str]:
    """The type in which integers are compared, and what is least (or greatest) of all in `dtype`."""
    if dtype is DType.BOOL:
        return "int", "0" if is_greatest else "1"
    wide = computed(dtype) if dtype.bits >= 32 else "int"
    least = "0" if dtype.kind is Kind.UINT else f"(-{2 ** (dtype.bits - 1) - 1}ll - 1)"
    most = f"{2 ** (dtype.bits - (dtype.kind is Kind.INT)) - 1}ull"
    return wide, f"({wide}){least if is_greatest else most}"


def _function(dtype: DType, name: str) -> str:
    return name if dtype is DType.F64 else f"{name}f"


# ---- what each op means; results by position


def _softmax(b: ReductionBuilder, node: Node) -> list[Name]:
    x = b.name(node.operands[0])
    greatest = b.extremum("max_of", x.text, x.dtype)
    raised = b.program.define(x.dtype, f"{_function(x.dtype, 'exp')}({x.text} - {greatest.text})")
    factor = b.program.define(x.dtype, f"1 / {b.sum(raised.text, x.dtype).text}")
    return [b.program.define(x.dtype, f"{raised.text} * {factor.text}")]


def _log_softmax(b: ReductionBuilder, node: Node) -> list[Name]:
    x = b.name(node.operands[0])
    greatest = b.extremum("max_of", x.text, x.dtype)
    shifted = b.program.define(x.dtype, f"{x.text} - {greatest.text}")
    total = b.sum(f"{_function(x.dtype, 'exp')}({shifted.text})", x.dtype)
    logarithm = b.program.define(x.dtype, f"{_function(x.dtype, 'log')}({total.text})")
    return [b.program.define(x.dtype, f"{shifted.text} - {logarithm.text}")]


def _normalized(b: ReductionBuilder, x: Name, count: int, epsilon: float) -> Name:
    """(x - mean) / sqrt(variance + epsilon), the variance from what the mean leaves."""
    divisor = number(float(max(count, 1)), x.ctype)
    mean = b.program.define(x.dtype, f"{b.sum(x.text, x.dtype).text} / {divisor}")
    centered = b.program.define(x.dtype, f"{x.text} - {mean.text}")
    squares = b.sum(f"{centered.text} * {centered.text}", x.dtype)
    factor = _inverse_root(b, squares, divisor, epsilon)
    return b.program.define(x.dtype, f"{centered.text} * {factor.text}")


def _inverse_root(b: ReductionBuilder, squares: Name, divisor: str, epsilon: float) -> Name:
    root = _function(squares.dtype, "sqrt")
    return b.program.define(
        squares.dtype, f"1 / {root}({squares.text} / {divisor} + ({number(epsilon, squares.ctype)}))"
    )


def _affine(b: ReductionBuilder, y: Name, scale: Name | None, bias: Name | None) -> list[Name]:
    if scale is not None:
        y = b.program.define(y.dtype, f"{y.text} * {scale.text}")
    if bias is not None:
        y = b.program.define(y.dtype, f"{y.text} + {bias.text}")
    return [y]


def _count(b: ReductionBuilder) -> int:
    count = 1
    for axis in b.program.reduced:
        count *= b.program.domain[axis]
    return count


def _layer_norm(b: ReductionBuilder, node: Node) -> list[Name]:
    y = _normalized(b, b.name(node.operands[0]), _count(b), node.attrs["epsilon"])
    return _affine(b, y, b.optional(node, 1), b.optional(node, 2))


def _rms_norm(b: ReductionBuilder, node: Node) -> list[Name]:
    x = b.name(node.operands[0])
    squares = b.sum(f"{x.text} * {x.text}", x.dtype)
    factor = _inverse_root(b, squares, number(float(max(_count(b), 1)), x.ctype), node.attrs["epsilon"])
    y = b.program.define(x.dtype, f"{x.text} * {factor.text}")
    return _affine(b, y, b.optional(node, 1), None)


def _grouped_norm(b: ReductionBuilder, node: Node) -> list[Name]:
    x, scale, bias = node.operands
    y = _normalized(b, b.name(x), _count(b), node.attrs["epsilon"])
    return _affine(b, y, b.per_channel(scale), b.per_channel(bias))


def _lp_norm(b: ReductionBuilder, node: Node) -> list[Name]:
    x = b.name(node.operands[0])
    if node.attrs["p"] == 1:
        norm = b.sum(f"magnitude({x.text})", x.dtype)
    else:
        squares = b.sum(f"{x.text} * {x.text}", x.dtype)
        norm = b.program.define(x.dtype, f"{_function(x.dtype, 'sqrt')}({squares.text})")
    divisor = b.program.define(x.dtype, f"{norm.text} == 0 ? ({norm.ctype})1 : {norm.text}")
    return [b.program.define(x.dtype, f"{x.text} / {divisor.text}")]


def _hardmax(b: ReductionBuilder, node: Node) -> list[Name]:
    x = b.name(node.operands[0])
    axis = b.program.reduced[0]
    _, found = b.best(x, axis, greatest=True, last=False, nan_first=True)
    at = b.program.coordinate(axis)
    ctype = computed(x.dtype)
    return [b.program.define(x.dtype, f"{found.text}.at == {at.text} ? ({ctype})1 : ({ctype})0")]


def _arg(greatest: bool) -> Callable[[ReductionBuilder, Node], list[Name]]:
    def expand(b: ReductionBuilder, node: Node) -> list[Name]:
        last = bool(node.attrs["select_last"])
        x = b.name(node.operands[0])
        _, found = b.best(x, b.program.reduced[0], greatest=greatest, last=last, nan_first=True)
        return [b.program.define(DType.I64, f"{found.text}.at")]

    return expand


def _top_one(b: ReductionBuilder, node: Node) -> list[Name]:
    x, largest = b.name(node.operands[0]), bool(node.attrs["largest"])
    _, found = b.best(x, b.program.reduced[0], greatest=largest, last=False, nan_first=largest)
    value = b.program.define(x.dtype, f"({computed(x.dtype)}){found.text}.value")
    return [value, b.program.define(DType.I64, f"{found.text}.at")]


# ---- reductions


def _reduce_sum(b: ReductionBuilder, x: Name) -> Name:
    return b.sum(x.text, x.dtype)


def _reduce_mean(b: ReductionBuilder, x: Name) -> Name:
    total, count = b.sum(x.text, x.dtype), _count(b)
    if x.dtype.is_integer:
        return b.program.define(x.dtype, f"quotient({total.text}, ({x.ctype}){count}ull)")
    return b.program.define(x.dtype, f"{total.text} / {number(float(count), x.ctype)}")


def _reduce_sum_square(b: ReductionBuilder, x: Name) -> Name:
    if not x.dtype.is_integer:
        return b.sum(f"{x.text} * {x.text}", x.dtype)
    wide = unsigned(x.dtype)
    return b.sum(f"({wide}){x.text} * ({wide}){x.text}", x.dtype)


def _through_double(b: ReductionBuilder, function: str, x: Name) -> Name:
    """A function of a float; of an integer rounded toward zero."""
    if not x.dtype.is_integer:
        return b.program.define(x.dtype, f"{_function(x.dtype, function)}({x.text})")
    return b.program.define(x.dtype, converted(Name(f"{function}((double){x.text})", DType.F64), x.dtype))


def _reduce_log_sum_exp(b: ReductionBuilder, x: Name) -> Name:
    greatest = b.extremum("max_of", x.text, x.dtype)
    finite = f"magnitude({greatest.text}) < {number(float('inf'), x.ctype)}"
    shift = b.program.define(x.dtype, f"{finite} ? {greatest.text} : ({x.ctype})0")
    total = b.sum(f"{_function(x.dtype, 'exp')}({x.text} - {shift.text})", x.dtype)
    return b.program.define(x.dtype, f"{_function(x.dtype, 'log')}({total.text}) + {shift.text}")


_REDUCE_OPS: Mapping[str, Callable[[ReductionBuilder, Name], Name]] = {
    "reduce_sum": _reduce_sum,
    "reduce_mean": _reduce_mean,
    "reduce_max": lambda b, x: b.extremum("max_of", x.text, x.dtype),
    "reduce_min": lambda b, x: b.extremum("min_of", x.text, x.dtype),
    "reduce_prod": lambda b, x: b.prod(x.text, x.dtype),
    "reduce_l1": lambda b, x: b.sum(x.text if x.dtype.kind is Kind.UINT else f"magnitude({x.text})", x.dtype),
    "reduce_l2": lambda b, x: _through_double(b, "sqrt", _reduce_sum_square(b, x)),
    "reduce_log_sum": lambda b, x: _through_double(b, "log", _reduce_sum(b, x)),
    "reduce_log_sum_exp": _reduce_log_sum_exp,
    "reduce_sum_square": _reduce_sum_square,
}


def _reduction(function: Callable[[ReductionBuilder, Name], Name]) -> Callable[[ReductionBuilder, Node], list[Name]]:
    return lambda b, node: [function(b, b.name(node.operands[0]))]


# ---- axes


def _listed(node: Node, rank: int) -> tuple[int, ...]:
    return tuple(sorted(normal_axes(node.attrs["axes"], rank)))


def _one(node: Node, rank: int) -> tuple[int, ...]:
    return (normal_axis(node.attrs["axis"], rank),)


def _trailing(node: Node, rank: int) -> tuple[int, ...]:
    return tuple(range(normal_axis(node.attrs["axis"], rank), rank))


@dataclass(frozen=True, slots=True)
class ReductionRow:
    """An op with reductions: the axes that it reduces, and what it means in a program."""

    axes: Callable[[Node, int], tuple[int, ...]]
    expand: Callable[[ReductionBuilder, Node], list[Name]]


REDUCTIONS: Mapping[str, ReductionRow] = {
    "softmax": ReductionRow(_one, _softmax),
    "log_softmax": ReductionRow(_one, _log_softmax),
    "hardmax": ReductionRow(_one, _hardmax),
    "lp_norm": ReductionRow(_one, _lp_norm),
    "layer_norm": ReductionRow(_trailing, _layer_norm),
    "rms_norm": ReductionRow(_trailing, _rms_norm),
    "argmax": ReductionRow(_one, _arg(greatest=True)),
    "argmin": ReductionRow(_one, _arg(greatest=False)),
    **{name: ReductionRow(_listed, _reduction(function)) for name, function in _REDUCE_OPS.items()},
}
"""Ops that reduce axes of their first operand."""


def reduction_program(region: FusedRegion) -> KernelProgram:
    """The program of a region with reductions.

    Raises `UnsupportedError` where its nodes reduce different axes or shapes.
    """
    reducing = [node for node in region.nodes if node.op.name in REDUCTIONS]
    shape = shape_of(reducing[0].operands[0])
    axes = _axes_of(reducing[0])
    for node in reducing:
        if shape_of(node.operands[0]) != shape or _axes_of(node) != axes:
            raise UnsupportedError(f"{node.op.name} reduces other axes than {reducing[0].op.name} in one region")
    b = ReductionBuilder(region, KernelProgram(shape, axes), shape)
    row = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    for node in region.nodes:
        _expand(b, node, shape, row)
    for value, layout in region.results:
        if value.producer is None and shape_of(value) != shape:
            raise UnsupportedError(f"an operand of shape {shape_of(value)} is handed on beside rows of {shape}")
        b.program.store(b.name(value), _with_reduced(layout, axes, len(shape)))
    return b.program


def _axes_of(node: Node) -> tuple[int, ...]:
    return REDUCTIONS[node.op.name].axes(node, len(shape_of(node.operands[0])))


def _expand(b: ReductionBuilder, node: Node, shape: tuple[int, ...], row: tuple[int, ...]) -> None:
    if node.op.name in REDUCTIONS:
        b.names.update(zip(node.outputs, REDUCTIONS[node.op.name].expand(b, node), strict=True))
        return
    if node.op.name == "gather":
        return
    if not is_pointwise(node) or shape_of(node.output) not in (shape, row):
        raise UnsupportedError(f"{node.op.name} gives {node.output.type} beside rows of {list(shape)}")
    b.elementwise(node)


def _with_reduced(layout: Layout, axes: tuple[int, ...], rank: int) -> Layout:
    """A result with the reduced axes that it was left without, of size 1."""
    if len(layout.shape) == rank:
        return layout
    for axis in axes:
        layout = layout.inserted(axis, 1)
    return layout


def grouped_program(region: FusedRegion) -> KernelProgram:
    """The program of a norm over groups of channels of each sample, with elementwise work beside and behind it."""
    node = grouped_norm_of(region)
    shape, groups = shape_of(node.operands[0]), groups_of(node)
    if not shape[1]:
        return KernelProgram((0,))
    domain = (shape[0], groups, shape[1] // groups, *shape[2:])
    b = ReductionBuilder(region, KernelProgram(domain, tuple(range(2, len(domain)))), shape, groups)
    b.names[node.output] = _grouped_norm(b, node)[0]
    b.finish()
    return b.program


def grouped_norm_of(region: FusedRegion) -> Node:
    """The norm over groups of channels that a region has."""
    return next(node for node in region.nodes if node.op.has(Trait.GROUPWISE))


def groups_of(node: Node) -> int:
    """Into how many groups a norm divides the channels."""
    groups = node.attrs["groups"] if node.op.name == "group_norm" else shape_of(node.operands[0])[1]
    assert isinstance(groups, int)
    return groups


def top_one_program(region: FusedRegion) -> KernelProgram:
    """The program of `top_k` with k = 1."""
    (node,) = region.nodes
    shape = shape_of(node.operands[0])
    axis = normal_axis(node.attrs["axis"], len(shape))
    b = ReductionBuilder(region, KernelProgram(shape, (axis,)), shape)
    for (value, layout), name in zip(region.results, _top_one(b, node), strict=True):
        b.names[value] = name
        b.program.store(name, layout)
    return b.program


def quantizing_program(region: FusedRegion) -> KernelProgram:
    """The program of `dynamic_quantize_linear`: one row, whose range gives the scale and the zero point."""
    (node,) = region.nodes
    shape = shape_of(node.operands[0])
    b = ReductionBuilder(region, KernelProgram(shape, tuple(range(len(shape)))), shape)
    x, define = b.name(node.operands[0]), b.program.define
    low = define(DType.F32, f"least({b.extremum('min_of', x.text, x.dtype).text}, 0.0f)")
    high = define(DType.F32, f"greatest({b.extremum('max_of', x.text, x.dtype).text}, 0.0f)")
    spread = define(DType.F32, f"({high.text} - {low.text}) / 255.0f")
    scale = define(DType.F32, f"{spread.text} == 0.0f ? 1.0f : {spread.text}")
    zero = define(DType.F32, f"rintf(least(greatest(-{low.text} / {scale.text}, 0.0f), 255.0f))")
    held = f"least(greatest(rintf({x.text} / {scale.text}) + {zero.text}, 0.0f), 255.0f)"
    results = (define(DType.U8, f"(unsigned char){held}"), scale, define(DType.U8, f"(unsigned char){zero.text}"))
    for (_, layout), name in zip(region.results, results, strict=True):
        b.program.store(name, layout)
    return b.program
