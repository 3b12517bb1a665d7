"""Operands of matmuls: which of a region they are, and their strides as those of matrices, rows and one batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...kernel_ir.sources import Source, transposed
from ...libraries.problems import Matrix
from .regions import AnchoredRegion


def matmul_operands(region: AnchoredRegion) -> tuple[Source, Source, Source | None]:
    """The operands of the heavy node as matrices without flags, and its addend, if that is read."""
    a, b, c = region.operand(0), region.operand(1), region.operand(2)
    assert a is not None
    assert b is not None
    if region.anchor.op.name != "gemm":
        return a, b, None
    attrs = region.anchor.attrs
    left, right = transposed(a) if attrs["trans_a"] else a, transposed(b) if attrs["trans_b"] else b
    return left, right, c if attrs["beta"] else None


@dataclass(frozen=True, slots=True)
class GemmOperands:
    """Operands of a matmul as [*leading, rows, inner] and so on, broadcast to one leading shape."""

    a: Source
    b: Source
    d: Source
    c: Source | None = None

    @property
    def leading(self) -> tuple[int, ...]:
        return self.d.shape[:-2]


def gemm_operands(a: Source, b: Source, d: Source, c: Source | None = None) -> GemmOperands:
    """Vectors as matrices, leading axes broadcast, and as many of them as possible made rows or one batch."""
    if len(a.shape) == 1:
        a, d = _with_axis(a, 0), _with_axis(d, len(d.shape) - (len(b.shape) > 1))
        c = _with_axis(c, len(c.shape) - (len(b.shape) > 1)) if c is not None else None
    if len(b.shape) == 1:
        b, d = _with_axis(b, 1), _with_axis(d, len(d.shape))
        c = _with_axis(c, len(c.shape)) if c is not None else None
    leading = d.shape[:-2]
    a, b = _broadcast(a, leading), _broadcast(b, leading)
    return _coalesced(_rows_merged(GemmOperands(a, b, d, _broadcast(c, leading) if c is not None else None)))


def _with_axis(source: Source, axis: int) -> Source:
    shape, strides = list(source.shape), list(source.strides)
    shape.insert(axis, 1)
    strides.insert(axis, 1)
    return replace(source, shape=tuple(shape), strides=tuple(strides))


def _broadcast(source: Source, leading: Sequence[int]) -> Source:
    missing = len(leading) - (len(source.shape) - 2)
    own = source.shape[:-2]
    strides = [
        0 if size == 1 and wanted != 1 else stride
        for size, stride, wanted in zip(own, source.strides[:-2], leading[missing:], strict=True)
    ]
    return replace(
        source,
        shape=(*leading, *source.shape[-2:]),
        strides=(*(0,) * missing, *strides, *source.strides[-2:]),
    )


def _rows_merged(operands: GemmOperands) -> GemmOperands:
    """Innermost leading axes that do not move `b` become part of the rows, where `a`, `c` and `d` lie so."""
    while operands.leading:
        axis = len(operands.leading) - 1
        size = operands.leading[axis]
        moved = [source for source in (operands.a, operands.c, operands.d) if source is not None]
        if size != 1 and (operands.b.strides[axis] or not all(_rows_continue(source) for source in moved)):
            return operands
        operands = GemmOperands(
            _rows_with_axis(operands.a),
            _without_axis(operands.b),
            _rows_with_axis(operands.d),
            _rows_with_axis(operands.c) if operands.c is not None else None,
        )
    return operands


def _rows_continue(source: Source) -> bool:
    rows, stride, outer = source.shape[-2], source.strides[-2], source.strides[-3]
    return rows == 1 or outer == rows * stride


def _rows_with_axis(source: Source) -> Source:
    size, rows = source.shape[-3], source.shape[-2]
    stride = source.strides[-2] if rows != 1 or size == 1 else source.strides[-3]
    return replace(
        source,
        shape=(*source.shape[:-3], size * rows, source.shape[-1]),
        strides=(*source.strides[:-3], stride, source.strides[-1]),
    )


def _without_axis(source: Source) -> Source:
    return replace(
        source,
        shape=(*source.shape[:-3], *source.shape[-2:]),
        strides=(*source.strides[:-3], *source.strides[-2:]),
    )


def _coalesced(operands: GemmOperands) -> GemmOperands:
    """Leading axes that lie one behind another in every operand become one; those of size 1 go."""
    sources = [source for source in (operands.a, operands.b, operands.d, operands.c) if source is not None]
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in sources]
    for axis, size in enumerate(operands.leading):
        if size == 1:
            continue
        steps = [source.strides[axis] for source in sources]
        if sizes and all(each[-1] == size * step for each, step in zip(strides, steps, strict=True)):
            sizes[-1] *= size
            for each, step in zip(strides, steps, strict=True):
                each[-1] = step
            continue
        sizes.append(size)
        for each, step in zip(strides, steps, strict=True):
            each.append(step)
    made = [
        replace(source, shape=(*sizes, *source.shape[-2:]), strides=(*own, *source.strides[-2:]))
        for source, own in zip(sources, strides, strict=True)
    ]
    return GemmOperands(made[0], made[1], made[2], made[3] if operands.c is not None else None)


def matrix_of(source: Source, batch_stride: int = 0) -> Matrix | None:
    """The last two axes as a matrix; None where neither has its elements side by side, or rows lie over each other."""
    (rows, columns), (row_stride, column_stride) = source.shape[-2:], source.strides[-2:]
    if column_stride == 1 or columns == 1:
        row_stride = columns if rows == 1 else row_stride
        if columns == 1 and column_stride != 1 and row_stride < 1:
            return None
        return Matrix(source.dtype, row_stride, 1, batch_stride) if row_stride >= columns else None
    if row_stride == 1 or rows == 1:
        return Matrix(source.dtype, 1, column_stride, batch_stride) if column_stride >= rows else None
    return None
