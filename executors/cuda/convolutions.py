"""Convolutions: `conv`, `conv_transpose`, and regions around them, by cuDNN, staged, depthwise and direct kernels.

Images lie channels-last: that is how tensor cores are fed, and plans lay values around convolutions out so. A weight
[M, C/groups, ...] is packed once as [M, ..., C/groups]. What is not channels-last (an image that is an input of the
model) is copied first, and few channels are filled up with zeros to a whole 16-byte piece.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir.graph import Node, Value
from ...ir.plan import element_bytes
from ...ir.types import DType
from .image_copies import copied_image
from .launch import Candidate, Launch, LibraryCall, Lowering, Packed, Task
from .problems import ConvProblem, PointwiseStep, Tensor
from .regions import (
    Made,
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

_CUDNN_DTYPES = frozenset({DType.F16, DType.BF16, DType.F32})
_ACTIVATIONS = frozenset({"relu", "leaky_relu", "sigmoid", "silu", "tanh", "gelu", "softplus"})
_MIB = 1 << 20
WORKSPACE = 4 * _MIB
"""What plans of cuDNN may want: those for channels-last images want none, and few others are worth more."""


@dataclass(frozen=True, slots=True)
class Window:
    """The sizes of a convolution: spatial attributes of its node, with at least two axes."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    is_transposed: bool


def window_of(node: Node) -> Window:
    """The attributes of a convolution; one spatial axis becomes the second of two."""
    strides, pads, dilations = (tuple(node.attrs[name]) for name in ("strides", "pads", "dilations"))
    if len(strides) == 1:
        strides, pads, dilations = (1, *strides), (0, pads[0], 0, pads[1]), (1, *dilations)
    return Window(strides, pads, dilations, node.attrs["groups"], node.op.name == "conv_transpose")


def as_image(source: Source) -> Source:
    """A tensor [N, C, L] as [N, C, 1, L]; more axes as they are."""
    if len(source.shape) != 3:
        return source
    (count, channels, length), strides = source.shape, source.strides
    return replace(
        source,
        shape=(count, channels, 1, length),
        strides=(*strides[:2], strides[2] * length, strides[2]),
    )


