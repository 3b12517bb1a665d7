"""Products of matrices: `matmul`, `gemm`, and regions around them, by cuBLASLt, own kernels for few rows, or strides.

Constant weights [K, N] are packed once as [N, K]: rows of a weight are then read in one piece by a kernel for few rows,
and it is the layout that tensor cores are fed from directly.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from ...ir.graph import Node, Value
from ...ir.plan import element_bytes
from ...ir.types import DType
from .launch import Argument, Candidate, LibraryCall, Lowering, Packed, Place, Task
from .problems import MatmulProblem, Matrix
from .regions import (
    Region,
    Source,
    aligned,
    completed,
    made_in,
    next_step,
    other_operand,
    region_of,
    scratch_behind,
    static_shape,
)

MAX_CALLS = 64
"""Products that one step may be split into when its leading axes do not lie as one batch."""

_CUBLASLT_DTYPES = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
_MIB = 1 << 20

NARROW = 1024
"""Up to how many columns own kernels beat a single call of cuBLASLt at some ten to some hundred rows."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What a product takes along: d = activation(alpha * a @ b + beta * residual + bias); `value` is what it makes."""

    value: Value
    alpha: float = 1.0
    beta: float = 0.0
    residual: Source | None = None
    bias: Source | None = None
    activation: str = ""


def product_operands(region: Region) -> tuple[Source, Source, Source | None]:
    """The factors of the heavy node as matrices without flags, and its addend."""
    a, b, c = region.operand(0), region.operand(1), region.operand(2)
    assert a is not None
    assert b is not None
    if region.anchor.op.name != "gemm":
        return a, b, None
    attrs = region.anchor.attrs
    return transposed(a) if attrs["trans_a"] else a, transposed(b) if attrs["trans_b"] else b, c


def transposed(source: Source) -> Source:
    """The last two axes exchanged."""
    return replace(
        source,
        shape=(*source.shape[:-2], source.shape[-1], source.shape[-2]),
        strides=(*source.strides[:-2], source.strides[-1], source.strides[-2]),
    )


# ---- what follows the product


EPILOGUE_STEPS = frozenset({"residual", "bias", "relu", "gelu"})
"""What may follow a product in one call of cuBLASLt."""


def epilogue_of(region: Region, steps: Collection[str] = EPILOGUE_STEPS) -> Epilogue:
    """The longest epilogue of the form that cuBLASLt has, of those `steps` alone.

    Its GELU is the tanh form: the exact one is never taken along. What a gemm does by itself belongs to it always.
    """
    epilogue = _own_epilogue(region)
    return Epilogue(region.anchor.output) if epilogue is None else lengthened(region, epilogue, steps)


def lengthened(region: Region, epilogue: Epilogue, steps: Collection[str] = EPILOGUE_STEPS) -> Epilogue:
    """An epilogue with all that may follow it."""
    while not epilogue.activation:
        node = next_step(region, epilogue.value)
        longer = _extended(region, epilogue, node, steps) if node is not None else None
        if longer is None:
            break
        epilogue = longer
    return epilogue


def _own_epilogue(region: Region) -> Epilogue | None:
    """What a gemm does by itself; None if cuBLASLt cannot, and so nothing may follow either."""
    value = region.anchor.output
    if region.anchor.op.name != "gemm":
        return Epilogue(value)
    alpha, beta, c = region.anchor.attrs["alpha"], region.anchor.attrs["beta"], region.operand(2)
    if c is None or beta == 0.0:
        return Epilogue(value, alpha=alpha)
    shape = static_shape(value)
    if beta == 1.0 and _is_bias(c, shape):
        return Epilogue(value, alpha=alpha, bias=c)
    if c.shape == shape:
        return Epilogue(value, alpha=alpha, beta=beta, residual=c)
    return None


def gemm_fits(region: Region) -> bool:
    """Whether the addend of a gemm is a bias or a residual; matmul has none."""
    return _own_epilogue(region) is not None


