"""How the symbols of a body read where its nodes are copied to.

A symbol of the body's inputs is the body's own and gets its size from the value that it stands in, unless it is shared:
one that is known under the same name where the values come from (see `ir.ops.regions` for which these are).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from .attrs import AttrValue, is_tuple
from .dims import Dim, SymDim, Truth, bind, symbol, symbols
from .errors import TypeRuleError
from .types import OpaqueType, OptionalType, SequenceType, TensorType, Type, bind_type, compatible, type_symbols

Sizes = dict[str, Dim]
Size = TypeVar("Size", bound=Dim)
_TYPES = (TensorType, SequenceType, OptionalType, OpaqueType)


def own_sizes(declared: Sequence[Type], given: Sequence[Type], shared: frozenset[str]) -> Sizes:
    """The sizes of a body's own symbols, for values of types `given` as its inputs of types `declared`.

    Raises `TypeRuleError` when a value cannot be that input.
    """
    sizes: Sizes = {}
    for wanted, got in zip(declared, given, strict=True):
        if compatible(wanted, got) is Truth.NO:
            raise TypeRuleError(f"a value of type {got} cannot be an input of type {wanted}")
        for name, size in plain_sizes(wanted, got):
            if name not in shared:
                sizes.setdefault(name, size)
    return sizes


def plain_sizes(wanted: Type, got: Type) -> Iterable[tuple[str, Dim]]:
    """The symbols that stand alone as a size of `wanted`, each with the size that `got` has there."""
    if not isinstance(wanted, TensorType) or not isinstance(got, TensorType):
        return
    for dim, size in zip(wanted.shape or (), got.shape or (), strict=False):
        if isinstance(dim, SymDim) and len(dim.symbols) == 1:
            (name,) = dim.symbols
            if dim == symbol(name):
                yield name, size


def kept_type(known: Type, made: Type, sizes: Mapping[str, Dim], new: Iterable[str]) -> Type:
    """The type that a rule made of a body's node, with the sizes that the body knew and the rule did not find.

    These are those of `known` without a symbol in `new`, which running the node makes; `sizes` replaces the others.
    """
    if not isinstance(known, TensorType) or not isinstance(made, TensorType) or known.shape is None:
        return made
    if made.shape is None or len(made.shape) != len(known.shape):
        return made
    pairs = zip(known.shape, made.shape, strict=True)
    return made.with_shape(
        tuple(found if isinstance(found, int) or symbols(dim) & {*new} else bind(dim, sizes) for dim, found in pairs)
    )


def mentioned(types: Iterable[Type]) -> frozenset[str]:
    """The symbols in any of the types."""
    return frozenset[str]().union(*map(type_symbols, types))


def bind_attr(value: AttrValue, sizes: Mapping[str, Dim]) -> AttrValue:
    """An attribute's value with symbols replaced; regions are left as they are."""
    if isinstance(value, SymDim):
        return bind(value, sizes)
    if isinstance(value, _TYPES):
        return bind_type(value, sizes)
    return tuple(bind_attr(item, sizes) for item in value) if is_tuple(value) else value


def inside(sizes: Mapping[str, Size], inputs: Iterable[Type], operands: Iterable[Type]) -> dict[str, Size]:
    """`sizes` as they hold in a region: without the symbols that its inputs bind anew."""
    own = mentioned(inputs) - mentioned(operands)
    return {name: size for name, size in sizes.items() if name not in own}
