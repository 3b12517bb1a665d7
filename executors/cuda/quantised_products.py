"""Products of quantised tensors: cuBLASLt for i8 without zero points and for fp8, own kernels for the rest."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...ir.types import DType
from .launch import Candidate, LibraryCall, Lowering, Task
from .problems import MatmulProblem
from .products import Factors, factors_of, matrix_of, packed_weight, product_bytes, workspace_bytes
from .quantisation import Quantisation
from .regions import Source, scratch_behind, source_of
from .strided_products import strided_product
from .tails import broadcast_to

_PIECE = 16
"""Multiples that sizes of products of bytes have to be of."""


def lower_matmul_integer(task: Task) -> Iterator[Candidate]:
    """The product of bytes in i32."""
    a, b, a_zero, b_zero = _sources(task, 4)
    assert a is not None
    assert b is not None
    d = source_of(task.results[0])
    if a.dtype is b.dtype is DType.I8 and _is_zero(a_zero) and _is_zero(b_zero):
        yield from _by_cublaslt(task, a, b, d)
    given = {"a_zero": _per_row(a_zero), "b_zero": b_zero}
    yield from _by_strides(task, a, b, d, given)


def lower_qlinear_matmul(task: Task) -> Iterator[Candidate]:
    """The product of quantised matrices, quantised again."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = _sources(task, 8)
    assert a is not None
    assert b is not None
    given = {
        "a_zero": _per_row(a_zero),
        "b_zero": b_zero,
        "a_scale": _per_row(a_scale),
        "b_scale": b_scale,
        "y_scale": _per_row(y_scale),
        "y_zero": _per_row(y_zero),
    }
    yield from _by_strides(task, a, b, source_of(task.results[0]), given)


def _sources(task: Task, count: int) -> list[Source | None]:
    found = [
        source_of(view, task.constants.get(index)) if view is not None else None
        for index, view in enumerate(task.operands)
    ]
    return [*found, *[None] * (count - len(found))]


def _is_zero(zero: Source | None) -> bool:
    return zero is None or (zero.constant is not None and not zero.constant.array.any())


def _per_row(parameter: Source | None) -> Source | None:
    """A vector [M] as [M, 1]."""
    if parameter is None or len(parameter.shape) != 1 or parameter.size == 1:
        return parameter
    return replace(parameter, shape=(*parameter.shape, 1), strides=(*parameter.strides, 0))


def _by_strides(task: Task, a: Source, b: Source, d: Source, given: Mapping[str, Source | None]) -> Iterator[Candidate]:
    if 1 in (len(a.shape), len(b.shape)):
        return
    sources = {name: source for name, source in given.items() if source is not None}
    leading = d.shape[:-2]
    factors = Factors(broadcast_to(a, (*leading, *a.shape[-2:])), broadcast_to(b, (*leading, *b.shape[-2:])), d)
    launch = strided_product(factors, chip=task.chip, quantisation=Quantisation(a.dtype, sources))
    if launch is not None:
        yield Candidate("strided", (launch,))


def _by_cublaslt(task: Task, a: Source, b: Source, d: Source) -> Iterator[Candidate]:
    factors = factors_of(a, packed_weight(b), d)
    left, right, made = (matrix_of(source) for source in (factors.a, factors.b, factors.d))
    sizes = (*factors.d.shape[-2:], factors.a.shape[-1])
    if factors.leading or left is None or right is None or made is None or any(size % _PIECE for size in sizes[1:]):
        return
    if not left.is_row_major or right.is_row_major or not made.is_row_major or left.leading % _PIECE:
        return  # tensor cores read bytes along the inner axis alone
    rows, columns, inner = sizes
    problem = MatmulProblem(1, rows, columns, inner, left, right, made)
    workspace, room = scratch_behind(task, 0, workspace_bytes(problem))
    arguments = {"a": factors.a.argument, "b": factors.b.argument, "d": factors.d.argument}
    flops = 2 * rows * columns * inner
    call = LibraryCall("cublaslt", problem, arguments, product_bytes(problem), flops, workspace, room)
    yield Candidate("cublaslt", (call,), room)


LOWERINGS: Mapping[str, Lowering] = {
    "matmul_integer": lower_matmul_integer,
    "qlinear_matmul": lower_qlinear_matmul,
}
