"""Operands of matmuls, plain and quantized."""

from collections.abc import Sequence

from capgraph.ir.dims import Dim
from capgraph.ir.graph import Value
from capgraph.ir.op import Op
from capgraph.ir.types import DType

from tests.strategies.draw import GraphDraw, Sample, Sampler, sample
from tests.strategies.sizes import is_sized

EQUATIONS = (
    ("ij,jk->ik", (2, 2)),
    ("bij,bjk->bik", (3, 3)),
    ("ij->ji", (2,)),
    ("ii->i", (2,)),
    ("ij->", (2,)),
    ("i,j->ij", (1, 1)),
    ("...i,...i->...", (2, 2)),
    ("bhqd,bhkd->bhqk", (4, 4)),
    ("ab, bc, cd -> ad", (2, 2, 2)),
    ("ij,jk", (2, 2)),
)


def _left(d: GraphDraw, dtype: DType, ranks: Sequence[int] = (2, 3, 1, 4)) -> Value:
    return d.value(dtype, ranks, is_sized)


def _right_shape(d: GraphDraw, left: Sequence[Dim]) -> tuple[Dim, ...]:
    """A shape that a matrix, or stack of them, of shape `left` can be multiplied with."""
    if d.choose.chance(20):
        return (left[-1],)
    leading = left[:-2] if d.choose.chance(50) else ()
    return (*leading, left[-1], d.known_dim())


def matmul(d: GraphDraw, op: Op) -> Sample:
    dtype = d.dtypes(op)["a"]
    a = _left(d, dtype)
    return sample(a, d.shaped(dtype, _right_shape(d, a.shape)))


def gemm(d: GraphDraw, op: Op) -> Sample:
    dtype = d.dtypes(op)["a"]
    a = _left(d, dtype, (2,))
    options = d.options(op)
    rows, inner = a.shape[::-1] if options["trans_a"] else a.shape
    columns = d.known_dim()
    b = d.shaped(dtype, (columns, inner) if options["trans_b"] else (inner, columns))
    c = d.broadcastable(dtype, (rows, columns), to=True) if d.choose.chance(60) else None
    return sample(a, b, c, **options)


def einsum(d: GraphDraw, op: Op) -> Sample:
    """Each letter has one size; the axes of `...` broadcast."""
    equation, ranks = d.choose.pick(EQUATIONS)
    dtype, sizes = d.dtypes(op)["operands"], dict[str, Dim]()
    terms = equation.replace(" ", "").partition("->")[0].replace("...", ".").split(",")
    operands = [
        d.shaped(dtype, [sizes.setdefault(letter, d.known_dim()) for letter in term])
        for term, _ in zip(terms, ranks, strict=True)
    ]
    return sample(*operands, equation=equation)


def grouped_matmul(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    a = _left(d, dtypes["a"], (2,))
    groups = d.choose.integer(0, 4)
    b = d.shaped(dtypes["b"], (groups, a.shape[1], d.known_dim()))
    return sample(a, b, d.shaped(dtypes["ends"], (groups,)))


def det(d: GraphDraw, op: Op) -> Sample:
    size = d.choose.pick((2, 1, 3, 0, d.known_dim()))
    leading = tuple(d.known_dim() for _ in range(d.choose.integer(0, 1)))
    return sample(d.shaped(d.dtypes(op)["x"], (*leading, size, size)))


# ---- quantized


def matmul_integer(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    a = _left(d, dtypes["a"], (2, 3))
    b = d.shaped(dtypes["b"], (a.shape[-1], d.known_dim()))
    return sample(a, b, _row_parameter(d, dtypes["a"], a), _column_parameter(d, dtypes["b"], b))


def _row_parameter(d: GraphDraw, dtype: DType, a: Value) -> Value:
    shapes: list[tuple[Dim, ...]] = [(), (1,), (*a.shape[:-1], 1)]
    if len(a.shape) == 2:
        shapes.append(a.shape[:1])
    return d.shaped(dtype, d.choose.pick(shapes))


def _column_parameter(d: GraphDraw, dtype: DType, b: Value) -> Value:
    return d.shaped(dtype, d.choose.pick(((), (1,), b.shape[-1:])))


def qlinear_matmul(d: GraphDraw, op: Op) -> Sample:
    dtypes = d.dtypes(op)
    scale = dtypes["a_scale"]
    a = _left(d, dtypes["a"], (2, 3))
    b = d.shaped(dtypes["b"], (a.shape[-1], d.known_dim()))
    a_scale = _row_parameter(d, scale, a)
    b_scale = _column_parameter(d, scale, b)
    return sample(
        a,
        a_scale,
        d.shaped(dtypes["a_zero"], a_scale.shape),
        b,
        b_scale,
        d.shaped(dtypes["b_zero"], b_scale.shape),
        d.shaped(scale, ()),
        d.shaped(dtypes["y_zero"], ()),
    )


SAMPLERS: dict[str, Sampler] = {
    "matmul": matmul,
    "gemm": gemm,
    "einsum": einsum,
    "grouped_matmul": grouped_matmul,
    "det": det,
    "matmul_integer": matmul_integer,
    "qlinear_matmul": qlinear_matmul,
}
