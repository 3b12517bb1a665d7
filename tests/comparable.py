"""What of the outputs of a call a GPU can be held to: where rounding does not make another result.

A kernel sums in another order, and its functions are a few roundings off. Behind an op that jumps, or that enlarges
what its operands are off by, such a rounding is any difference at all. Where sums and products overflow on the way, or
meet infinities, the order decides what comes out. Behind a jump, outputs are held to what they do when every operation
of the graph is off by one rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from capgraph.ir.constant import Array
from capgraph.ir.errors import UnsupportedError
from capgraph.ir.evaluate import FAILURES, run_meaning
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.types import DType, Kind, TensorType
from capgraph.passes.framework.numeric import Sample, Samples

JUMPING = frozenset(
    [
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "is_nan",
        "is_inf",
        "sign",
        "floor",
        "ceil",
        "round",
        "mod",
        "fmod",
        "cast",
        "bit_cast",
        "quantize_linear",
        "dynamic_quantize_linear",
        "qlinear_conv",
        "qlinear_matmul",
        "sort",
        "top_k",
        "argmax",
        "argmin",
        "hardmax",
        "unique",
        "non_zero",
        "compress",
        "non_max_suppression",
        "one_hot",
        "thresholded_relu",
        "shrink",
        "keyed_bernoulli",
        "keyed_multinomial",
        "max_pool_with_indices",
        "gather",
        "gather_elements",
        "gather_nd",
        "scatter_elements",
        "scatter_nd",
        "range",
        "loop",
        "scan",
        "if",
        "where",
        "and",
        "or",
        "not",
    ]
)
"""A last bit of an operand may give quite another result."""
STEEP = frozenset(
    [
        "reciprocal",
        "div",
        "pow",
        "tan",
        "sin",
        "cos",
        "log",
        "acosh",
        "asin",
        "acos",
        "atanh",
        "sqrt",
        "rsqrt",
        "exp",
        "det",
        "layer_norm",
        "rms_norm",
        "instance_norm",
        "group_norm",
        "lp_norm",
        "batch_norm",
        "resize",
        "dynamic_resize",
    ]
)
"""What an operand is off by may become much more."""
ORDERED = frozenset(
    [
        "attention",
        "varlen_attention",
        "conv",
        "conv_transpose",
        "deform_conv",
        "det",
        "matmul",
        "gemm",
        "grouped_matmul",
        "einsum",
        "lstm",
        "gru",
        "rnn",
        "lrn",
        "cumsum",
        "cumprod",
        "dynamic_cumsum",
        "dynamic_cumprod",
        "average_pool",
        "lp_pool",
        "softmax",
        "log_softmax",
        "batch_norm",
        "layer_norm",
        "rms_norm",
        "instance_norm",
        "group_norm",
        "lp_norm",
    ]
)
"""With reductions: what they give where a part overflows or is infinite depends on the order of its parts."""
SUMS_OF_PRODUCTS = frozenset(["matmul", "gemm", "grouped_matmul", "conv", "conv_transpose"])
MOVING = frozenset(
    [
        "reshape",
        "transpose",
        "squeeze",
        "unsqueeze",
        "expand",
        "slice",
        "concat",
        "split",
        "tile",
        "reverse",
        "roll",
        "relu",
        "abs",
        "neg",
    ]
)
"""Results are elements of operands, but for signs."""


@dataclass(frozen=True)
class Held:
    """What outputs of a call are held to.

    Each element of those in `close`, within some of the roundings of the coarsest float on the way to it, which are
    given. Those in `answering` to how they answer to roundings, which `sample` says; the rest to dtype and rank.
    """

    close: dict[str, float]
    answering: frozenset[str] = frozenset()
    sample: Sample | None = None


def held_outputs(graph: Graph, arrays: Sequence[Array], sizes: dict[str, int]) -> Held:
    """What can be compared of the outputs of a call."""
    values: dict[Value, Any] = dict(zip(graph.inputs, arrays, strict=True))
    loose: set[Value] = set()
    lost: set[Value] = set()
    rounded: dict[Value, float] = {}
    for node in graph.nodes:
        operands = [None if value is None else values[value] for value in node.inputs]
        try:
            with np.errstate(all="ignore"):
                results = run_meaning(node, operands, dict(sizes))
        except FAILURES:
            return Held({})
        values.update(zip(node.outputs, results, strict=True))
        coarsest = max((rounded.get(value, 0.0) for value in node.operands), default=0.0)
        if any(value in loose for value in node.operands) or _answers(node, coarsest):
            loose.update(node.outputs)
        if any(value in lost for value in node.operands) or _loses(node, operands) or _cancels(node, operands, results):
            lost.update(node.outputs)
        grown = _growth(node, operands, results)
        if not math.isfinite(grown):
            lost.update(node.outputs)
        if node.op.name not in MOVING and node.op.name != "constant":
            rounded.update(
                (value, grown * max(coarsest, _rounding(value))) for value in node.outputs if _rounding(value)
            )
        else:
            rounded.update((value, coarsest) for value in node.outputs if coarsest)
    names = dict(zip(graph.output_names, graph.outputs, strict=True))
    close = {name: rounded.get(value, 0.0) for name, value in names.items() if value not in loose | lost}
    answering = frozenset(name for name, value in names.items() if value in loose - lost)
    try:
        return Held(close, answering, Samples.of(graph, [arrays]).samples[0] if answering else None)
    except UnsupportedError:  # it does not give the same twice
        return Held(close)


def _body(node: Node) -> set[str]:
    return {each.op.name for region in node.regions.values() for each in region.nodes}


def _answers(node: Node, coarsest: float) -> bool:
    """Whether a rounding of an operand, or of what a body computes, may become much more."""
    return bool(
        (node.op.name == "fused" and _body(node) & (JUMPING | STEEP))
        or (coarsest and (node.op.name in JUMPING or node.op.name in STEEP))
    )


def _loses(node: Node, operands: Sequence[Any]) -> bool:
    """Whether the order of sums or the machine may decide what comes out, or nothing is known of its last bits."""
    name = node.op.name
    if _body(node) & ORDERED:
        return True
    if name == "bit_cast":
        return any(map(_has_nan, operands))  # of which there are many
    if name == "cast":
        return _is_undefined(node, operands[0])
    if name == "pow":
        return _is_inexact_power(node)
    if name == "gemm" and node.output.tensor.dtype.is_integer:
        return _is_beyond_integers(node, operands)
    if name == "det" and _is_singular(operands[0]):
        return True
    return (name in ORDERED or name.startswith("reduce_")) and any(map(_is_extreme, operands))


def _cancels(node: Node, operands: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether next to nothing is left of sums of products: what is left are their roundings."""
    if node.op.name not in SUMS_OF_PRODUCTS or not results[0].size:
        return False
    rounding = rounding_of(results[0].dtype)
    greatest = math.prod(float(np.abs(array).max(initial=0)) for array in operands[:2])
    return math.isfinite(rounding) and float(np.abs(results[0]).max()) < 8 * rounding * greatest


