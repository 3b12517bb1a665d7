"""Weights that are kept as codes: what brings them to floats before a matmul becomes one `dequantize_linear`.

Models that are quantized by hand write `codes.to(dtype) * scale`, with a zero point that is subtracted, scales for rows
or for blocks of them, and two codes to a byte that masks and shifts part. All of that depends on constants alone, but
its result is larger than what it is made of, so it is not folded and would be computed in each call. Kernels read the
codes, which take their part of the memory only where they stand right before the matmul, [K, N]; those that are
seen to need 4 bits have 4.

Contents are not read: what lies on a device is told by what is done with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from ...ir.analysis.contents import any_constant_of, constant_of
from ...ir.constant import Constant
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops.known import ADD, BITWISE_AND, CAST, CONCAT, DEQUANTIZE, GEMM, MATMUL, MUL, SHIFT_RIGHT, SUB, TRANSPOSE
from ...ir.ops.rules import normal_axes, normal_axis
from ...ir.types import DType, Kind
from ..cleanup.canonical.views import axis_groups
from ..framework.base import Pass
from ..framework.deferred import made_of
from ..framework.exactness import Exactness
from ..framework.rewriter import Rewriter

_FP8 = frozenset({DType.F8E4M3FN, DType.F8E5M2})
_INTEGERS = (DType.U4, DType.I4, DType.U8, DType.I8)
_CODES = _FP8 | {*_INTEGERS}
_FLOATS = frozenset({DType.F32, DType.F16, DType.BF16})


@dataclass(frozen=True)
class RecognizeCodedWeights(Pass):
    """Right operands of matmuls that are computed from codes alone, as one node that dequantizes them."""

    name: ClassVar[str] = "recognize-coded-weights"
    exactness: ClassVar[Exactness] = Exactness.ROUNDING

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        for node in graph.nodes:
            if node.op not in (MATMUL, GEMM) or not _may_change(node):
                continue
            weight = _read(node.operands[1])
            if weight is None:
                continue
            is_turned = node.op is GEMM and node.attrs["trans_b"]
            made = (weight.transposed((1, 0)) if is_turned else weight).parameters()
            if made is None or not rewriter.may_rewrite("weight", node):
                continue
            attrs = {**node.attrs, **({"trans_b": False} if is_turned else {})}
            right = made.value(rewriter, node.operands[1].tensor.dtype)
            inputs = (node.inputs[0], right, *node.inputs[2:])
            rewriter.replace(node, rewriter.node(node.op, inputs, attrs).output)


def _may_change(matmul: Node) -> bool:
    """Whether the weight is a matrix that is computed, and not what the pass gives; the rows are not dequantized."""
    rows, weight = matmul.operands[:2]
    made = weight.producer
    if made is None or any_constant_of(weight) is not None or weight.tensor.rank != 2 or not weight.tensor.is_static:
        return False
    is_turned = matmul.op is GEMM and matmul.attrs["trans_b"]
    return (made.op is not DEQUANTIZE or is_turned) and not _is_dequantized(rows)


def _is_dequantized(value: Value) -> bool:
    node = value.producer
    return node is not None and (node.op is DEQUANTIZE or (node.op is TRANSPOSE and _is_dequantized(node.operands[0])))


@dataclass(frozen=True)
class _Weight:
    """`(codes - zero) * scale`. Scales and zero points have the codes' rank: at each axis one for so many codes."""

    codes: Constant
    scale: Constant | None = None
    zero: Constant | None = None

    def transposed(self, perm: Sequence[int]) -> "_Weight":
        """With its axes in another order."""
        scale, zero = (None if each is None else made_of("transpose", [each], perm=tuple(perm)) for each in self._both)
        return _Weight(made_of("transpose", [self.codes], perm=tuple(perm)), scale, zero)

    @property
    def _both(self) -> tuple[Constant | None, Constant | None]:
        return self.scale, self.zero

    def reshaped(self, shape: Sequence[int]) -> "_Weight | None":
        """With its axes cut and joined; None where a parameter would not be one for so many codes any more."""
        made: list[Constant | None] = []
        for each in self._both:
            sizes = None if each is None else _blocks_reshaped(self.codes.shape, each.shape, shape)
            if each is not None and sizes is None:
                return None
            made.append(each if each is None or sizes is None else made_of("reshape", [each], shape=sizes))
        return _Weight(made_of("reshape", [self.codes], shape=tuple(shape)), *made)

    def shifted(self, zero: Constant | None) -> "_Weight | None":
        """Less a zero point, which has at each axis the size of the codes or 1."""
        if zero is None or self.zero is not None or self.scale is not None or self.codes.dtype in _FP8:
            return None
        fitting = _with_rank(zero, len(self.codes.shape))
        return None if fitting is None else replace(self, zero=fitting)

    def scaled(self, scale: Constant | None) -> "_Weight | None":
        if scale is None or self.scale is not None or scale.dtype not in _FLOATS:
            return None
        fitting = _with_rank(scale, len(self.codes.shape))
        return None if fitting is None else replace(self, scale=fitting)

    def parameters(self) -> "_Dequantized | None":
        """As `dequantize_linear` takes a matrix: by tensor, column or block; None where scales lie otherwise."""
        if len(self.codes.shape) != 2:
            return None
        blocks = [(1, 1) if each is None else each.shape for each in self._both]
        sizes = tuple(max(axis) for axis in zip(*blocks, strict=True))
        attrs = _granularity(self.codes.shape, sizes)
        if attrs is None:
            return None
        shape = tuple(size for size in sizes if size != 1)
        if attrs.get("block_size"):
            shape = tuple(
                size if axis == attrs["axis"] else whole
                for axis, (size, whole) in enumerate(zip(sizes, self.codes.shape, strict=True))
            )
        scale = self.scale if self.scale is not None else Constant(np.ones((1, 1), np.float32))
        spread = _spread(scale, sizes, shape)
        zero = None if self.zero is None else _spread(self.zero, sizes, shape)
        if spread is None or (zero is None) != (self.zero is None):
            return None
        return _Dequantized(self.codes, spread, zero, attrs)


