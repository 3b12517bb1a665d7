"""The rules of padding safety: one table per family of ops.

An elementwise op needs no entry, nor does a node that the dim does not reach. Any other op without one is unsafe.
"""

from . import control, creation, elementwise, indexing, layout, linear, random, rows, selection, sequences
from .facts import Rules

RULES: Rules = {
    **elementwise.RULES,
    **layout.RULES,
    **rows.RULES,
    **linear.RULES,
    **creation.RULES,
    **indexing.RULES,
    **selection.RULES,
    **sequences.RULES,
    **random.RULES,
    **control.RULES,
}
