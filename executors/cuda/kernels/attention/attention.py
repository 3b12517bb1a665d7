"""Attention: on tensor cores for halves, by multiply-adds for all else, by cuDNN for long queries.

Whatever the form of the operands, kernels see [batch, heads, steps, size] by strides, so that transposes and splits of
a merged projection cost nothing. Lengths are read in device memory: one recording serves every position.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .....ir.plan import View
from .....ir.types import DType
from ...kernel_ir.launch import Candidate, Lowering, Task
from ...kernel_ir.sources import Source, source_of
from ..gemm.own_kernel_epilogue import broadcast_to

LONG = 256
MANY_QUERIES = 1 << 14
"""From how many queries of a head, or of all heads together, cuDNN is the first guess."""


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention: operands as [B, H, T, D], [B, Hk, S, D], [B, Hk, S, Dv], [B, H, T, Dv].

    `mask` is broadcast to [B, H, T, S], `lengths` has an i64 for each sample.
    """

    q: Source
    k: Source
    v: Source
    o: Source
    mask: Source | None
    lengths: Source | None
    scale: float
    softcap: float
    is_causal: bool

    @property
    def batch(self) -> int:
        return self.q.shape[0]

    @property
    def kv_heads(self) -> int:
        return self.k.shape[1]

    @property
    def shared(self) -> int:
        """Heads of q that read one head of k and v."""
        return self.q.shape[1] // self.kv_heads

    @property
    def steps(self) -> int:
        return self.q.shape[2]

    @property
    def keys(self) -> int:
        return self.k.shape[2]

    @property
    def depth(self) -> int:
        return self.q.shape[3]

    @property
    def width(self) -> int:
        return self.v.shape[3]

    @property
    def sources(self) -> list[Source]:
        """Operands and result, in the order of kernels' parameters."""
        optional = [source for source in (self.mask, self.lengths) if source is not None]
        return [self.q, self.k, self.v, *optional, self.o]

    @property
    def nbytes(self) -> int:
        return sum(source.nbytes for source in self.sources)

    @property
    def flops(self) -> int:
        """Arithmetic of both matmuls; half of it where each query sees half of the keys."""
        scores = self.batch * self.kv_heads * self.shared * self.steps * self.keys
        full = 2 * scores * (self.depth + self.width)
        return full // 2 if self.is_causal and self.steps == self.keys else full


def attention_of(task: Task) -> Attention | None:
    """The attention of a task; None for one without elements."""
    attrs = task.node.attrs
    q, k, v, mask, lengths = (source_of(view) if view is not None else None for view in _five(task))
    o = source_of(task.results[0])
    assert q is not None
    assert k is not None
    assert v is not None
    if len(q.shape) == 3:
        q, o = by_head(q, attrs["heads"]), by_head(o, attrs["heads"])
        k, v = by_head(k, attrs["kv_heads"]), by_head(v, attrs["kv_heads"])
    if 0 in (*q.shape, *k.shape, *v.shape):
        return None
    if mask is not None:
        mask = broadcast_to(mask, (*q.shape[:3], k.shape[2]))
    scale = attrs["scale"] if attrs["scale"] is not None else 1 / math.sqrt(q.shape[3])
    return Attention(q, k, v, o, mask, lengths, scale, attrs["softcap"], attrs["causal"])


def _five(task: Task) -> list[View | None]:
    return [*task.operands, *[None] * (5 - len(task.operands))]


def by_head(source: Source, heads: int) -> Source:
    """A tensor [B, T, H * D] as [B, H, T, D]."""
    batch, steps, hidden = source.shape
    size, (outer, middle, inner) = hidden // heads, source.strides
    return replace(source, shape=(batch, heads, steps, size), strides=(outer, size * inner, middle, inner))


def lower_attention(task: Task) -> Iterator[Candidate]:
    """The candidates of an attention."""
    from . import f32 as attention_f32
    from . import fma as attention_fma
    from . import tensor_cores as attention_tensor_cores
    from .cudnn import lower_by_cudnn
    from .padded import lower_padded

    attention = attention_of(task)
    if attention is None or task.node.attrs["nan_rows"]:  # `SplitHiddenRows` writes NaN behind kernels that give zeros
        return
    by_cudnn = [*lower_by_cudnn(attention, task), *lower_padded(attention, task)]
    if attention.steps >= LONG or attention.batch * attention.q.shape[1] * attention.steps >= MANY_QUERIES:
        yield from by_cudnn
        by_cudnn = []
    if attention_tensor_cores.fits(attention):
        for shape in attention_tensor_cores.shapes(attention, task.chip):
            launch = attention_tensor_cores.launch(attention, shape)
            yield Candidate(f"tensor-cores-{shape.name}", (launch,))
    yield from by_cudnn
    if attention_f32.fits(attention, task.chip):
        for single in attention_f32.shapes(attention, task.chip):
            launch = attention_f32.launch(attention, task.tf32, single)
            yield Candidate(f"tensor-cores-f32-{single.name}", (launch,))
    if attention_fma.fits(attention, task.chip):
        yield Candidate("multiply-adds", (attention_fma.launch(attention),))


SCORE_DTYPES = {DType.F64: "double"}
"""What scores are computed in; float where nothing is named."""

LOWERINGS: Mapping[str, Lowering] = {"attention": lower_attention}
