"""Matmuls: an axis is a row, a column or a batch, or it is contracted.

Along a contracted axis garbage has to be turned into zeros, in both operands: zero times infinity is no number.
"""

import math
from collections.abc import Sequence

from .....ir.dims import Dim
from .....ir.types import TensorType
from .elementwise import aligned
from .facts import Case, Fact, Mask, Rules, Tail, Unsafe, met

Labels = Sequence[str]


def contraction(case: Case, operands: Sequence[Labels], result: Labels) -> list[Fact]:
    """The rule for a matmul whose axes are labeled as in Einstein's sum convention."""
    found: dict[str, list[tuple[int, int, Tail]]] = {}
    for operand, labels in enumerate(operands):
        for axis, label in enumerate(labels):
            tail = case.tails(operand)[axis]
            if tail is not None:
                found.setdefault(label, []).append((operand, axis, tail))
            elif case.shape(operand)[axis] != 1:
                found.setdefault(label, [])
    tails: dict[str, Tail | None] = {}
    for label, places in found.items():
        if not places:
            continue
        if len({operand for operand, _, _ in places}) < len(places):
            raise Unsafe(f"it takes a diagonal along {case.symbol}")
        _require_carried(case, operands, label, places)
        tails[label] = met([tail for _, _, tail in places], "operands")
        if label not in result:
            _require_all(case, len(operands), places)
            _require_zeros(case, places)
    return [Fact(tuple(tails.get(label) for label in result))]


def _require_carried(
    case: Case, operands: Sequence[Labels], label: str, places: Sequence[tuple[int, int, Tail]]
) -> None:
    """An operand that has the label must carry the dim too, or broadcast."""
    carrying = {operand for operand, _, _ in places}
    for operand, labels in enumerate(operands):
        if operand in carrying or label not in labels:
            continue
        size = case.shape(operand)[list(labels).index(label)]
        if size != 1:
            raise Unsafe(f"an axis that carries {case.symbol} meets one of size {size}")


def _require_zeros(case: Case, places: Sequence[tuple[int, int, Tail]]) -> None:
    numbers = [tail.number for _, _, tail in places]
    infinite = [
        place
        for place, number in zip(places, numbers, strict=True)
        if case.is_float(place[0]) and (number is None or math.isinf(number))
    ]
    if 0 in numbers and not infinite:
        return
    masked = infinite or places[:1]
    masks = [Mask(operand, axis, 0) for operand, axis, _ in masked]
    raise Unsafe(f"it contracts an axis that carries {case.symbol}", masks)


def _require_all(case: Case, count: int, places: Sequence[tuple[int, int, Tail]]) -> None:
    """An infinite number of an operand without the axis makes NaN of the zeros behind the real elements."""
    carrying = {operand for operand, _, _ in places}
    if any(case.is_float(operand) for operand in range(count) if operand not in carrying):
        raise Unsafe(f"it contracts an axis that carries {case.symbol}, which one of its operands lacks")


def matmul_labels(a: TensorType, b: TensorType) -> tuple[list[str], list[str], list[str]]:
    """The labels of the operands of a NumPy matmul and of its result."""
    batch = max(a.rank, b.rank) - 2
    left = [f"b{batch - (a.rank - 2) + i}" for i in range(max(a.rank - 2, 0))]
    right = [f"b{batch - (b.rank - 2) + i}" for i in range(max(b.rank - 2, 0))]
    a_rows = ["m"] if a.rank > 1 else []
    b_columns = ["n"] if b.rank > 1 else []
    result = [f"b{i}" for i in range(max(batch, 0))]
    return [*left, *a_rows, "k"], [*right, "k", *b_columns], [*result, *a_rows, *b_columns]


def matmul(case: Case) -> list[Fact]:
    """Rows, columns and batches by themselves; the inner axis contracted."""
    a, b, result = matmul_labels(case.value(0).tensor, case.value(1).tensor)
    return contraction(case, (a, b), result)


def gemm(case: Case) -> list[Fact]:
    """As matmul; the addend broadcasts to the result."""
    attrs = case.node.attrs
    a = "km" if attrs["trans_a"] else "mk"
    b = "nk" if attrs["trans_b"] else "kn"
    (fact,) = contraction(case, (a, b), "mn")
    if case.optional(2) is None:
        return [fact]
    addend = aligned(case.tails(2), case.shape(2), 2)
    tails = [_with_addend(case, tail, *entry) for tail, entry in zip(fact.tails, addend, strict=True)]
    return [Fact(tuple(tails))]


def _with_addend(case: Case, tail: Tail | None, other: Tail | None, size: Dim) -> Tail | None:
    if tail is not None and other is None and size != 1:
        raise Unsafe(f"an axis that carries {case.symbol} meets one of size {size}")
    present = [each for each in (tail, other) if each is not None]
    return met(present, "operands") if present else None


def einsum(case: Case) -> list[Fact]:
    """By its equation."""
    equation = case.node.attrs["equation"].replace(" ", "")
    if "." in equation or "->" not in equation:
        raise Unsafe("only equations that name every axis and the result have a rule")
    left, right = equation.split("->")
    return contraction(case, [list(term) for term in left.split(",")], list(right))


def quantized_matmul(case: Case, a: int, b: int) -> list[Fact]:
    """Rows and batches by themselves, with one scale and zero point for all of them."""
    others = [i for i in range(len(case.facts)) if i not in (a, b) and case.optional(i) is not None]
    case.require_unpadded(*others, b)
    left = case.tails(a)
    if left and left[-1] is not None:
        raise Unsafe(f"it contracts an axis that carries {case.symbol}")
    if any(case.value(i).tensor.size != 1 for i in others) and any(tail is not None for tail in left):
        raise Unsafe("its rows have scales or zero points of their own")
    _, _, result = labels = matmul_labels(case.value(a).tensor, case.value(b).tensor)
    tails = dict(zip(labels[0], left, strict=True))
    return [Fact(tuple(tail.filled(None) if (tail := tails.get(label)) else None for label in result))]


def grouped_matmul(case: Case) -> list[Fact]:
    """Rows by themselves: where groups end says of no row anything but its own group."""
    case.require_unpadded(1, 2)
    rows, inner = case.tails(0)
    if inner is not None:
        raise Unsafe(f"it contracts an axis that carries {case.symbol}")
    return [Fact((None if rows is None else rows.filled(None), None))]


def conv(case: Case) -> list[Fact]:
    """Samples by themselves; along channels and space they mix, and weights do not carry the dim."""
    case.require_unpadded(*range(1, len(case.facts)))
    if any(tail is not None for tail in case.tails(0)[1:]):
        raise Unsafe(f"it slides over or contracts an axis that carries {case.symbol}")
    lead = case.tails(0)[0]
    rank = case.node.output.tensor.rank
    return [Fact((lead.filled(None) if lead is not None else None, *(None,) * (rank - 1)))]


RULES: Rules = {
    "matmul": matmul,
    "gemm": gemm,
    "einsum": einsum,
    "grouped_matmul": grouped_matmul,
    "matmul_integer": lambda case: quantized_matmul(case, 0, 1),
    "qlinear_matmul": lambda case: quantized_matmul(case, 0, 3),
    "conv": conv,
    "conv_transpose": conv,
    "conv_integer": conv,
    "qlinear_conv": conv,
}
