"""What the types of a region mean to the node that owns it.

The inputs of a body declare types. A symbol in them that also occurs in the types of the node's operands is that very
size; any other is the body's own, bound anew on each run from the values that the body is given. Sizes leave a body
only where they can be said in terms of the outside; every other one is FRESH.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from ..dims import Dim, SymDim, Truth, bind, compare, symbol, symbols
from ..dims.constraints import require_equal
from ..errors import ShapeError, TypeRuleError
from ..graph import Graph, Node, Value
from ..op import FRESH
from ..types import OpaqueType, OptionalType, SequenceType, TensorType, Type, type_symbols

DimBinding = Mapping[str, Dim]


@dataclass(frozen=True)
class Boundary:
    """How a body's symbols read outside: `sizes` binds its own, `allowed` are those that mean the same there."""

    sizes: DimBinding
    allowed: frozenset[str]

    def dim(self, dim: Dim) -> Dim:
        """A size of the body as seen from outside, FRESH when only running can tell."""
        outside = bind(dim, self.sizes)
        return outside if symbols(outside) <= self.allowed else FRESH

    def type(self, ty: TensorType) -> TensorType:
        """The type outside of a value that a body returns."""
        return ty.with_shape(tuple(self.dim(dim) for dim in ty.dims))

    def require_equal(self, left: Dim, right: Dim, reason: str) -> None:
        """`left == right` for sizes in the body; what only running can tell is left to the check on its values."""
        left, right = bind(left, self.sizes), bind(right, self.sizes)
        if symbols(left) | symbols(right) <= self.allowed:
            require_equal(left, right, reason)
        elif compare(left, right) is Truth.NO:
            raise ShapeError(f"{reason}: {left} and {right} differ")


def tensor_types(values: Iterable[Value], what: str) -> tuple[TensorType, ...]:
    """The types of a body's inputs or outputs. Raises `TypeRuleError` for one that is no tensor of known rank."""
    types: list[TensorType] = []
    for value in values:
        if not isinstance(value.type, TensorType) or value.type.shape is None:
            raise TypeRuleError(f"{what} %{value.name} must be a tensor of known rank, not {value.type}")
        types.append(value.type)
    return tuple(types)


def outer_symbols(operands: Iterable[Type | None]) -> frozenset[str]:
    """The symbols in the types of a node's operands."""
    return frozenset[str]().union(*(type_symbols(ty) for ty in operands if ty is not None))


def enter(body: Graph, operands: Sequence[TensorType], outer: frozenset[str], what: str) -> Boundary:
    """The boundary of a body that runs once on values of these types. Raises when its inputs do not admit them."""
    declared = tensor_types(body.inputs, f"input of {what}")
    if len(declared) != len(operands):
        raise TypeRuleError(f"{what} takes {len(declared)} inputs, but is given {len(operands)} values")
    names = [f"input %{value.name} of {what}" for value in body.inputs]
    sizes = bound_sizes(declared, operands, outer, names)
    boundary = Boundary(sizes, outer | free_symbols(body))
    require_admitted(declared, operands, boundary, names)
    return boundary


def bound_sizes(
    declared: Sequence[TensorType], given: Sequence[TensorType], outer: frozenset[str], names: Sequence[str]
) -> dict[str, Dim]:
    """The sizes that a body's own symbols get from the values given to it. Raises `TypeRuleError` for dtype or rank."""
    sizes: dict[str, Dim] = {}
    for wanted, got, name in zip(declared, given, names, strict=True):
        if wanted.dtype is not got.dtype or wanted.rank != got.rank:
            raise TypeRuleError(f"{name} is {wanted}, but gets {got}")
        for dim, size in zip(wanted.dims, got.dims, strict=True):
            own = symbol_name(dim)
            if own and own not in outer:
                sizes.setdefault(own, size)
    return sizes


