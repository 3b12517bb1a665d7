"""The epilogue of a cuBLASLt call: what follows a GEMM in it, as a scale, a residual, a bias, an activation."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from .....ir.graph import Node, Value
from .....ir.types import DType
from ...kernel_ir.launch import BufferPlace
from ...kernel_ir.sources import Source
from .regions import AnchoredRegion, next_step, other_operand, static_shape

EPILOGUE_STEPS = frozenset({"residual", "bias", "relu", "gelu"})
"""What may follow a GEMM in one call of cuBLASLt."""


@dataclass(frozen=True, slots=True)
class CublasltEpilogue:
    """What a GEMM takes along: d = activation(alpha * a @ b + beta * residual + bias); `value` is what it makes."""

    value: Value
    alpha: float = 1.0
    beta: float = 0.0
    residual: Source | None = None
    bias: Source | None = None
    activation: str = ""


def epilogue_of(region: AnchoredRegion, steps: Collection[str] = EPILOGUE_STEPS) -> CublasltEpilogue:
    """The longest epilogue of the form that cuBLASLt has, of those `steps` alone.

    Its GELU is the tanh form: the exact one is never taken along. In f32 it errs by 7e-7 where a kernel behind the
    call errs by 1.5e-7, and is taken only where operands may be rounded to TF32. What a gemm does by itself belongs to
    it always.
    """
    epilogue = _own_epilogue(region)
    return CublasltEpilogue(region.anchor.output) if epilogue is None else lengthened(region, epilogue, steps)


def lengthened(
    region: AnchoredRegion, epilogue: CublasltEpilogue, steps: Collection[str] = EPILOGUE_STEPS
) -> CublasltEpilogue:
    """An epilogue with all that may follow it."""
    while not epilogue.activation:
        node = next_step(region, epilogue.value)
        longer = _extended(region, epilogue, node, steps) if node is not None else None
        if longer is None:
            break
        epilogue = longer
    return epilogue


def _own_epilogue(region: AnchoredRegion) -> CublasltEpilogue | None:
    """What a gemm does by itself; None if cuBLASLt cannot, and so nothing may follow either."""
    value = region.anchor.output
    if region.anchor.op.name != "gemm":
        return CublasltEpilogue(value)
    alpha, beta, c = region.anchor.attrs["alpha"], region.anchor.attrs["beta"], region.operand(2)
    if c is None or beta == 0.0:
        return CublasltEpilogue(value, alpha=alpha)
    shape = static_shape(value)
    if beta == 1.0 and _is_bias(c, shape):
        return CublasltEpilogue(value, alpha=alpha, bias=c)
    if c.shape == shape:
        return CublasltEpilogue(value, alpha=alpha, beta=beta, residual=c)
    return None


def gemm_fits(region: AnchoredRegion) -> bool:
    """Whether the addend of a gemm is a bias or a residual; matmul has none."""
    return _own_epilogue(region) is not None


def _extended(
    region: AnchoredRegion, epilogue: CublasltEpilogue, node: Node, steps: Collection[str]
) -> CublasltEpilogue | None:
    made = node.output
    if static_shape(made) != static_shape(epilogue.value) or made.tensor.dtype is not epilogue.value.tensor.dtype:
        return None
    if node.op.name == "relu" and "relu" in steps:
        return replace(epilogue, value=made, activation="relu")
    is_near = made.tensor.dtype is not DType.F32 or region.task.tf32
    if node.op.name == "gelu" and node.attrs["approximate"] == "tanh" and is_near and "gelu" in steps:
        return replace(epilogue, value=made, activation="gelu_tanh")
    if node.op.name == "add":
        return _added(region, epilogue, node, steps)
    return None


def _added(
    region: AnchoredRegion, epilogue: CublasltEpilogue, node: Node, steps: Collection[str]
) -> CublasltEpilogue | None:
    other = other_operand(node, epilogue.value)
    source = region.sources.get(other) if other is not None else None
    if source is None or source.dtype is not epilogue.value.tensor.dtype:
        return None
    shape = static_shape(node.output)
    is_residual = source.shape == shape and isinstance(source.argument, BufferPlace) and "residual" in steps
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
