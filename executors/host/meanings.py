"""Faster ways to compute what an op means, for eager steps: same results within the dtype's rounding."""

from ...ir.op import Meaning, Op
from ...ir.ops.conv import conv_in_own_width

_FASTER: dict[str, Meaning] = {"conv": conv_in_own_width}


def host_meaning(op: Op) -> Meaning:
    """The function that eager steps call for `op`."""
    return _FASTER.get(op.name, op.meaning)
