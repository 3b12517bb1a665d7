"""The form of matmuls: `gemm` for two matrices with what stands around them, `matmul` for stacks of rows.

A `gemm` takes in the addition after it and transposed operands. Rows that are flattened only to be multiplied, as by
PyTorch's `addmm`, stay as they are: `reshape(gemm(reshape(x), W, b))` is `add(matmul(x, W), b)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...ir.analysis.contents import any_constant_of
from ...ir.dims import Truth, compare
from ...ir.graph import Node, Value
from ...ir.op import Trait
from ...ir.ops.known import GEMM, MATMUL, TRANSPOSE
from ...ir.ops.rules import normal_axes
from ..framework.base import PatternPass
from ..framework.deferred import transposed
from ..framework.exactness import Exactness
from ..framework.pattern import Capture, Found, Match, Rule
from ..framework.rewriter import Rewriter
from .absorb import any_own_weight


@dataclass(frozen=True)
class MatmulForms(PatternPass):
    """Writes matmuls with as few nodes as possible; sums may be rounded in another order."""

    name: ClassVar[str] = "matmul-forms"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def rules(self) -> Sequence[Rule]:
        return RULES


_PLAIN = {"alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": False}


def _is_matrix(value: Value) -> bool:
    return value.tensor.rank == 2


def _is_addend(value: Value, matmul: Value) -> bool:
    """Whether a gemm takes it: it broadcasts to the matmul, surely."""
    shape = value.shape
    if len(shape) > 2:
        return False
    sizes = zip(shape[::-1], matmul.shape[::-1], strict=False)
    return all(size == 1 or compare(size, wanted) is Truth.YES for size, wanted in sizes)


def _sum_as_gemm(rewriter: Rewriter, found: Found) -> Value | None:
    matmul, addend = found.node("matmul"), found["c"]
    if not _is_addend(addend, matmul.output) or not matmul.output.tensor.dtype.is_float:
        return None
    if matmul.op is MATMUL:
        return rewriter.op("gemm", *matmul.operands, addend, **_PLAIN)
    return rewriter.op("gemm", *matmul.inputs[:2], addend, **{**matmul.attrs, "beta": 1.0})


def _transposed_operand(rewriter: Rewriter, found: Found) -> Value | None:
    """Operands that a transpose turned round are read the other way. Few backends have a gemm of integers."""
    root = found.root
    if not root.output.tensor.dtype.is_float:
        return None
    attrs = dict(root.attrs) or dict(_PLAIN)
    inputs = list(root.inputs)[:2]
    for side, name in enumerate(("trans_a", "trans_b")):
        source = _untransposed(inputs[side])
        if source is not None:
            inputs[side], attrs[name] = source, not attrs[name]
    if inputs == list(root.inputs[:2]):
        return None
    return rewriter.op("gemm", *inputs, root.inputs[2] if root.op is GEMM else None, **attrs)


def _untransposed(value: Value | None) -> Value | None:
    node = value.producer if value is not None else None
    if value is None or node is None or node.op is not TRANSPOSE or value.use_count != 1:
        return None
    return node.operands[0] if normal_axes(node.attrs["perm"], value.tensor.rank) == (1, 0) else None


def _rows(rewriter: Rewriter, found: Found) -> Value | None:
    """A matmul of flattened rows, as one of the rows where they stand."""
    x, gemm, root = found["x"], found.node("gemm"), found.root
    bias = gemm.inputs[2]
    if x.shape[:-1] != root.output.shape[:-1] or x.shape[-1:] != gemm.operands[0].shape[1:]:
        return None
    if root.output.shape[-1] != gemm.output.shape[1] or not _is_plain(gemm, bias):
        return None
    weight = _right_side(rewriter, gemm)
    if weight is None:
        return None
    matmul = rewriter.op("matmul", x, weight)
    return matmul if bias is None else rewriter.op("add", matmul, bias)


def _is_plain(gemm: Node, bias: Value | None) -> bool:
    """Without factors, and with one addend for each column: a row of them broadcasts over stacks as well."""
    attrs = gemm.attrs
    if attrs["trans_a"] or attrs["alpha"] != 1.0 or (attrs["trans_b"] and any_own_weight(gemm.inputs[1]) is None):
        return False
    return bias is None or (attrs["beta"] == 1.0 and bias.tensor.rank == 1)


def _right_side(rewriter: Rewriter, gemm: Node) -> Value | None:
    weight = gemm.inputs[1]
    content = any_constant_of(weight)
    if not gemm.attrs["trans_b"]:
        return weight
    return rewriter.constant(transposed(content, (1, 0))) if content is not None else None


_A, _B = Capture("a", where=_is_matrix), Capture("b", where=_is_matrix)
_NO_BIAS = Match("gemm", _A, _B, name="matmul", only_user=True)
_MATRICES = Match("matmul", _A, _B, name="matmul", only_user=True)
_FLAT = Match("gemm", Match("reshape", Capture("x"), only_user=True), name="gemm", only_user=True, more=True)

RULES: tuple[Rule, ...] = (
    Rule("sum-as-gemm", Match("add", _MATRICES, Capture("c")), _sum_as_gemm),
    Rule("sum-into-gemm", Match("add", _NO_BIAS, Capture("c")), _sum_as_gemm),
    Rule("transpose-into-gemm", Match(Trait.CONTRACTION, _A, _B, more=True), _transposed_operand),
    Rule("rows-as-matmul", Match("reshape", _FLAT), _rows),
)