def _extended(region: Region, epilogue: Epilogue, node: Node, steps: Collection[str]) -> Epilogue | None:
    made = node.output
    if static_shape(made) != static_shape(epilogue.value) or made.tensor.dtype is not epilogue.value.tensor.dtype:
        return None
    if node.op.name == "relu" and "relu" in steps:
        return replace(epilogue, value=made, activation="relu")
    if node.op.name == "gelu" and node.attrs["approximate"] == "tanh" and "gelu" in steps:
        return replace(epilogue, value=made, activation="gelu_tanh")
    if node.op.name == "add":
        return _added(region, epilogue, node, steps)
    return None


def _added(region: Region, epilogue: Epilogue, node: Node, steps: Collection[str]) -> Epilogue | None:
    other = other_operand(node, epilogue.value)
    source = region.sources.get(other) if other is not None else None
    if source is None or source.dtype is not epilogue.value.tensor.dtype:
        return None
    shape = static_shape(node.output)
    is_residual = source.shape == shape and isinstance(source.argument, Place) and "residual" in steps
    if epilogue.residual is None and is_residual and source.constant is None:
        return replace(epilogue, value=node.output, beta=1.0, residual=source)
    if epilogue.bias is None and _is_bias(source, shape) and "bias" in steps:
        return replace(epilogue, value=node.output, bias=source)
    if epilogue.residual is None and is_residual:
        return replace(epilogue, value=node.output, beta=1.0, residual=source)
    return None


def _is_bias(source: Source, shape: Sequence[int]) -> bool:
    """Whether it has an entry for each column of a result of this shape, side by side, and is the same in all rows."""
    if not shape or not source.shape or source.size != shape[-1] or source.shape[-1] != shape[-1]:
        return False
    return source.strides[-1] == 1 or shape[-1] == 1


# ---- layouts


@dataclass(frozen=True, slots=True)
class Factors:
    """Operands of a product as [*leading, rows, inner] and so on, broadcast to one leading shape."""

    a: Source
    b: Source
    d: Source
    c: Source | None = None

    @property
    def leading(self) -> tuple[int, ...]:
        return self.d.shape[:-2]


def factors_of(a: Source, b: Source, d: Source, c: Source | None = None) -> Factors:
    """Vectors as matrices, leading axes broadcast, and as many of them as possible made rows or one batch."""
    if len(a.shape) == 1:
        a, d = _with_axis(a, 0), _with_axis(d, len(d.shape) - (len(b.shape) > 1))
        c = _with_axis(c, len(c.shape) - (len(b.shape) > 1)) if c is not None else None
    if len(b.shape) == 1:
        b, d = _with_axis(b, 1), _with_axis(d, len(d.shape))
        c = _with_axis(c, len(c.shape)) if c is not None else None
    leading = d.shape[:-2]
    a, b = _broadcast(a, leading), _broadcast(b, leading)
    return _coalesced(_rows_merged(Factors(a, b, d, _broadcast(c, leading) if c is not None else None)))


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


def _rows_merged(factors: Factors) -> Factors:
    """Innermost leading axes that do not move `b` become part of the rows, where `a`, `c` and `d` lie so."""
    while factors.leading:
        axis = len(factors.leading) - 1
        size = factors.leading[axis]
        moved = [source for source in (factors.a, factors.c, factors.d) if source is not None]
        if size != 1 and (factors.b.strides[axis] or not all(_rows_continue(source) for source in moved)):
            return factors
        factors = Factors(
            _rows_with_axis(factors.a),
            _without_axis(factors.b),
            _rows_with_axis(factors.d),
            _rows_with_axis(factors.c) if factors.c is not None else None,
        )
    return factors


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


def _coalesced(factors: Factors) -> Factors:
    """Leading axes that lie one behind another in every operand become one; those of size 1 go."""
    sources = [source for source in (factors.a, factors.b, factors.d, factors.c) if source is not None]
    sizes: list[int] = []
    strides: list[list[int]] = [[] for _ in sources]
    for axis, size in enumerate(factors.leading):
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
    return Factors(made[0], made[1], made[2], made[3] if factors.c is not None else None)


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


