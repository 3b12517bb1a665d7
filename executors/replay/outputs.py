"""Static outputs in debug mode: reading one after the next call is an error instead of wrong numbers."""

from typing import Any

import numpy as np

from ...ir.constant import Array
from ...ir.errors import ExecutionError


class Generation:
    """Counts the calls of a program: a static output is valid while its own call is the latest."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


class StaticOutput(np.lib.mixins.NDArrayOperatorsMixin):
    """A static buffer that knows when it was overwritten. NumPy reads it as an array; so does indexing."""

    __slots__ = ("_array", "_current", "_made")

    def __init__(self, array: Array, current: Generation) -> None:
        self._array = array
        self._current = current
        self._made = current.number

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._array.dtype

    @property
    def array(self) -> Array:
        """The buffer. Raises `ExecutionError` once a later call has overwritten it."""
        if self._current.number != self._made:
            raise ExecutionError(
                "this output was overwritten: it lies in a static buffer, and the program has run again",
                remedy="copy it before the next call, or leave copy_outputs=True",
            )
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [each.array if isinstance(each, StaticOutput) else each for each in inputs]
        return getattr(ufunc, method)(*plain, **kwargs)

    def __getitem__(self, index: Any) -> Any:
        return self.array[index]

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        return f"StaticOutput({self.dtype}{list(self.shape)})"