def _has_nan(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "fV" and bool(np.isnan(array.astype(np.float64)).any())


def _is_undefined(node: Node, array: Any) -> bool:
    """Whether floats become integers that do not have them, NaN included: each machine gives others."""
    before, after = node.operands[0].tensor.dtype, node.output.tensor.dtype
    if not after.is_integer or before.kind not in (Kind.FLOAT, Kind.COMPLEX):
        return False
    limits = ml_dtypes.iinfo(after.numpy)  # type: ignore[no-untyped-call]
    whole = np.trunc((array.real if array.dtype.kind == "c" else array).astype(np.float64))
    return not bool(np.all((whole >= float(limits.min)) & (whole < float(limits.max) + 1)))


def _is_beyond_integers(node: Node, operands: Sequence[Any]) -> bool:
    """Whether factors that are no whole numbers make a gemm of integers a float that the integers do not have."""
    alpha, beta = node.attrs["alpha"], node.attrs["beta"]
    if alpha.is_integer() and beta.is_integer():
        return False
    (a, b, c), dtype = operands, node.output.tensor.dtype.numpy
    found = (
        np.matmul(a.T if node.attrs["trans_a"] else a, b.T if node.attrs["trans_b"] else b).astype(np.float64) * alpha
    )
    if c is not None:
        found = found + c.astype(np.float64) * beta
    limits = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return not bool(np.all((found > float(limits.min) - 1) & (found < float(limits.max) + 1)))


def _growth(node: Node, operands: Sequence[Any], results: Sequence[Any]) -> float:
    """How many roundings of a result the rounding of a part of it is; infinite where nothing is left but roundings.

    GELU by tanh adds 1 to a tanh that is nearly -1 for operands below 0.
    """
    if node.op.name != "gelu" or node.attrs["approximate"] != "tanh":
        return 1.0
    x, y = (np.abs(array.astype(np.float64)) for array in (operands[0], results[0]))
    with np.errstate(all="ignore"):
        return float(np.max(np.where((x == 0) | ~np.isfinite(x), 1.0, x / y), initial=1.0))


def _is_inexact_power(node: Node) -> bool:
    """Whether a function of floats gives long integers, of which it does not know the last bits."""
    base, exponent = (value.tensor.dtype for value in node.operands)
    return base.is_integer and base.bits == 64 and not exponent.is_integer


def _is_singular(array: Any) -> bool:
    """Whether of the determinant of a matrix next to nothing is left of its products."""
    matrix = array.astype(np.float64)
    with np.errstate(all="ignore"):
        products = np.prod(np.linalg.norm(matrix, axis=-1), axis=-1)
        return not bool(np.all(np.abs(np.linalg.det(matrix)) > 1e-4 * products))


def _is_extreme(array: Any) -> bool:
    """Whether numbers are infinite, or products of a few of them may be, or vanish."""
    if not isinstance(array, np.ndarray) or array.dtype.hasobject or not array.size:
        return False
    dtype = DType.of(array.dtype)
    if not dtype.is_float:
        return False
    size = np.abs(array.astype(np.float64))
    greatest = 1e4 if dtype.bits < 32 and dtype is not DType.BF16 else 1e9 if dtype is not DType.F64 else 1e75
    return (
        not np.isfinite(size).all() or bool((size > greatest).any()) or bool(((size > 0) & (size < 1 / greatest)).any())
    )


def rounding_of(dtype: np.dtype[Any]) -> float:
    """What a number and the next one are apart, as a part of it; infinite for what is no float."""
    kind = DType.of(dtype)
    if kind.kind is Kind.COMPLEX:
        return float(2.0 ** (-23 if kind is DType.C64 else -52))
    return float(ml_dtypes.finfo(dtype).eps) if kind.is_float else math.inf  # type: ignore[no-untyped-call]


def _rounding(value: Value) -> float:
    """What a result is rounded by; 0 for integers, truth values and strings."""
    found = rounding_of(value.tensor.dtype.numpy) if isinstance(value.type, TensorType) else math.inf
    return found if math.isfinite(found) else 0.0
