"""`deform_conv`: samples as columns of a matrix and a GEMM by cuBLASLt, or one kernel that samples and adds up."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.casts import converted
from ...kernel_ir.kernels import per_position, reach_type, read, written
from ...kernel_ir.launch import Candidate, KernelLaunch, Lowering, Task
from ...kernel_ir.layouts import Layout, contiguous, dense, index_lines
from ...kernel_ir.moving import operand, result
from ...kernel_ir.pointwise import has_types
from ...kernel_ir.regions import flops_of
from ...kernel_ir.sources import Source
from ...kernel_ir.types import Name, computed, number
from ..gemm.cublaslt_calls import cublaslt_calls
from ..gemm.cublaslt_epilogue import CublasltEpilogue
from ..gemm.operands import GemmOperands, gemm_operands
from ..gemm.regions import aligned
from ..resize.sampling import channels_of_a_thread, corner_lines, inside_lines, sum_lines, wide_type

_THREADS = 128


@dataclass(frozen=True)
class _Deformed:
    """A deformable convolution: its tensors, [N, C, ...] and so on, and how its windows lie."""

    x: Layout
    weight: Layout
    offset: Layout
    bias: Layout | None
    mask: Layout | None
    y: Layout
    attrs: Mapping[str, Sequence[int]]
    groups: int
    offset_groups: int

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.x.shape) - 2

    @property
    def outer(self) -> tuple[int, ...]:
        """The spatial axes of the result."""
        return self.y.shape[2:]

    @property
    def places(self) -> int:
        return math.prod(self.outer)

    @property
    def taps(self) -> int:
        return math.prod(self.weight.shape[2:])

    @property
    def shared(self) -> int:
        """How many channels are sampled at the same positions."""
        return self.x.shape[1] // self.offset_groups

    @property
    def wide(self) -> DType:
        return wide_type(self.x.dtype)

    @property
    def layouts(self) -> list[Layout]:
        every = (self.x, self.weight, self.offset, self.y, self.bias, self.mask)
        return [layout for layout in every if layout is not None]

    def sample_lines(self, ctype: str) -> list[str]:
        """`o` and `w` of each corner and the `scale` at tap `k` of offset group `g`, for image c0 and place c3, ..."""
        c, rank = computed(self.wide), self.rank
        lines = [
            *(f"int i{axis}[2]; {c} w{axis}[2];" for axis in range(rank)),
            f"const {self.offset.ctype}* moved = offset",
            f"+ (c0 * {self.offset.strides[0]} + {_outer(self.offset, rank)});",
        ]
        for axis in range(rank):
            step, begin, dilation = (self.attrs[name][axis] for name in ("strides", "pads", "dilations"))
            channel = f"(({ctype})(g * {self.taps} + k) * {rank} + {axis}) * {self.offset.strides[1]}"
            lines += [
                f"{{ const {c} at = ({c})((int)c{axis + 3} * {step} - {begin} + (int)t{axis} * {dilation})",
                f"+ ({c})get(moved[{channel}]);",
                *_linear_lines(axis, self.x.shape[axis + 2], c),
                "}",
            ]
        scale = "1"
        if self.mask is not None:
            at = f"c0 * {self.mask.strides[0]} + {_outer(self.mask, rank)}"
            scale = f"get(mask[{at} + ({ctype})(g * {self.taps} + k) * {self.mask.strides[1]}])"
        return [
            *lines,
            *corner_lines(self.x, range(rank), 2, ctype, self.wide),
            f"const {c} scale = ({c}){scale};",
        ]


def _deformed(task: Task) -> _Deformed | None:
    x, attrs = operand(task), task.node.attrs
    if not has_types(task.node) or not x.size or not result(task).size:
        return None
    bias, mask = (None if len(task.operands) <= n or task.operands[n] is None else operand(task, n) for n in (3, 4))
    weight, offset = operand(task, 1), operand(task, 2)
    windows = {name: attrs[name] for name in ("strides", "pads", "dilations")}
    return _Deformed(x, weight, offset, bias, mask, result(task), windows, attrs["groups"], attrs["offset_groups"])


def lower_deform_conv(task: Task) -> Iterator[Candidate]:
    """The candidates of a deformable convolution."""
    made = _deformed(task)
    if made is None:
        return
    by_columns = _by_columns(made, task)
    if by_columns is not None:
        yield by_columns
    yield Candidate("samples", (_sampled(made, task),))


# ---- columns, then a GEMM


def _by_columns(made: _Deformed, task: Task) -> Candidate | None:
    """Columns [N, C * taps, places] in scratch memory, which the weight [M, C * taps] is multiplied by."""
    y = made.y
    is_plane = contiguous(Layout(y.dtype, made.outer, y.strides[2:], y.place, y.alignment))
    if task.scratch is None or not contiguous(made.weight) or not is_plane:
        return None
    images, channels = made.x.shape[:2]
    columns = dense(made.x.dtype, (images, channels * made.taps, made.places), task.scratch)
    used = aligned(columns.nbytes)
    calls = cublaslt_calls(_operands(made, columns), CublasltEpilogue(task.node.output), task, used)
    if calls is None:
        return None
    biased = () if made.bias is None else (_biased(made),)
    launches = (_columns(made, columns), *calls, *biased)
    return Candidate("columns", launches, used + max(call.workspace_bytes for call in calls))


def _operands(made: _Deformed, columns: Layout) -> GemmOperands:
    images, outputs, groups, places = made.y.shape[0], made.y.shape[1], made.groups, made.places
    inner = made.weight.shape[1] * made.taps
    own = outputs // groups
    weight = Source(made.x.dtype, (1, groups, own, inner), (0, own * inner, inner, 1), made.weight.place)
    gathered = Source(
        made.x.dtype,
        (images, groups, inner, places),
        (groups * inner * places, inner * places, places, 1),
        columns.place,
    )
    image, channel = made.y.strides[0], made.y.strides[1]
    d = Source(made.y.dtype, (images, groups, own, places), (image, own * channel, channel, 1), made.y.place)
    return gemm_operands(weight, gathered, d)


def _columns(made: _Deformed, columns: Layout) -> KernelLaunch:
    """A thread has one place and tap, and several channels that are sampled there."""
    x = made.x
    images, taps, shared = x.shape[0], made.taps, made.shared
    each = channels_of_a_thread(shared, images * made.offset_groups * taps * made.places)
    parts = -(-shared // each)
    ctype = reach_type([*made.layouts, columns])
    row = f"(c0 * {x.shape[1]} + n) * {taps} + k"
    lines = [
        *index_lines("c", "p", (images, made.offset_groups * parts, taps, *made.outer), ctype),
        f"const int g = (int)c1 / {parts}, k = (int)c2, first = g * {shared} + (int)c1 % {parts} * {each};",
        f"const int end = first + {each} < (g + 1) * {shared} ? first + {each} : (g + 1) * {shared};",
        *index_lines("t", "(unsigned)k", made.weight.shape[2:], ctype),
        *made.sample_lines(ctype),
        "for (int n = first; n < end; n++) {",
        f"const {x.ctype}* from = x + (c0 * {x.strides[0]} + ({ctype})n * {x.strides[1]});",
        *sum_lines(x, 2**made.rank, "0"),
        "sum *= scale;",
        f"put(columns[({row}) * {made.places} + p % {made.places}u], {converted(Name('sum', made.wide), x.dtype)}); }}",
    ]
    named = (("x", x), ("offset", made.offset), ("mask", made.mask))
    parameters = [written("columns", columns), *(read(name, layout) for name, layout in named if layout is not None)]
    count = images * made.offset_groups * parts * taps * made.places
    nbytes = x.nbytes + made.offset.nbytes + columns.nbytes
    return per_position(parameters, count, lines, nbytes, threads=_THREADS, ctype=ctype)


def _biased(made: _Deformed) -> KernelLaunch:
    y, bias = made.y, made.bias
    assert bias is not None
    ctype, c = reach_type((y,)), computed(made.wide)
    lines = [
        *index_lines("c", "p", (*y.shape[:2], made.places), ctype),
        f"{y.ctype}* at = y + (c0 * {y.strides[0]} + c1 * {y.strides[1]} + c2);",
        f"const {c} total = ({c})get(*at) + ({c})get(bias[c1 * {bias.strides[0]}]);",
        f"put(*at, {converted(Name('total', made.wide), y.dtype)});",
    ]
    return per_position([written("y", y), read("bias", bias)], y.size, lines, 2 * y.nbytes, ctype=ctype)


# ---- one kernel


def _sampled(made: _Deformed, task: Task) -> KernelLaunch:
    """A thread has one place and several channels of the result; samples are made anew for each such group."""
    x, weight, y, bias = made.x, made.weight, made.y, made.bias
    c = computed(made.wide)
    images, outputs = y.shape[:2]
    own_outputs, own_inputs = outputs // made.groups, weight.shape[1]
    each = channels_of_a_thread(own_outputs, images * made.groups * made.places)
    parts = -(-own_outputs // each)
    shared = made.shared
    ctype = reach_type(made.layouts)
    tap = " + ".join(f"t{axis} * {weight.strides[axis + 2]}" for axis in range(made.rank))
    lines = [
        *index_lines("c", "p", (images, made.groups, parts, *made.outer), ctype),
        f"{c} sums[{each}]; for (int m = 0; m < {each}; m++) sums[m] = 0;",
        f"const int first = (int)c1 * {own_inputs}, m0 = (int)c1 * {own_outputs} + (int)c2 * {each};",
        f"const int own = {own_outputs} - (int)c2 * {each} < {each} ? {own_outputs} - (int)c2 * {each} : {each};",
        f"for (int k = 0; k < {made.taps}; k++) {{",
        *index_lines("t", "(unsigned)k", weight.shape[2:], ctype),
        f"for (int g = first / {shared}; g * {shared} < first + {own_inputs}; g++) {{",
        *made.sample_lines(ctype),
        f"const int begin = g * {shared} < first ? first : g * {shared};",
        f"const int end = (g + 1) * {shared} < first + {own_inputs} ? (g + 1) * {shared} : first + {own_inputs};",
        "for (int n = begin; n < end; n++) {",
        f"const {x.ctype}* from = x + (c0 * {x.strides[0]} + ({ctype})n * {x.strides[1]});",
        *sum_lines(x, 2**made.rank, "0"),
        "sum *= scale;",
        f"const {weight.ctype}* by = weight + (({ctype})m0 * {weight.strides[0]} + ({ctype})(n - first)"
        f" * {weight.strides[1]} + {tap});",
        f"for (int m = 0; m < own; m++) sums[m] += sum * ({c})get(by[({ctype})m * {weight.strides[0]}]);",
        "} } }",
        "for (int m = 0; m < own; m++) {",
        f"{c} total = sums[m];",
        *([f"total += ({c})get(bias[(m0 + m) * {bias.strides[0]}]);"] if bias is not None else []),
        f"put(y[c0 * {y.strides[0]} + ({ctype})(m0 + m) * {y.strides[1]} + {_outer(y, made.rank)}],",
        f"{converted(Name('total', made.wide), y.dtype)}); }}",
    ]
    named = (("x", x), ("weight", weight), ("offset", made.offset), ("bias", bias), ("mask", made.mask))
    parameters = [written("y", y), *(read(name, layout) for name, layout in named if layout is not None)]
    count = images * made.groups * parts * made.places
    nbytes = sum(layout.nbytes for layout in made.layouts)
    return per_position(parameters, count, lines, nbytes, flops_of(task), _THREADS, ctype)


def _outer(layout: Layout, rank: int) -> str:
    """The offset of a place of the result, `c3, c4, ...`, in a tensor that has those axes behind two others."""
    return " + ".join(f"c{axis + 3} * {layout.strides[axis + 2]}" for axis in range(rank))


def _linear_lines(axis: int, size: int, c: str) -> list[str]:
    """Two taps at `at`, zeros outside."""
    f = "" if c == "double" else "f"
    return [
        f"const {c} held = at < -2 ? -2 : at > {number(size + 1.0, c)} ? {number(size + 1.0, c)} : at;",
        f"const {c} below = floor{f}(held), ratio = held - below; const int whole = (int)below;",
        f"w{axis}[0] = 1 - ratio; w{axis}[1] = ratio;",
        "for (int t = 0; t < 2; t++) { const int index = whole + t;",
        *inside_lines(axis, size, "zeros", aligned=False),
        "}",
    ]


LOWERINGS: Mapping[str, Lowering] = {"deform_conv": lower_deform_conv}
"""Convolutions whose windows the model moves."""
