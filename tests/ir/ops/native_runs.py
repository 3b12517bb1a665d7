"""A native op run once, with its type rule held to the results; also for ops whose sizes only running can tell."""

from collections.abc import Container
from typing import Any

import numpy as np
import numpy.typing as npt
from capgraph.ir.dims import evaluate, symbol
from capgraph.ir.op import FRESH
from capgraph.ir.ops import native
from capgraph.ir.types import DType, TensorType, Type

Array = npt.NDArray[Any]


def outcome(name: str, *operands: Array | None, static: Container[int] = (), **attrs: Any) -> tuple[Array, ...]:
    """The results of `name`. Their types must be what the rule says, for these sizes and for a symbol in place of each.

    The operands numbered in `static` keep their sizes: those that give a rank, say.
    """
    op = native(name)
    completed = op.complete_attrs(attrs)
    sizes: dict[str, int] = {}
    plain = [None if x is None else TensorType(DType.of(x.dtype), x.shape) for x in operands]
    general = [
        ty if ty is None or index in static else _with_symbols(ty, f"n{index}", sizes) for index, ty in enumerate(plain)
    ]
    inferred = [op.result_types(types, completed) for types in (plain, general)]
    copies = [None if x is None else x.copy() for x in operands]
    with np.errstate(all="ignore"):
        given = op.meaning(*operands, **completed.as_kwargs())
    results = tuple(np.asarray(result) for result in (given if isinstance(given, tuple) else (given,)))
    for operand, copy in zip(operands, copies, strict=True):
        assert operand is None or copy is None or _content(operand) == _content(copy), "a meaning wrote to its operand"
    for types in inferred:
        for ty, result in zip(types, results, strict=True):
            assert_fits(ty, result, sizes)
    return results


def _content(array: Array) -> Any:
    return array.tolist() if array.dtype.hasobject else array.tobytes()


def only(name: str, *operands: Array | None, static: Container[int] = (), **attrs: Any) -> Array:
    """`outcome` of an op with one result."""
    (result,) = outcome(name, *operands, static=static, **attrs)
    return result


def _with_symbols(ty: TensorType, prefix: str, sizes: dict[str, int]) -> TensorType:
    names = [f"{prefix}_{axis}" for axis in range(ty.rank)]
    sizes.update({name: size for name, size in zip(names, ty.dims, strict=True) if isinstance(size, int)})
    # A size of 1 often means more than any other: it stays.
    return ty.with_shape(tuple(1 if size == 1 else symbol(name) for name, size in zip(names, ty.dims, strict=True)))


def assert_fits(ty: Type, result: Array, sizes: dict[str, int]) -> None:
    """`result` has the dtype, rank and sizes of `ty` with its symbols bound; a fresh size may be anything."""
    assert isinstance(ty, TensorType)
    assert DType.of(result.dtype) is ty.dtype
    assert result.ndim == ty.rank
    for dim, size in zip(ty.dims, result.shape, strict=True):
        assert dim == FRESH or evaluate(dim, sizes) == size, (ty, result.shape, sizes)


def assert_same(found: Array, expected: Any) -> None:
    """Equal dtype, shape and elements, NaN included."""
    wanted = np.asarray(expected)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if found.dtype.kind in "OUS":
        assert found.tolist() == wanted.tolist()
    else:
        np.testing.assert_array_equal(found.astype(np.complex128), wanted.astype(np.complex128))
