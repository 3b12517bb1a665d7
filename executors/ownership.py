"""Whose memory results are: callers own what a program gives them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..ir.constant import Array
from ..ir.errors import out_of_memory
from ..ir.types import DType
from .memory import size_text


def owned(results: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The results, copied where writing to one would change an input, a weight or another result.

    Raises `ResourceError` where a copy does not fit into memory, such as one of an expanded view.
    """
    roots = [_root(value) for value in inputs if isinstance(value, np.ndarray)]
    taken = {id(root) for root in roots}
    kept: list[Any] = []
    for result in results:
        if isinstance(result, np.ndarray):
            root = _root(result)
            if id(root) in taken or not result.flags.writeable:
                result = _copied(result)  # noqa: PLW2901
            taken.add(id(root))
        kept.append(result)
    return kept


def _copied(array: Array) -> Array:
    try:
        return array.copy()
    except MemoryError as error:
        sizes = ", ".join(map(str, array.shape))
        raise out_of_memory(f"a result {DType.of(array.dtype)}[{sizes}], {size_text(array.nbytes)}") from error


def _root(array: Array) -> Array:
    """The array that owns the memory, as far as NumPy knows."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
