"""Convolutions with windows of one element, of images that lie in rows: GEMMs that need no other layout.

The result of a sample [M, places] is the weight [M, C] times the image [C, places], and samples are a batch that shares
the weight. cuBLASLt adds a number for each column, not for each row, so a kernel adds the bias.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from .....ir.plan import contiguous_strides
from ...kernel_ir.launch import Candidate
from ...kernel_ir.sources import Source
from ..gemm.cublaslt_calls import cublaslt_calls
from ..gemm.cublaslt_epilogue import CublasltEpilogue
from ..gemm.operands import gemm_operands
from ..gemm.regions import AnchoredRegion, completed, made_in, static_shape
from .image_copies import with_bias


def lower_as_matmul(region: AnchoredRegion) -> Iterator[Candidate]:
    """The candidate by cuBLASLt; none where windows reach over more than their place, or tensors lie otherwise."""
    attrs, x, w = region.anchor.attrs, region.operand(0), region.operand(1)
    assert x is not None
    assert w is not None
    is_of_places = all(size == 1 for size in w.shape[2:]) and set(attrs["strides"]) <= {1} and set(attrs["pads"]) <= {0}
    made = made_in(region, region.anchor.output)
    if region.anchor.op.name != "conv" or attrs["groups"] != 1 or not is_of_places or made is None:
        return
    image, result = _planes(x), _planes(made.source)
    if image is None or result is None or 0 in static_shape(region.anchor.output):
        return
    weight = replace(w, shape=w.shape[:2], strides=w.strides[:2])
    calls = cublaslt_calls(
        gemm_operands(weight, image, result), CublasltEpilogue(made.value), region.task, made.scratch_bytes
    )
    if calls is None:
        return
    bias = region.operand(2)
    behind = (with_bias(result, bias),) if bias is not None else ()
    room = max(call.workspace_bytes for call in calls)
    yield from completed("product", region, made, (*calls, *behind), room)


def _planes(source: Source) -> Source | None:
    """An image [N, C, ...] in rows as [N, C, places]; None where it lies otherwise."""
    count, channels, *sizes = source.shape
    wanted = contiguous_strides(source.shape, 1)
    each = list(zip(source.shape, source.strides, wanted, strict=True))
    if any(size != 1 and stride != want for size, stride, want in each[1:]):
        return None
    return replace(source, shape=(count, channels, math.prod(sizes)), strides=(source.strides[0], math.prod(sizes), 1))
