"""What the elementwise families share: computing in f32, rows of their tables, symbolic meanings element by element."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np

from ..attrs import Attribute, Attrs
from ..constant import Array
from ..dims import Dim, Truth, is_at_least
from ..op import FLOATS, DTypes, Op, Symbolic, Trait, flops_per_element, op
from ..scalar import expression_of
from ..types import DType, Kind, TensorType, Type
from .rules import same_type


def by_component(function: Callable[[Array], Array], x: Array, imaginary: Callable[[Array], Array]) -> Array:
    """`function` of the real parts and `imaginary` of the imaginary ones of complex numbers; else `function` of `x`."""
    if x.dtype.kind != "c":
        return function(x)
    parts: Array = np.stack([function(np.real(x)), imaginary(np.imag(x))], axis=-1)
    return parts.view(x.dtype)[..., 0]


def is_small_float(array: Array) -> bool:
    """Whether the elements are floats below 32 bits (sub-byte integers, which no arithmetic op admits, aside)."""
    return array.dtype.itemsize < 4 and array.dtype.kind not in "biu"


def in_f32(function: Callable[..., Any]) -> Callable[..., Array]:
    """`function` computed in f32 when its first operand is a smaller float, and rounded once to that dtype."""

    @wraps(function)
    def wrapped(*operands: Array | None, **attrs: Any) -> Array:
        first = operands[0]
        assert first is not None  # no op's first operand is optional
        if not is_small_float(first):
            return np.asarray(function(*operands, **attrs), dtype=first.dtype)
        wide = (operand if operand is None else operand.astype(np.float32) for operand in operands)
        return np.asarray(np.asarray(function(*wide, **attrs)).astype(first.dtype))

    return wrapped


def unary(
    name: str,
    function: Callable[..., Any],
    doc: str,
    *,
    dtypes: DTypes,
    cost: int = 1,
    attrs: Sequence[Attribute] = (),
    symbolic: Symbolic | None = None,
    traits: Trait = Trait.NONE,
) -> Op:
    """A row for an op from one tensor to one of the same type, `cost` operations an element."""
    return op(
        name,
        "x: T",
        T=dtypes,
        attrs=attrs,
        infer=same_type,
        meaning=in_f32(function),
        traits=Trait.ELEMENTWISE | traits,
        aliases=((0, 0),),
        flops=flops_per_element(cost),
        symbolic=symbolic,
        doc=doc,
    )


def composed(name: str, meaning: Callable[[Any], Any], *, traits: Trait = Trait.NONE) -> Op:
    """A row for an op on floats whose meaning is an expression of other elementwise ops: the row is all that it needs.

    Its text in CUDA, its nodes in ONNX and the pattern that recognizes it are made from the expression.
    """
    scalar, doc = expression_of(meaning), meaning.__doc__ or ""
    return replace(unary(name, meaning, doc, dtypes=FLOATS, cost=scalar.cost, traits=traits), scalar=scalar)


def symbolic_elements(function: Callable[..., Any]) -> Symbolic:
    """The symbolic meaning of an elementwise op: `function` of one element of each operand (a dim or a truth value).

    When it answers None for an element or one that would wrap around, or an operand is not known, nothing is known of
    the result. Sizes with symbols in them are taken to fit: they come from shapes.
    """

    def rule(types: Sequence[Type | None], operands: Sequence[Any], attrs: Attrs) -> Array | None:
        if any(operand is None for operand in operands):
            return None
        applied = np.frompyfunc(lambda *dims: function(*dims, **attrs.as_kwargs()), len(operands), 1)(*operands)
        elements = np.asarray(applied, dtype=object)
        return elements if all_fit(elements, types[-1]) else None

    return rule


def all_fit(elements: Array, ty: Type | None) -> bool:
    """Whether every element is known, and every plain integer lies in the range of the dtype of `ty`."""
    dtype = ty.dtype if isinstance(ty, TensorType) and ty.dtype.is_integer else DType.I64
    least = 0 if dtype.kind is Kind.UINT else -(2 ** (dtype.bits - 1))
    limit = least + 2**dtype.bits
    items: list[Any] = elements.reshape(-1).tolist()
    return all(item is not None and (not isinstance(item, int) or least <= item < limit) for item in items)


def is_natural(dim: Dim) -> bool:
    """Whether a dim is known not to be negative."""
    return is_at_least(dim, 0) is Truth.YES