# ---- cuBLASLt


def packed_weight(source: Source) -> Source:
    """A constant matrix [K, N], as [N, K] in memory and seen as [K, N]; anything else as it is."""
    constant = source.constant
    if constant is None or len(source.shape) != 2 or source.shape != constant.shape:
        return source
    if source.strides != (source.shape[1], 1) or 1 in source.shape:
        return source
    return replace(source, strides=(1, source.shape[0]), argument=Packed(constant, "transposed", (1, 0)))


def cublaslt_calls(
    factors: Factors,
    epilogue: Epilogue,
    task: Task,
    used_scratch: int = 0,
    scales: Mapping[str, Argument] = MappingProxyType({}),
) -> tuple[LibraryCall, ...] | None:
    """The calls that make `factors.d`; None where cuBLASLt has no such product.

    `scales` are the roles "a_scale" and "b_scale" with f32 scalars in device memory, for factors in fp8.
    """
    is_of_bytes = (factors.a.dtype, factors.d.dtype) == (DType.I8, DType.I32)
    if not (is_of_bytes or factors.d.dtype in _CUBLASLT_DTYPES) or 0 in (*factors.d.shape, factors.a.shape[-1]):
        return None
    if factors.d.dtype is DType.F64 and (epilogue.bias is not None or epilogue.activation):
        return None
    *outer, batch = (1, *factors.leading)
    if math.prod(outer) > MAX_CALLS:
        return None
    problem = _problem(factors, epilogue, task, batch)
    if problem is None:
        return None
    problem = replace(problem, scaled=bool(scales))
    workspace = scratch_behind(task, used_scratch, workspace_bytes(problem))
    return tuple(_call(problem, factors, epilogue, index, workspace, scales) for index in _indices(outer[1:]))


def _problem(factors: Factors, epilogue: Epilogue, task: Task, batch: int) -> MatmulProblem | None:
    has_batch = bool(factors.leading)
    a, b, d = (
        matrix_of(source, source.strides[-3] if has_batch else 0) for source in (factors.a, factors.b, factors.d)
    )
    c = None
    if factors.c is not None:
        c = matrix_of(factors.c, factors.c.strides[-3] if has_batch else 0)
        if c is None or not c.is_row_major:
            return None
    if a is None or b is None or d is None or not d.is_row_major:
        return None
    return MatmulProblem(
        batch=batch,
        rows=factors.d.shape[-2],
        columns=factors.d.shape[-1],
        inner=factors.a.shape[-1],
        a=a,
        b=b,
        d=d,
        c=c,
        bias=epilogue.bias.dtype if epilogue.bias is not None else None,
        alpha=epilogue.alpha,
        beta=epilogue.beta,
        activation=epilogue.activation,
        tf32=task.tf32 and factors.a.dtype is DType.F32,
    )


