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

    def define(self, form: str, *operands: Name) -> Name:
        """A value of the first operand's type."""
        return self.program.define(operands[0].dtype, form, *operands)

    def total(self, form: str, *operands: Name, functor: str = "sum", start: str = "0") -> Name:
        """The sum of a form that is of the first operand's type; integers wrap around."""
        dtype = operands[0].dtype
        if not dtype.is_integer:
            return self.program.reduce(functor, computed(dtype), start, dtype, form, *operands)
        wide = unsigned(dtype)
        found = self.program.reduce(functor, wide, start, dtype, f"({wide})({form})", *operands)
        return self.define(f"({computed(dtype)})$0", found)

    def extremum(self, x: Name, name: str = "max_of") -> Name:
        """The greatest, or with "min_of" the least, of `x`."""
        is_greatest = name == "max_of"
        if x.dtype.is_float:
            start = number(float("-inf") if is_greatest else float("inf"), x.ctype)
            return self.program.reduce(name, x.ctype, start, x.dtype, "$0", x)
        wide, start = _integer_limit(x.dtype, is_greatest)
        found = self.program.reduce(name, wide, start, x.dtype, f"({wide})$0", x)
        return self.define("$0" if x.dtype is not DType.BOOL else "$0 != 0", found)

    def best(self, x: Name, axis: int, *, greatest: bool, last: bool, nan_first: bool) -> Name:
        """The best element along `axis` and its index, as `value` and `at` of a pair.

        Raises `UnsupportedError` for an axis whose indices do not fit an int.
        """
        if self.program.domain[axis] >= INT_LIMIT:
            raise UnsupportedError(f"an axis of {self.program.domain[axis]} elements is too long for argmax")
        wide = "int" if x.dtype.kind is Kind.BOOL or (x.dtype.is_integer and x.dtype.bits < 32) else x.ctype
        ctype = f"indexed<{wide}>"
        at = self.program.coordinate(axis)
        flags = ", ".join("true" if flag else "false" for flag in (greatest, last, nan_first))
        form = f"{ctype}{{({wide})$0, (int)$1}}"
        return self.program.reduce(f"best<{flags}>", ctype, f"{ctype}{{0, -1}}", x.dtype, form, x, at)


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
    raised = b.define(f"{_function(x.dtype, 'exp')}($0 - $1)", x, b.extremum(x))
    factor = b.define("1 / $0", b.total("$0", raised))
    return [b.define("$0 * $1", raised, factor)]


def _log_softmax(b: ReductionBuilder, node: Node) -> list[Name]:
    x = b.name(node.operands[0])
    shifted = b.define("$0 - $1", x, b.extremum(x))
    total = b.total(f"{_function(x.dtype, 'exp')}($0)", shifted)
    logarithm = b.define(f"{_function(x.dtype, 'log')}($0)", total)
    return [b.define("$0 - $1", shifted, logarithm)]


def _normalized(b: ReductionBuilder, x: Name, count: int, epsilon: float) -> Name:
    """(x - mean) / sqrt(variance + epsilon), the variance from what the mean leaves."""
    divisor = number(float(max(count, 1)), x.ctype)
    centered = b.define("$0 - $1", x, b.define(f"$0 / {divisor}", b.total("$0", x)))
    factor = _inverse_root(b, b.total("$0 * $0", centered), divisor, epsilon)
    return b.define("$0 * $1", centered, factor)


def _inverse_root(b: ReductionBuilder, squares: Name, divisor: str, epsilon: float) -> Name:
    root = _function(squares.dtype, "sqrt")
    return b.define(f"1 / {root}($0 / {divisor} + ({number(epsilon, squares.ctype)}))", squares)


def _affine(b: ReductionBuilder, y: Name, scale: Name | None, bias: Name | None) -> list[Name]:
    if scale is not None:
        y = b.define("$0 * $1", y, scale)
    if bias is not None:
        y = b.define("$0 + $1", y, bias)
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
    divisor = number(float(max(_count(b), 1)), x.ctype)
    factor = _inverse_root(b, b.total("$0 * $0", x), divisor, node.attrs["epsilon"])
    return _affine(b, b.define("$0 * $1", x, factor), b.optional(node, 1), None)


def _grouped_norm(b: ReductionBuilder, node: Node) -> list[Name]:
    x, scale, bias = node.operands
    y = _normalized(b, b.name(x), _count(b), node.attrs["epsilon"])
    return _affine(b, y, b.per_channel(scale), b.per_channel(bias))


