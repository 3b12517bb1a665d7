"""What an elementwise op computes, as an expression of other elementwise ops: read off its meaning in NumPy.

A row whose meaning consists of functions in `OPS` is all that its op needs (`composed` in `ir/ops/elementwise.py`): its
text in CUDA, its nodes in ONNX and the pattern that recognizes it follow from the expression.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

T = TypeVar("T")

OPS: Mapping[np.ufunc, str] = {
    np.add: "add",
    np.subtract: "sub",
    np.multiply: "mul",
    np.divide: "div",
    np.minimum: "min",
    np.maximum: "max",
    np.negative: "neg",
    np.absolute: "abs",
    np.sqrt: "sqrt",
    np.exp: "exp",
    np.log: "log",
    np.sin: "sin",
    np.cos: "cos",
    np.tanh: "tanh",
}
"""The functions that expressions consist of, and the ops that they are."""


class Scalar(NDArrayOperatorsMixin):
    """The result of `op` for `operands`, each an expression or a number; without an op, the operand of it all."""

    def __init__(self, op: str = "", operands: Sequence["Scalar | float"] = ()) -> None:
        self.op = op
        self.operands = tuple(operands)

    def __array_ufunc__(self, function: np.ufunc, method: str, *operands: Any, **options: Any) -> Any:
        if method != "__call__" or options or function not in OPS:
            return NotImplemented
        return Scalar(OPS[function], operands)

    @property
    def cost(self) -> int:
        """How many operations it takes."""
        return int(bool(self.op)) + sum(each.cost for each in self.operands if isinstance(each, Scalar))

    def written(self, x: T, number: Callable[[float], T], op: Callable[[str, Sequence[T]], T]) -> T:
        """The expression of `x` in another form, where `number` gives numbers and `op` results of ops."""
        parts = [
            each.written(x, number, op) if isinstance(each, Scalar) else number(float(each)) for each in self.operands
        ]
        return op(self.op, parts) if self.op else x


def expression_of(meaning: Callable[[Any], Any]) -> Scalar:
    """What `meaning` computes of its operand. Raises `TypeError` where it calls a function that is not in `OPS`."""
    found = meaning(Scalar())
    if not isinstance(found, Scalar):
        raise TypeError(f"{meaning.__name__} gives no expression of its operand")
    return found