def _indices(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    if not sizes:
        yield ()
        return
    for first in range(sizes[0]):
        for others in _indices(sizes[1:]):
            yield (first, *others)


def _call(
    problem: MatmulProblem,
    factors: Factors,
    epilogue: Epilogue,
    index: tuple[int, ...],
    workspace: tuple[Place | None, int],
    scales: Mapping[str, Argument],
) -> LibraryCall:
    def begun(source: Source) -> Source:
        return source.at(sum(i * stride for i, stride in zip(index, source.strides, strict=False)))

    arguments = {"a": begun(factors.a), "b": begun(factors.b), "d": begun(factors.d)}
    if factors.c is not None:
        arguments["c"] = begun(factors.c)
    if epilogue.bias is not None:
        arguments["bias"] = epilogue.bias
    return LibraryCall(
        library="cublaslt",
        problem=problem,
        arguments={**{role: source.argument for role, source in arguments.items()}, **scales},
        nbytes=product_bytes(problem),
        flops=2 * problem.batch * problem.rows * problem.columns * problem.inner,
        workspace=workspace[0],
        workspace_bytes=workspace[1],
    )


def product_bytes(problem: MatmulProblem) -> int:
    """Bytes that a product reads and writes at least; what is shared by a batch counts once."""
    sizes = (
        (problem.a, problem.rows * problem.inner),
        (problem.b, problem.inner * problem.columns),
        (problem.d, problem.rows * problem.columns),
        (problem.c, problem.rows * problem.columns),
    )
    total = sum(
        element_bytes(matrix.dtype) * size * (problem.batch if matrix.batch_stride else 1)
        for matrix, size in sizes
        if matrix is not None
    )
    return total + (problem.columns * element_bytes(problem.bias) if problem.bias is not None else 0)


def workspace_bytes(problem: MatmulProblem) -> int:
    """Room for eight partial results in f32, from 1 to 32 MiB: cuBLASLt splits sums when a result has few tiles."""
    return min(max(aligned(32 * problem.batch * problem.rows * problem.columns), _MIB), 32 * _MIB)


# ---- lowering


def lower_product(task: Task) -> Iterator[Candidate]:
    """A matmul or gemm, alone or with what follows it in a `fused` region."""
    region = region_of(task)
    if region is None or region.anchor.op.name not in ("matmul", "gemm"):
        return
    if region.scaled:
        from .scaled_products import lower_scaled

        yield from lower_scaled(region)
        return
    yield from lower_region(region)


def lower_region(region: Region) -> Iterator[Candidate]:
    """A region around a matmul or gemm whose factors lie in memory as they are multiplied."""
    from .gemv import lower_few_rows, lower_normed_rows, lower_some_rows

    if region.norm is not None:
        yield from lower_normed_rows(region)
        return
    yield from lower_few_rows(region)
    some = list(lower_some_rows(region))
    by_cublaslt = list(_by_cublaslt(region))
    is_narrow = static_shape(region.anchor.output)[-1:] <= (NARROW,)
    is_split = any(len(each.launches) > 1 for each in by_cublaslt)
    yield from (*some, *by_cublaslt) if is_narrow or is_split else (*by_cublaslt, *some)
    yield from _by_strides(region)


def _by_cublaslt(region: Region) -> Iterator[Candidate]:
    if not gemm_fits(region):
        return
    epilogue = epilogue_of(region)
    made = made_in(region, epilogue.value)
    if made is None:
        return
    a, b, _ = product_operands(region)
    factors = factors_of(a, packed_weight(b), made.source, epilogue.residual)
    calls = cublaslt_calls(factors, epilogue, region.task, made.scratch_bytes)
    if calls is not None:
        room = max(call.workspace_bytes for call in calls)
        yield from completed("cublaslt", region, made, calls, room)


def _by_strides(region: Region) -> Iterator[Candidate]:
    from .strided_products import strided_product

    made = made_in(region, region.anchor.output)
    if made is None:
        return
    a, b, c = product_operands(region)
    alpha, beta = 1.0, 1.0
    if region.anchor.op.name == "gemm":
        alpha, beta = region.anchor.attrs["alpha"], region.anchor.attrs["beta"]
    launch = strided_product(factors_of(a, b, made.source, _addend(c, made.source)), alpha, beta, region.task.chip)
    if launch is None:
        return
    yield from completed("strided", region, made, (launch,))


def _addend(c: Source | None, d: Source) -> Source | None:
    """The addend of a gemm, broadcast to the result by strides of 0."""
    if c is None:
        return None
    missing = len(d.shape) - len(c.shape)
    strides = (*(0,) * missing, *c.strides)
    shape = (*(1,) * missing, *c.shape)
    moved = tuple(0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True))
    return replace(c, shape=d.shape, strides=moved)


LOWERINGS: Mapping[str, Lowering] = dict.fromkeys(("matmul", "gemm", "fused"), lower_product)