def _lp_norm(b: ReductionBuilder, node: Node) -> list[Name]:
    x = b.name(node.operands[0])
    if node.attrs["p"] == 1:
        norm = b.total("magnitude($0)", x)
    else:
        norm = b.define(f"{_function(x.dtype, 'sqrt')}($0)", b.total("$0 * $0", x))
    return [b.define(f"$1 == 0 ? ({norm.ctype})0 : $0 / $1", x, norm)]


def _hardmax(b: ReductionBuilder, node: Node) -> list[Name]:
    x = b.name(node.operands[0])
    axis = b.program.reduced[0]
    found = b.best(x, axis, greatest=True, last=False, nan_first=True)
    return [b.define(f"$0.at == $1 ? ({x.ctype})1 : ({x.ctype})0", found, b.program.coordinate(axis))]


def _arg(greatest: bool) -> Callable[[ReductionBuilder, Node], list[Name]]:
    def expand(b: ReductionBuilder, node: Node) -> list[Name]:
        last = bool(node.attrs["select_last"])
        x = b.name(node.operands[0])
        found = b.best(x, b.program.reduced[0], greatest=greatest, last=last, nan_first=True)
        return [b.program.define(DType.I64, "$0.at", found)]

    return expand


def _top_one(b: ReductionBuilder, node: Node) -> list[Name]:
    x, largest = b.name(node.operands[0]), bool(node.attrs["largest"])
    found = b.best(x, b.program.reduced[0], greatest=largest, last=False, nan_first=largest)
    value = b.define(f"({x.ctype})$0.value", found)
    return [value, b.program.define(DType.I64, "$0.at", found)]


# ---- reductions


def _reduce_sum(b: ReductionBuilder, x: Name) -> Name:
    return b.total("$0", x)


def _reduce_mean(b: ReductionBuilder, x: Name) -> Name:
    total, count = _reduce_sum(b, x), _count(b)
    if x.dtype.is_integer:
        return b.define(f"quotient($0, ({x.ctype}){count}ull)", total)
    return b.define(f"$0 / {number(float(count), x.ctype)}", total)


def _reduce_sum_square(b: ReductionBuilder, x: Name) -> Name:
    wide = f"({unsigned(x.dtype)})" if x.dtype.is_integer else ""
    return b.total(f"{wide}$0 * {wide}$0", x)


def _through_double(b: ReductionBuilder, function: str, x: Name) -> Name:
    """A function of a float; of an integer rounded toward zero."""
    if not x.dtype.is_integer:
        return b.define(f"{_function(x.dtype, function)}($0)", x)
    return b.define(converted(Name(f"{function}((double)$0)", DType.F64), x.dtype), x)


def _reduce_log_sum_exp(b: ReductionBuilder, x: Name) -> Name:
    infinity = number(float("inf"), x.ctype)
    shift = b.define(f"magnitude($0) < {infinity} ? $0 : ({x.ctype})0", b.extremum(x))
    total = b.total(f"{_function(x.dtype, 'exp')}($0 - $1)", x, shift)
    return b.define(f"{_function(x.dtype, 'log')}($0) + $1", total, shift)


_REDUCE_OPS: Mapping[str, Callable[[ReductionBuilder, Name], Name]] = {
    "reduce_sum": _reduce_sum,
    "reduce_mean": _reduce_mean,
    "reduce_max": lambda b, x: b.extremum(x),
    "reduce_min": lambda b, x: b.extremum(x, "min_of"),
    "reduce_prod": lambda b, x: b.total("$0", x, functor="prod", start="1"),
    "reduce_l1": lambda b, x: b.total("$0" if x.dtype.kind is Kind.UINT else "magnitude($0)", x),
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
    low = define(DType.F32, "least($0, 0.0f)", b.extremum(x, "min_of"))
    high = define(DType.F32, "greatest($0, 0.0f)", b.extremum(x))
    spread = define(DType.F32, "($0 - $1) / 255.0f", high, low)
    scale = define(DType.F32, "$0 == 0.0f ? 1.0f : $0", spread)
    zero = define(DType.F32, "rintf(least(greatest(-$0 / $1, 0.0f), 255.0f))", low, scale)
    held = define(DType.U8, "(unsigned char)least(greatest(rintf($0 / $1) + $2, 0.0f), 255.0f)", x, scale, zero)
    results = (held, scale, define(DType.U8, "(unsigned char)$0", zero))
    for (_, layout), name in zip(region.results, results, strict=True):
        b.program.store(name, layout)
    return b.program
