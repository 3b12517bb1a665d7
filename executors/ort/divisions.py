"""Integer divisions that end the process: the processor traps at the least number by -1, and ONNX Runtime lets it.

NumPy wraps around, as the ops here do: the quotient is the least number again, the remainder 0. 8 and 16 bits are
divided in 32 and are safe.
"""

from ...ir.analysis import nested_graphs
from ...ir.analysis.shape_values import ShapeValues
from ...ir.constant import Constant
from ...ir.dims import Dim, lower_bound, upper_bound
from ...ir.graph import Node, Value
from ...ir.op import Trait
from ...ir.ops.known import CAST, DIV, GATHER, MOD
from ...ir.types import DType, Kind

_DIVISIONS = (DIV, MOD)  # not fmod: it is computed in floats
_TRAPPING = frozenset((DType.I32, DType.I64))


def may_trap(node: Node) -> bool:
    """Whether a node, or one in its regions, may divide the least integer by -1."""
    if _divides_least(node):
        return True
    bodies = (body for region in node.regions.values() for body in nested_graphs(region))
    return any(_divides_least(inner) for body in bodies for inner in body.nodes)


def _divides_least(node: Node) -> bool:
    if node.op not in _DIVISIONS or node.outputs[0].tensor.dtype not in _TRAPPING:
        return False
    dividend, divisor = node.operands
    least = -(1 << (dividend.tensor.dtype.bits - 1))
    known = ShapeValues()
    return _may_hold(divisor, -1, known) and _may_hold(dividend, least, known)


def _may_hold(value: Value, number: int, known: ShapeValues) -> bool:
    """Whether an element may be `number`: no, where constants, sizes or a narrower type that it was cast from tell."""
    elements = known.of(value)
    if elements is not None:
        return any(_may_be(element, number) for element in elements.reshape(-1).tolist())
    node = value.producer
    if node is None:
        return True
    content = node.attrs.get("value")
    if isinstance(content, Constant):
        return bool((content.array == number).any())
    if node.op.has(Trait.VIEW) or node.op is GATHER:
        return _may_hold(node.operands[0], number, known)
    if node.op is CAST:
        return _may_be_cast_to(number, node.operands[0], value.tensor.dtype, known)
    return True


def _may_be(dim: Dim, number: int) -> bool:
    low, high = lower_bound(dim), upper_bound(dim)
    return (low is None or low <= number) and (high is None or number <= high)


def _may_be_cast_to(number: int, given: Value, dtype: DType, known: ShapeValues) -> bool:
    """A wider type keeps every number, so that one that the narrower has not is none of the results."""
    narrow = given.tensor.dtype
    if narrow is DType.BOOL:
        return False
    if not narrow.is_integer or narrow.bits >= dtype.bits:
        return True
    least = -(1 << (narrow.bits - 1)) if narrow.kind is Kind.INT else 0
    return least <= number and _may_hold(given, number, known)