def channels_last(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of [N, C, ...] in memory as [N, ..., C]."""
    strides = [0] * len(shape)
    strides[1], step = 1, shape[1]
    for axis in reversed(range(2, len(shape))):
        strides[axis], step = step, step * shape[axis]
    strides[0] = step
    return tuple(strides)


def is_channels_last(source: Source) -> bool:
    """Whether it lies as [N, ..., C] without gaps; strides of axes of size 1 do not count."""
    wanted = channels_last(source.shape)
    each = zip(source.shape, source.strides, wanted, strict=True)
    return all(size == 1 or stride == want for size, stride, want in each)


def _settled(source: Source) -> Source:
    """A channels-last image with the strides that say so on axes of size 1, too."""
    return replace(source, strides=channels_last(source.shape)) if is_channels_last(source) else source


# ---- what follows a convolution


def steps_of(region: Region) -> tuple[Value, list[tuple[PointwiseStep, Source | None]]]:
    """The longest run of pointwise nodes behind a convolution that cuDNN can take along, and the value it makes."""
    value = region.anchor.output
    steps: list[tuple[PointwiseStep, Source | None]] = []
    while (node := next_step(region, value)) is not None:
        step = _step(region, node, value, len(steps))
        if step is None:
            break
        steps.append(step)
        value = node.output
    return value, steps


def _step(region: Region, node: Node, value: Value, index: int) -> tuple[PointwiseStep, Source | None] | None:
    made = node.output
    if static_shape(made) != static_shape(value) or made.tensor.dtype is not value.tensor.dtype:
        return None
    if node.op.name in _ACTIVATIONS:
        name = node.op.name
        if name == "gelu" and node.attrs["approximate"] == "tanh":
            return PointwiseStep("gelu_tanh"), None
        number = node.attrs["alpha"] if name in ("leaky_relu", "silu") else 0.0
        return PointwiseStep(name, number=number), None
    other = other_operand(node, value) if node.op.name in ("add", "mul") else None
    source = region.sources.get(other) if other is not None else None
    if source is None or source.shape != static_shape(made) or source.constant is not None:
        return None
    image = _settled(as_image(source))
    return PointwiseStep(node.op.name, f"step{index}", _tensor(image)), image


def _tensor(source: Source) -> Tensor:
    return Tensor(source.dtype, source.shape, source.strides)


# ---- lowering


def lower_convolution(task: Task) -> Iterator[Candidate]:
    """The ways of a convolution, alone or with what follows it."""
    from .direct_convolutions import lower_directly
    from .staged_convolutions import lower_staged

    region = region_of(task)
    if region is None or region.anchor.op.name not in ("conv", "conv_transpose"):
        return
    if 0 in static_shape(region.anchor.output):
        return
    window = window_of(region.anchor)
    own = list(lower_directly(region, window))
    is_depthwise = window.groups == static_shape(region.anchor.operands[0])[1] > 1
    by_cudnn = list(_by_cudnn(region, window))
    if is_depthwise or (_is_exact(task, region) and own):
        yield from (*own, *by_cudnn)
    else:
        yield from (*by_cudnn, *lower_staged(region, window), *own)


def _is_exact(task: Task, region: Region) -> bool:
    """Whether f32 has to stay f32, for which cuDNN has few plans."""
    return region.anchor.output.tensor.dtype is DType.F32 and not task.tf32


def _by_cudnn(region: Region, window: Window) -> Iterator[Candidate]:
    x, w = region.operand(0), region.operand(1)
    assert x is not None
    assert w is not None
    if x.dtype not in _CUDNN_DTYPES or len(x.shape) > 5 or any(pad < 0 for pad in window.pads):
        return
    value, steps = steps_of(region)
    yield from _with_steps(region, window, value, steps)
    if steps:
        yield from _with_steps(region, window, region.anchor.output, [])


def _with_steps(
    region: Region, window: Window, value: Value, steps: list[tuple[PointwiseStep, Source | None]]
) -> Iterator[Candidate]:
    made = _made(region, value)
    if made is None:
        return
    launches, used, call = _calls(region, window, made, steps)
    if call is None:
        return
    name = "cudnn" if steps or region.is_alone else "cudnn-alone"
    yield from completed(name, region, made, (*launches, call), used - made.scratch_bytes + call.workspace_bytes)


def _made(region: Region, value: Value) -> Made | None:
    """Where the convolution puts its value: channels-last if that is scratch."""
    made = made_in(region, value)
    if made is None or not made.scratch_bytes:
        return made
    return replace(made, source=replace(made.source, strides=channels_last(made.source.shape)))


def _calls(
    region: Region, window: Window, made: Made, steps: list[tuple[PointwiseStep, Source | None]]
) -> tuple[list[Launch], int, LibraryCall | None]:
    """The copies before, the scratch that is used until then, and the convolution; None without room for the copy."""
    x, w, bias = region.operand(0), region.operand(1), region.operand(2)
    assert x is not None
    assert w is not None
    x, used, launches = _settled(as_image(x)), made.scratch_bytes, list[Launch]()
    channels = _filled_channels(x, w, window)
    if channels != x.shape[1] or not is_channels_last(x):
        place, room = scratch_behind(region.task, used)
        shape = (x.shape[0], channels, *x.shape[2:])
        nbytes = aligned(math.prod(shape) * element_bytes(x.dtype))
        if place is None or nbytes > room:
            return [], used, None
        image = Source(x.dtype, shape, channels_last(shape), place)
        launches.append(copied_image(x, image))
        x, used = image, used + nbytes
    weight = packed_weight(w, channels if channels != region.anchor.operands[0].shape[1] else 0)
    y = _settled(as_image(made.source))
    workspace, room = scratch_behind(region.task, used, WORKSPACE)
    arguments = {"x": x, "w": weight, "y": y} | {s.role: source for s, source in steps if source is not None}
    if bias is not None:
        arguments["bias"] = bias
    problem = ConvProblem(
        x=_tensor(x),
        w=_tensor(weight),
        y=_tensor(y),
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        bias=bias.dtype if bias is not None else None,
        steps=tuple(step for step, _ in steps),
        is_transposed=window.is_transposed,
        tf32=region.task.tf32,
    )
    call = LibraryCall(
        library="cudnn",
        problem=problem,
        arguments={role: source.argument for role, source in arguments.items()},
        nbytes=sum(source.nbytes for source in arguments.values()),
        flops=conv_flops(problem),
        workspace=workspace,
        workspace_bytes=room,
    )
    return launches, used, call


def conv_flops(problem: ConvProblem) -> int:
    """A multiply-add for each weight of an output channel (transposed: of an input channel) and each element."""
    image = problem.x if problem.is_transposed else problem.y
    return 2 * math.prod(image.shape) * math.prod(problem.w.shape[1:])


def _filled_channels(x: Source, w: Source, window: Window) -> int:
    """How many channels the image should have: few are filled up to eight where the weight can be, too."""
    piece = 16 // element_bytes(x.dtype)
    is_few = x.shape[1] < piece and window.groups == 1 and not window.is_transposed
    return piece if is_few and w.constant is not None and x.dtype is not DType.F32 else x.shape[1]


def packed_weight(w: Source, channels: int = 0) -> Source:
    """A weight as [M, ..., C] in memory, with zeros up to `channels` channels if given; one not constant as it is."""
    image = as_image(w)
    if w.constant is None or w.shape != w.constant.shape:
        return _settled(image)
    shape = image.shape if not channels else (image.shape[0], channels, *image.shape[2:])
    packed = Packed(w.constant, "channels_last", (shape[1],))
    return Source(w.dtype, shape, channels_last(shape), packed, w.constant)


LOWERINGS: Mapping[str, Lowering] = dict.fromkeys(("conv", "conv_transpose", "fused"), lower_convolution)