def require_admitted(
    declared: Sequence[TensorType], given: Sequence[TensorType], boundary: Boundary, names: Sequence[str]
) -> None:
    """Raises `ShapeError` where a value given from outside cannot have the size that the body declares."""
    for wanted, got, name in zip(declared, given, names, strict=True):
        for dim, size in zip(wanted.dims, got.dims, strict=True):
            boundary.require_equal(dim, size, f"{name} is {wanted}, but gets {got}")


@dataclass(frozen=True)
class Carried:
    """The values that a body hands from one iteration to the next: declared, given first, given by each iteration."""

    declared: tuple[TensorType, ...]
    initial: tuple[TensorType, ...]
    updated: tuple[TensorType, ...]
    names: tuple[str, ...]

    def boundary(self, fixed: DimBinding, allowed: frozenset[str], outer: frozenset[str]) -> Boundary:
        """The boundary of a body that runs again and again; `fixed` binds what is the same each time.

        A symbol of the carried inputs is bound where no iteration changes it. The largest such set is found by dropping
        symbols until the rest, taken to be invariant, comes out of the body as it went in.
        """
        outside = outer | fixed.keys()
        start = bound_sizes(self.declared, self.initial, outside, self.names)
        after = bound_sizes(self.declared, self.updated, outside, self.names)
        require_admitted(self.declared, self.initial, Boundary({**fixed, **start}, allowed), self.names)
        stable = dict(start)
        while changing := [n for n in stable if not _is_invariant(after[n], start[n], {**fixed, **stable})]:
            for name in changing:
                del stable[name]
        boundary = Boundary({**fixed, **stable}, allowed)
        self._require_kept(after, boundary)
        return boundary

    def _require_kept(self, after: DimBinding, boundary: Boundary) -> None:
        for wanted, got, name in zip(self.declared, self.updated, self.names, strict=True):
            for dim, size in zip(wanted.dims, got.dims, strict=True):
                try:
                    boundary.require_equal(bind(dim, after), size, f"{name} is {wanted}, but an iteration gives {got}")
                except ShapeError as error:
                    error.remedy = "declare a symbol of its own for a size that changes between iterations"
                    raise


def _is_invariant(after: Dim, start: Dim, sizes: DimBinding) -> bool:
    return compare(bind(after, sizes), start) is Truth.YES


def symbol_name(dim: Dim) -> str:
    """The name of a dim that is one plain symbol, else empty."""
    if not isinstance(dim, SymDim) or len(dim.symbols) != 1:
        return ""
    (name,) = dim.symbols
    return name if dim == symbol(name) else ""


def free_symbols(body: Graph) -> frozenset[str]:
    """The symbols that a body takes from around it: those of its nodes' attributes that nothing in the body binds."""
    known = outer_symbols(value.type for value in body.inputs)
    free: frozenset[str] = frozenset()
    for node in body.nodes:
        free |= attribute_symbols(node) - known
        known |= outer_symbols(value.type for value in node.outputs) - free
    return free


def attribute_symbols(node: Node) -> frozenset[str]:
    """The symbols in a node's attributes; of a region, those that it takes from around it."""
    return frozenset[str]().union(*(_symbols_in(value) for value in node.attrs.values()))


def _symbols_in(value: Any) -> frozenset[str]:
    if isinstance(value, SymDim):
        return value.symbols
    if isinstance(value, tuple):
        items = cast("tuple[object, ...]", value)
        return frozenset[str]().union(*(_symbols_in(item) for item in items))
    if isinstance(value, Graph):
        return free_symbols(value)
    if isinstance(value, TensorType | SequenceType | OptionalType | OpaqueType):
        return type_symbols(value)
    return frozenset()


def body_flops(body: Graph, boundary: Boundary) -> Dim:
    """The operations of one run of a body; nodes whose cost depends on sizes known only inside count as nothing."""
    total: Dim = 0
    for node in body.nodes:
        inputs = [value.type if value is not None else None for value in node.inputs]
        cost = boundary.dim(node.op.flops(inputs, [value.type for value in node.outputs], node.attrs))
        total = total if cost == FRESH else total + cost
    return total
