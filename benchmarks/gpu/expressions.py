"""What elementwise ops compute, as CUDA expressions of `x0`, `x1`, `x2`: values, with small floats widened to float."""

from collections.abc import Callable

from capgraph.ir.attrs import Attrs
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.graph import Node

from .kernels import literal

_EXPRESSIONS = {
    "add": "x0 + x1",
    "sub": "x0 - x1",
    "mul": "x0 * x1",
    "div": "x0 / x1",
    "neg": "-x0",
    "abs": "x0 < 0 ? -x0 : x0",
    "min": "x0 != x0 || x0 < x1 ? x0 : x1",
    "max": "x0 != x0 || x0 > x1 ? x0 : x1",
    "relu": "x0 < 0 ? 0 : x0",
    "reciprocal": "1 / x0",
    "sqrt": "sqrtf(x0)",
    "rsqrt": "1 / sqrtf(x0)",
    "exp": "expf(x0)",
    "log": "logf(x0)",
    "erf": "erff(x0)",
    "tanh": "tanhf(x0)",
    "pow": "powf(x0, x1)",
    "sigmoid": "1 / (1 + expf(-x0))",
    "where": "x0 ? x1 : x2",
    "is_nan": "x0 != x0",
    "equal": "x0 == x1",
    "less": "x0 < x1",
    "less_equal": "x0 <= x1",
    "greater": "x0 > x1",
    "greater_equal": "x0 >= x1",
    "logical_and": "x0 && x1",
    "logical_or": "x0 || x1",
    "logical_not": "!x0",
    "cast": "x0",
}


def _gelu(attrs: Attrs) -> str:
    if attrs["approximate"] == "tanh":
        return "0.5f * x0 * (1 + tanhf(0.7978845608028654f * (x0 + 0.044715f * x0 * x0 * x0)))"
    return "0.5f * x0 * erfcf(-0.7071067811865476f * x0)"


def _silu(attrs: Attrs) -> str:
    return f"x0 / (1 + expf(-{literal(attrs['alpha'])} * x0))"


_BY_ATTRIBUTES: dict[str, Callable[[Attrs], str]] = {"gelu": _gelu, "silu": _silu}


def is_elementwise(node: Node) -> bool:
    """Whether there is an expression for the node's op."""
    return node.op.name in _EXPRESSIONS or node.op.name in _BY_ATTRIBUTES


def expression(node: Node) -> str:
    """The expression of an elementwise node. Raises `UnsupportedError` where there is none."""
    made = _BY_ATTRIBUTES.get(node.op.name)
    if made is not None:
        return made(node.attrs)
    if node.op.name not in _EXPRESSIONS or (node.op.name in ("min", "max") and len(node.operands) != 2):
        raise UnsupportedError(f"there is no kernel for {node.op.name} here", where=node.where())
    return _EXPRESSIONS[node.op.name]
