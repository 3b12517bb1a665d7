"""Static shapes: what was asked of the run, a shape or an axis in an operand, becomes an attribute once it is known.

An importer makes the `dynamic_` form of an op where a model computes sizes in a way that it cannot follow. After
constants are folded and control flow is gone the operand may be a constant, or sizes of the graph's inputs. The static
form then tells the result's sizes, and the symbols that stood for them are replaced everywhere below.

A node whose result sizes only running can tell makes symbols for them. What takes its place may know these sizes, and
the symbols, which nothing makes any more, must go from the types, attributes and regions of all nodes that follow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...ir.analysis import all_nodes
from ...ir.analysis.contents import constant_of
from ...ir.analysis.shape_values import ShapeValues
from ...ir.attrs import AttrValue
from ...ir.binding import Sizes, bind_attr, mentioned, plain_sizes
from ...ir.constant import Constant
from ...ir.dims import Dim, SymDim, Truth, bind, is_at_least, lower_bound, product, symbols
from ...ir.dims.constraints import collect_constraints
from ...ir.edit_checks import check_declared
from ...ir.errors import CapgraphError, ShapeError
from ...ir.graph import Graph, Node, Value
from ...ir.op import FRESH
from ...ir.ops import native
from ...ir.ops.layout import resolve_reshape
from ...ir.ops.regions import free_symbols
from ...ir.ops.rules import broadcast_shapes, normal_axes
from ...ir.ops.slicing import first_taken
from ...ir.types import Type, bind_type
from ..framework.base import Pass
from ..framework.rewriter import Rewriter

MAX_RANGE_BYTES = 1 << 16
"""A longer range of floats is computed while running."""
MAX_SYMBOLS = 6
"""With more of them in a shape it is not looked at what happens where some are 0."""


@dataclass(frozen=True)
class StaticShapes(Pass):
    """Replaces `dynamic_` ops by their static forms where their operands are known and nothing need be assumed."""

    name: ClassVar[str] = "static-shapes"

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        bound = mentioned(value.type for value in graph.inputs)
        shapes = ShapeValues()
        known = KnownSizes(graph, rewriter)
        for node in graph.nodes:
            known.bind(node)
            rule = _RULES.get(node.op.name)
            static = _known_form(rule, _Operands(node, shapes, bound)) if rule is not None else None
            if static is not None and known.replaced(node, partial(_made, static, rewriter)):
                shapes = ShapeValues()


class Static(NamedTuple):
    """The static form: op, operands, attributes."""

    op: str
    inputs: tuple[Value | None, ...]
    attrs: dict[str, AttrValue]


def _made(static: Static, rewriter: Rewriter) -> Sequence[Value]:
    return rewriter.node(native(static.op), static.inputs, static.attrs).outputs


class _Operands:
    """What is known of the operands of a dynamic op; only sizes that its static form may mention."""

    def __init__(self, node: Node, shapes: ShapeValues, bound: frozenset[str]) -> None:
        self.node = node
        self._shapes = shapes
        first = node.inputs[0]
        own = mentioned([first.type]) if first is not None and len(node.inputs) > 1 else frozenset[str]()
        self._visible = bound | own

    def dims(self, index: int) -> tuple[Dim, ...]:
        """The elements of a vector. Raises `_Unknown` when they are not known."""
        value = self.node.inputs[index]
        found = self._shapes.as_dims(value) if value is not None else None
        if found is None or not all(symbols(dim) <= self._visible for dim in found):
            raise _Unknown
        return found

    def dim(self, index: int) -> Dim:
        """The element of a tensor with one. Raises `_Unknown` when it is not known."""
        value = self.node.inputs[index]
        found = self._shapes.as_dim(value) if value is not None else None
        if found is None or not symbols(found) <= self._visible:
            raise _Unknown
        return found

    def ints(self, index: int, default: Sequence[int]) -> tuple[int, ...]:
        """Plain elements; `default` for an absent operand. Raises `_Unknown` when they are not plain."""
        if self.node.inputs[index] is None:
            return tuple(default)
        found = self.dims(index)
        plain = tuple(dim for dim in found if isinstance(dim, int))
        if len(plain) < len(found):
            raise _Unknown
        return plain

    def number(self, index: int) -> int:
        """The element of a tensor with one, a plain number. Raises `_Unknown` when it is not known."""
        found = self.dim(index)
        if isinstance(found, SymDim):
            raise _Unknown
        return found

    def shape(self, index: int) -> tuple[Dim, ...]:
        value = self.node.inputs[index]
        assert value is not None  # required by the signature
        return value.shape


class _Unknown(CapgraphError):
    """An operand is not known. Never reaches users."""

    def __init__(self) -> None:
        super().__init__("not known")


_Rule = Callable[[_Operands], Static]


def _known_form(rule: _Rule, operands: _Operands) -> Static | None:
    """The static form; None where an operand is not known, or the form is wrong or true under an assumption only."""
    try:
        with collect_constraints() as constraints:
            static = rule(operands)
            op = native(static.op)
            types = [value.type if value is not None else None for value in static.inputs]
            op.result_types(types, op.complete_attrs(static.attrs))
    except CapgraphError:
        return None
    return None if constraints else static


# ---- one rule for each op


def _reshape(known: _Operands) -> Static:
    given, requested, allow_zero = known.shape(0), known.dims(1), known.node.attrs["allow_zero"]
    shape = resolve_reshape(given, requested, allow_zero)
    if not allow_zero and not _is_same_without_elements(given, requested, shape):
        raise _Unknown
    return Static("reshape", known.node.inputs[:1], {"shape": shape})


def _is_same_without_elements(given: Sequence[Dim], requested: Sequence[Dim], shape: Sequence[Dim]) -> bool:
    """Whether `shape` is requested also where symbols are 0, and a size that becomes 0 copies one of `given`."""
    names = sorted(frozenset[str]().union(*map(symbols, (*given, *requested))))  # a literal 0 copies symbols too
    if len(names) > MAX_SYMBOLS:
        return False
    subsets = (zero for count in range(len(names) + 1) for zero in combinations(names, count))
    return all(_is_same_where(dict.fromkeys(zero, 0), given, requested, shape) for zero in subsets)


def _is_same_where(
    zero: Mapping[str, int], given: Sequence[Dim], requested: Sequence[Dim], shape: Sequence[Dim]
) -> bool:
    """The same where just the symbols in `zero` are 0; true where nothing is defined then."""
    operand, wanted = ([bind(dim, zero) for dim in dims] for dims in (given, requested))
    for axis, dim in enumerate(wanted):
        is_copy = axis < len(operand) and operand[axis] == dim
        if isinstance(dim, SymDim) and not is_copy and not _is_positive(dim):
            return False  # it may be 0, or not
    try:
        found = resolve_reshape(operand, wanted, allow_zero=False)
    except ShapeError:
        return True
    has_elements = product(operand) != 0
    return list(found) == [bind(dim, zero) for dim in shape] or (not has_elements and _is_positive(product(found)))


def _is_positive(dim: Dim) -> bool:
    """Whether a size is at least 1 wherever its symbols are."""
    least = lower_bound(dim, dict.fromkeys(symbols(dim), (1, None)))
    return least is not None and least > 0


def _expand(known: _Operands) -> Static:
    return Static("expand", known.node.inputs[:1], {"shape": broadcast_shapes(known.shape(0), known.dims(1))})


def _by_axes(op: str) -> _Rule:
    return lambda known: Static(op, known.node.inputs[:1], {"axes": known.ints(1, ())})


def _arange(known: _Operands) -> Static:
    dtype = known.node.output.tensor.dtype
    if dtype.is_float:
        return Static("constant", (), {"value": _float_range(known.node)})
    bounds = {"start": known.dim(0), "limit": known.dim(1), "step": known.number(2)}
    return Static("arange", (), {**bounds, "dtype": dtype})


def _float_range(node: Node) -> Constant:
    contents = [constant_of(value) for value in node.operands]
    arrays = [content.array.astype(np.float64) for content in contents if content is not None]
    if len(arrays) < 3 or not np.isfinite(arrays).all() or not arrays[2]:
        raise _Unknown
    count = float((arrays[1] - arrays[0]) / arrays[2])
    if count * node.output.tensor.dtype.itemsize > MAX_RANGE_BYTES:
        raise _Unknown
    return Constant(node.op.meaning(*(content.array for content in contents if content is not None)))


def _slice(known: _Operands) -> Static:
    starts, ends = known.dims(1), known.dims(2)
    if not all(is_at_least(bound, 0) is Truth.YES for bound in (*starts, *ends) if isinstance(bound, SymDim)):
        raise _Unknown
    axes, steps = known.ints(3, range(len(starts))), known.ints(4, [1] * len(starts))
    dims = known.shape(0)
    sizes = [dims[axis] for axis in normal_axes(axes, len(dims))]
    first = tuple(first_taken(*part) for part in zip(starts, sizes, steps, strict=True))
    return Static("slice", known.node.inputs[:1], {"axes": axes, "starts": first, "ends": ends, "steps": steps})


def _pad(known: _Operands) -> Static:
    rank = len(known.shape(0))
    given, axes = known.dims(1), normal_axes(known.ints(3, range(rank)), rank)
    if len(given) != 2 * len(axes):
        raise _Unknown
    pads: list[Dim] = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        pads[axis], pads[rank + axis] = given[position], given[len(axes) + position]
    return Static("pad", (known.node.inputs[0], known.node.inputs[2]), {"pads": pads, "mode": known.node.attrs["mode"]})


def _split(known: _Operands) -> Static:
    return Static("split", known.node.inputs[:1], {"axis": known.node.attrs["axis"], "sizes": known.dims(1)})


def _one_hot(known: _Operands) -> Static:
    indices, _, values = known.node.inputs
    return Static("one_hot", (indices, values), {**known.node.attrs, "depth": _depth(known)})


def _depth(known: _Operands) -> Dim:
    """The depth of a one-hot, which may be a constant of floats; rounded as while running."""
    value = known.node.inputs[1]
    content = constant_of(value)
    if content is None or content.dtype.is_integer:
        return known.dim(1)
    return int(content.array.reshape(-1)[0])


def _trilu(known: _Operands) -> Static:
    return Static("trilu", known.node.inputs[:1], {**known.node.attrs, "diagonal": known.number(1)})


def _cumulative(op: str) -> _Rule:
    return lambda known: Static(op, known.node.inputs[:1], {**known.node.attrs, "axis": known.number(1)})


def _reduce(known: _Operands) -> Static:
    attrs = known.node.attrs
    axes = known.ints(1, ())
    if not axes and not attrs["noop_with_empty_axes"]:
        axes = tuple(range(len(known.shape(0))))
    return Static(f"reduce_{attrs['kind']}", known.node.inputs[:1], {"axes": axes, "keep_dims": attrs["keep_dims"]})


def _resize(known: _Operands) -> Static:
    """Sizes may be symbolic; scales are those of a constant, of axes whose sizes are numbers."""
    x, roi, scales, sizes = known.node.inputs
    if scales is None:
        return Static("resize", (x, roi), {**known.node.attrs, "sizes": known.dims(3)})
    content = constant_of(scales)
    if content is None or sizes is not None:
        raise _Unknown
    dims = known.shape(0)
    axes = normal_axes(known.node.attrs["axes"], len(dims))
    factors = [float(scale) for scale in content.array]
    found = [_scaled(dims[axis], scale) for axis, scale in zip(axes, content.array, strict=True)]
    return Static("resize", (x, roi), {**known.node.attrs, "sizes": tuple(found), "scales": tuple(factors)})


def _scaled(dim: Dim, scale: Any) -> int:
    """As `dynamic_resize` rounds while running."""
    if isinstance(dim, SymDim):
        raise _Unknown
    return int(np.floor(np.float32(dim) * np.float32(scale)))


_RULES: Mapping[str, _Rule] = MappingProxyType[str, _Rule](
    {
        "dynamic_arange": _arange,
        "dynamic_cumprod": _cumulative("cumprod"),
        "dynamic_cumsum": _cumulative("cumsum"),
        "dynamic_expand": _expand,
        "dynamic_full": lambda known: Static("full", (), {"shape": known.dims(0), "value": known.node.attrs["value"]}),
        "dynamic_one_hot": _one_hot,
        "dynamic_pad": _pad,
        "dynamic_reduce": _reduce,
        "dynamic_reshape": _reshape,
        "dynamic_resize": _resize,
        "dynamic_slice": _slice,
        "dynamic_split": _split,
        "dynamic_squeeze": _by_axes("squeeze"),
        "dynamic_tile": lambda known: Static("tile", known.node.inputs[:1], {"repeats": known.dims(1)}),
        "dynamic_top_k": lambda known: Static("top_k", known.node.inputs[:1], {**known.node.attrs, "k": known.dim(1)}),
        "dynamic_trilu": _trilu,
        "dynamic_unsqueeze": _by_axes("unsqueeze"),
    }
)


def known_by_rule(node: Node, bound: frozenset[str]) -> Sizes:
    """The sizes that `node` made symbols for and that its rule knows by now; `bound` are the symbols of the inputs."""
    made = mentioned(value.type for value in node.outputs)
    made -= bound | mentioned(value.type for value in node.operands)
    if not made or node.op.is_foreign:
        return {}
    inferred = node.op.result_types([value.type if value is not None else None for value in node.inputs], node.attrs)
    return _told([value.type for value in node.outputs], inferred, made)


def _told(declared: Sequence[Type], inferred: Sequence[Type], made: frozenset[str]) -> Sizes:
    sizes = (each for said, found in zip(declared, inferred, strict=True) for each in plain_sizes(said, found))
    return {name: size for name, size in sizes if name in made and size != FRESH}


def _require_rules(graph: Graph) -> None:
    """Raises `TypeRuleError` or `ShapeError` when the rule of a node does not hold, those of regions included."""
    for node in all_nodes(graph):
        if not node.op.is_foreign:
            operands = [value.type if value is not None else None for value in node.inputs]
            check_declared(node, [value.type for value in node.outputs], node.op.result_types(operands, node.attrs))


class KnownSizes:
    """What one walk over a graph, first node to last, learns of sizes. Every node walked over goes through `bind`."""

    def __init__(self, graph: Graph, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._bound = mentioned(value.type for value in graph.inputs)
        self._sizes: Sizes = {}
        self._mentioned_before: dict[Node, frozenset[str]] = {}

    def learned(self, node: Node, values: Sequence[Value | None]) -> Sizes:
        """The sizes of the symbols that `node` makes, if `values` stand for its results (None for an unused one)."""
        given = self._bound | mentioned(value.type for value in node.operands)
        sizes: Sizes = {}
        for old, new in zip(node.outputs, values, strict=True):
            if new is not None:
                made = mentioned([old.type]) - given
                sizes.update((name, size) for name, size in plain_sizes(old.type, new.type) if name in made)
        return sizes

    def replaced(self, node: Node, build: Callable[[], Sequence[Value | None]]) -> bool:
        """Makes what `build` makes stand for the results of `node` (None for an unused one), and notes its sizes.

        False, and nothing changed, where the budget is spent, `build` raises, or a node that follows cannot have the
        sizes: what only the run may find out, if it gets there at all, needs a symbol to find out.
        """
        if not self._rewriter.may_rewrite(node.op.name, node):
            return False
        values = self._rewriter.attempt(lambda: self._fitting(node, build))
        if values is None:
            self._rewriter.take_back(node.op.name)
            return False
        sizes = self.learned(node, values)
        self._sizes.update(sizes)
        for old in node.outputs:
            self._refine(old, bind_type(old.type, sizes))
        self._rewriter.replace(node, *values)
        return True

    def _fitting(self, node: Node, build: Callable[[], Sequence[Value | None]]) -> Sequence[Value | None]:
        """What `build` makes. Raises `TypeRuleError` or `ShapeError` when a region in it or a later node cannot be."""
        position = self._rewriter.position
        values = build()
        for region in (each for made in self._rewriter.made_since(position) for each in made.regions.values()):
            _require_rules(region)
        sizes = {**self._sizes, **self.learned(node, values)}
        types = {old: new.type for old, new in zip(node.outputs, values, strict=True) if new is not None}
        pending = [user for old, ty in types.items() if ty != old.type for user in old.users]
        while pending:
            user = pending.pop()
            sizes.update(self._require_rule(user, types, sizes))
            for value in user.outputs:
                ty = bind_type(value.type, sizes)
                if ty != types.get(value, value.type):
                    types[value] = ty
                    pending += value.users
        return values

    def _require_rule(self, node: Node, types: Mapping[Value, Type], sizes: Sizes) -> Sizes:
        """Raises unless the rules of `node`, and of those in its regions, hold with `sizes`; gives what they tell."""
        regions = self._bound_regions(node, sizes)
        for region in regions.values():
            _require_rules(region)
        if node.op.is_foreign:
            return {}
        attrs = {name: bind_attr(value, sizes) for name, value in node.attrs.items()}
        operands = [bind_type(types.get(v, v.type), sizes) if v is not None else None for v in node.inputs]
        inferred = node.op.result_types(operands, node.op.complete_attrs({**attrs, **regions}))
        declared = [bind_type(value.type, sizes) for value in node.outputs]
        check_declared(node, declared, inferred)
        made = mentioned(declared) - self._bound - mentioned(ty for ty in operands if ty is not None)
        return _told(declared, inferred, made)

    def bind(self, node: Node) -> None:
        """Replaces symbols by what is known of them in the result types, attributes and regions of a node."""
        if not self._sizes:
            return
        for value in node.outputs:
            self._refine(value, bind_type(value.type, self._sizes))
        changes = {name: bind_attr(value, self._sizes) for name, value in node.attrs.items()}
        changes = {name: value for name, value in changes.items() if value is not node.attrs[name]}
        changes.update(self._bound_regions(node, self._sizes))
        if changes:
            self._rewriter.set_attrs(node, **changes)
        known = known_by_rule(node, self._bound)
        self._sizes.update(known)
        for value in node.outputs:
            self._refine(value, bind_type(value.type, known))

    def _refine(self, value: Value, ty: Type) -> None:
        if ty == value.type:
            return
        for user in value.users:
            if user.regions:
                before = self._mentioned_before.get(user, frozenset())
                self._mentioned_before[user] = before | mentioned([value.type])
        self._rewriter.graph.refine_type(value, ty)

    def _bound_regions(self, node: Node, sizes: Sizes) -> dict[str, Graph]:
        """Copies of the regions that mention a size which got known.

        A symbol of a region's inputs is the region's own unless the operands mention it, or did before it was bound.
        """
        outside = self._mentioned_before.get(node, frozenset()) | mentioned(value.type for value in node.operands)
        copies: dict[str, Graph] = {}
        for name, region in node.regions.items():
            own = mentioned(value.type for value in region.inputs) - outside
            inner = {symbol: size for symbol, size in sizes.items() if symbol not in own}
            if inner.keys() & (free_symbols(region) | mentioned(value.type for value in region.values)):
                copies[name] = region.clone_with_map(self._rewriter.graph.symbols, inner)[0]
        return copies