@dataclass(frozen=True)
class _Dequantized:
    """The operands and attributes of a `dequantize_linear`."""

    codes: Constant
    scale: Constant
    zero: Constant | None
    attrs: Mapping[str, Any]

    def value(self, rewriter: Rewriter, to: DType) -> Value:
        operands = [None if each is None else rewriter.constant(each) for each in (self.codes, self.scale, self.zero)]
        return rewriter.node(DEQUANTIZE, operands, {"to": to, **self.attrs}).output


def _granularity(shape: Sequence[int], sizes: Sequence[int]) -> dict[str, int] | None:
    if sizes[0] == sizes[1] == 1:
        return {}
    whole = [axis for axis in range(2) if sizes[axis] == shape[axis] != 1]
    if len(whole) == 1 and sizes[1 - whole[0]] == 1:
        return {"axis": whole[0]}
    along = [axis for axis in range(2) if sizes[axis] != shape[axis]]
    if len(along) != 1 or shape[along[0]] % sizes[along[0]]:
        return None
    return {"axis": along[0], "block_size": shape[along[0]] // sizes[along[0]]}


def _spread(parameter: Constant, sizes: Sequence[int], shape: tuple[int, ...]) -> Constant | None:
    """A parameter that may have a size of 1 where the other has more, in its final shape."""
    wide = tuple(shape) if len(shape) == 2 else tuple(sizes)
    if any(own not in (1, size) for own, size in zip(parameter.shape, wide, strict=True)):
        return None
    full = parameter if parameter.shape == wide else made_of("expand", [parameter], shape=wide)
    return full if full.shape == shape else made_of("reshape", [full], shape=shape)


# ---- reading


def _read(value: Value) -> _Weight | None:
    """What a value is that depends on constants alone: codes, less a zero point, times a scale."""
    node = value.producer
    if node is None or len(node.outputs) != 1 or not value.tensor.is_static:
        return None
    if node.op is CAST:
        return _read_cast(node)
    if node.op is DEQUANTIZE:
        return _read_dequantized(node)
    if node.op in (MUL, SUB, ADD):
        return _read_arithmetic(node)
    if node.op is not TRANSPOSE and not node.op.has(Trait.RESHAPES):
        return None
    weight = _read(node.operands[0])
    if weight is None:
        return None
    if node.op is TRANSPOSE:
        return weight.transposed(normal_axes(node.attrs["perm"], len(weight.codes.shape)))
    return weight.reshaped([int(dim) for dim in value.shape])  # type: ignore[arg-type]


def _read_cast(node: Node) -> _Weight | None:
    operand = node.operands[0]
    if node.output.tensor.dtype not in _FLOATS:
        return None
    if operand.tensor.dtype in _FLOATS:
        return _read(operand)
    made = operand.producer
    if made is not None and made.op is SUB:
        codes, zero = _codes(made.operands[0]), made.operands[1]
        if codes is not None and codes.shape == operand.tensor.shape:
            return _Weight(codes).shifted(_codes(zero, codes.dtype))
    codes = _codes(operand)
    return None if codes is None else _Weight(codes)


def _read_dequantized(node: Node) -> _Weight | None:
    codes, scale, *zero = (_known(each) for each in node.operands)
    if codes is None or scale is None or None in zero or codes.dtype not in _CODES:
        return None
    rank, axis = len(codes.shape), normal_axis(node.attrs["axis"], len(codes.shape))
    is_of_axis = len(scale.shape) == 1 and scale.size != 1
    shape = tuple(-1 if is_of_axis and at == axis else 1 for at in range(rank))
    blocks = node.attrs["block_size"]
    if blocks and codes.shape[axis] % blocks and len(scale.shape) > 1:
        return None
    parameters = [scale, *(each for each in zero if each is not None)]
    if len(scale.shape) < 2:
        sizes = tuple(scale.size if size == -1 else 1 for size in shape)
        parameters = [made_of("reshape", [each], shape=sizes) for each in parameters]
    return _Weight(codes, *parameters)


def _read_arithmetic(node: Node) -> _Weight | None:
    left, right = node.operands
    swapped = any_constant_of(left) is not None and node.op is not SUB
    weight = _read(right if swapped else left)
    if weight is None or weight.codes.shape != node.output.tensor.shape:
        return None
    other = left if swapped else right
    if node.op is MUL:
        return weight.scaled(_scale_of(other))
    return weight.shifted(_zero_of(other, weight.codes, -1 if node.op is ADD else 1))


def _scale_of(value: Value) -> Constant | None:
    """A constant, maybe of another dtype or shape before."""
    known = any_constant_of(value)
    node = value.producer
    if known is not None or node is None or len(node.operands) != 1:
        return known
    before = _scale_of(node.operands[0])
    if before is None or not (node.op.has(Trait.RESHAPES) or node.op is CAST or node.op is TRANSPOSE):
        return None
    return made_of(node.op.name, [before], **node.attrs.as_kwargs())


def _zero_of(value: Value, codes: Constant, sign: int) -> Constant | None:
    """Whole numbers that the codes' dtype has, in it."""
    content = constant_of(value)
    if content is not None:
        numbers = sign * content.array.astype(np.float64)
        low, high = _limits(codes.dtype)
        is_whole = np.all(numbers == np.round(numbers)) and np.all((low <= numbers) & (numbers <= high))
        return Constant(numbers.astype(np.int16).astype(codes.dtype.numpy)) if is_whole else None
    node = value.producer
    if node is None or node.op is not CAST or sign < 0:
        return None
    return _codes(node.operands[0], codes.dtype)


def _limits(dtype: DType) -> tuple[int, int]:
    bits = dtype.bits if dtype.kind is Kind.UINT else dtype.bits - 1
    return 0 if dtype.kind is Kind.UINT else -(1 << bits), (1 << bits) - 1


# ---- constants


def _codes(value: Value, to: DType | None = None) -> Constant | None:
    """Whole numbers of 4 or 8 bits, or fp8, that depend on constants alone: in `to`, else of 4 bits where that is seen.

    None where the dtype lacks some that there may be.
    """
    content = _known(value)
    if content is None or content.dtype not in _CODES | {DType.I16, DType.I32, DType.I64}:
        return None
    if content.dtype in _FP8 or to in _FP8:
        return content if to in (None, content.dtype) else None
    low, high = _range(value)
    fitting = (each for each in _INTEGERS if _limits(each)[0] <= low and high <= _limits(each)[1])
    chosen = next((each for each in fitting if to in (None, each)), None)
    if chosen is None or chosen is content.dtype:
        return None if chosen is None else content
    return made_of("cast", [content], to=chosen)


def _known(value: Value) -> Constant | None:
    """The content of a value that is computed from constants alone; not read where it is not at hand."""
    content, node = any_constant_of(value), value.producer
    if content is not None or node is None:
        return content
    is_integer = value.tensor.dtype.is_integer or node.op is TRANSPOSE or node.op.has(Trait.RESHAPES)
    if not is_integer or len(node.outputs) != 1 or node.op.traits & _NEVER or node.regions or not node.operands:
        return None
    if len(node.operands) < len(node.inputs):
        return None
    contents = [_known(each) for each in node.operands]
    known = [each for each in contents if each is not None]
    return made_of(node.op.name, known, **node.attrs.as_kwargs()) if len(known) == len(contents) else None


_NEVER = Trait.IMPURE | Trait.FOREIGN | Trait.CONTROL_FLOW | Trait.DRAWS


def _range(value: Value) -> tuple[float, float]:
    """Between which numbers integers lie, by what is done with them."""
    content, node, dtype = constant_of(value), value.producer, value.tensor.dtype
    if not dtype.is_integer:
        return -np.inf, np.inf
    full = _limits(dtype)
    if content is not None and content.size and dtype.bits > 4:
        return float(content.array.min()), float(content.array.max())
    if node is None or not node.operands:
        return full
    first = _range(node.operands[0])
    if node.op in (TRANSPOSE, CONCAT) or node.op.has(Trait.RESHAPES):
        ranges = [_range(each) for each in node.operands]
        return min(low for low, _ in ranges), max(high for _, high in ranges)
    if node.op is CAST:
        return first if full[0] <= first[0] and first[1] <= full[1] else full
    if node.op is BITWISE_AND:
        masks = [number for number in map(_number, node.operands) if number is not None and number >= 0]
        return (0, min(masks)) if masks else full
    amount = _number(node.operands[1]) if node.op is SHIFT_RIGHT else None
    if amount is not None and first[0] >= 0:
        return 0, first[1] // 2**amount
    return full


def _number(value: Value) -> float | None:
    content = constant_of(value)
    return float(content.array.reshape(-1)[0]) if content is not None and content.size == 1 else None


# ---- shapes


def _with_rank(parameter: Constant, rank: int) -> Constant | None:
    """With axes of size 1 in front."""
    missing = rank - len(parameter.shape)
    if missing <= 0:
        return parameter if missing == 0 else None
    return made_of("reshape", [parameter], shape=(*(1,) * missing, *parameter.shape))


def _blocks_reshaped(shape: Sequence[int], sizes: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """The sizes of a parameter when codes [shape] become [target]."""
    groups = axis_groups(shape, target)
    if groups is None:
        return None
    found = [1] * len(target)
    for before, behind in groups:
        own, whole = [sizes[axis] for axis in before], [shape[axis] for axis in before]
        wanted = [target[axis] for axis in behind]
        if prod(own) == 1:
            continue
        made = wanted if own == whole else _joined(own, whole, wanted) or _cut(own, whole, wanted)
        if made is None:
            return None
        for axis, size in zip(behind, made, strict=True):
            found[axis] = size
    return tuple(found)


def _joined(own: Sequence[int], whole: Sequence[int], wanted: Sequence[int]) -> list[int] | None:
    """Axes that become one: all of the first ones, one for the others."""
    count = prod(own)
    if len(wanted) != 1:
        return None
    for end in range(len(own)):
        if prod(whole[:end]) == count and list(own[:end]) == list(whole[:end]):
            return [count]
    return None


def _cut(own: Sequence[int], whole: Sequence[int], wanted: Sequence[int]) -> list[int] | None:
    """One axis that becomes several: the first ones have a parameter each."""
    if len(whole) != 1:
        return None
    for end in range(1, len(wanted)):
        if prod(wanted[:end]) == own[0]:
            return [*wanted[:end], *(1,) * (len(wanted) - end)]
    return None
