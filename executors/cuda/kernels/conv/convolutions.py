"""Convolutions: `conv`, `conv_transpose`, and regions around them, by cuDNN, as GEMMs, and by own kernels.

Images lie channels-last: that is how tensor cores are fed, and plans lay values around convolutions out so. A weight
[M, C/groups, ...] is packed once as [M, ..., C/groups]. What is not channels-last (an image that is an input of the
model) is copied first, and few channels are filled up with zeros to a whole 16-byte piece.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .....ir.graph import Node, Value
from .....ir.plan import contiguous_strides, element_bytes
from .....ir.types import DType
from ...kernel_ir.launch import Candidate, Launch, LibraryCall, Lowering, Task
from ...kernel_ir.sources import Source
from ...libraries.problems import ConvProblem, PointwiseStep, TensorLayout
from ..gemm.regions import (
    AnchoredRegion,
    Made,
    completed,
    made_in,
    next_step,
    other_operand,
    region_of,
    scratch_behind,
    static_shape,
)
from .image_copies import ImageScratch, copied_between, with_bias
from .images import as_image, channels_last, is_channels_last, settled

_CUDNN_DTYPES = frozenset({DType.F16, DType.BF16, DType.F32})
_ACTIVATIONS = frozenset({"relu", "leaky_relu", "sigmoid", "silu", "tanh", "gelu", "softplus"})
_MIB = 1 << 20
WORKSPACE, EXACT_WORKSPACE = 8 * _MIB, 32 * _MIB
"""What plans of cuDNN may want, and those for f32: these turn channels-last images into rows first."""

MANY_PIXELS = 1 << 15
"""From how many pixels of a result own kernels for few channels are the first guess."""


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


# ---- what follows a convolution


def steps_of(region: AnchoredRegion) -> tuple[Value, list[tuple[PointwiseStep, Source | None]]]:
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


def _step(region: AnchoredRegion, node: Node, value: Value, index: int) -> tuple[PointwiseStep, Source | None] | None:
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
    image = settled(as_image(source))
    return PointwiseStep(node.op.name, f"step{index}", _tensor(image)), image


def _tensor(source: Source) -> TensorLayout:
    return TensorLayout(source.dtype, source.shape, source.strides)


# ---- lowering


def lower_convolution(task: Task) -> Iterator[Candidate]:
    """The candidates of a convolution, alone or with what follows it."""
    from .direct import lower_directly
    from .few_inputs import lower_from_few_channels
    from .few_outputs import lower_to_few_channels
    from .pipelined import lower_pipelined
    from .pointwise import lower_as_matmul

    region = region_of(task)
    if region is None or region.anchor.op.name not in ("conv", "conv_transpose"):
        return
    if 0 in static_shape(region.anchor.output):
        return
    window = window_of(region.anchor)
    own = list(lower_directly(region, window))
    shape = static_shape(region.anchor.output)
    few = [*lower_to_few_channels(region, window), *lower_from_few_channels(region, window)]
    if shape[0] * math.prod(shape[2:]) >= MANY_PIXELS:
        yield from few
        few = []
    is_depthwise = window.groups == static_shape(region.anchor.operands[0])[1] > 1
    by_libraries = [*lower_as_matmul(region), *_by_cudnn(region, window)]
    if is_depthwise or (_is_exact(task, region) and own):
        yield from (*own, *by_libraries)
    else:
        yield from (*by_libraries, *few, *lower_pipelined(region, window), *own)


def _is_exact(task: Task, region: AnchoredRegion) -> bool:
    """Whether f32 has to stay f32, for which cuDNN has few plans."""
    return region.anchor.output.tensor.dtype is DType.F32 and not task.tf32


def _by_cudnn(region: AnchoredRegion, window: Window) -> Iterator[Candidate]:
    x, w = region.operand(0), region.operand(1)
    assert x is not None
    assert w is not None
    if x.dtype not in _CUDNN_DTYPES or len(x.shape) > 5 or any(pad < 0 for pad in window.pads):
        return
    if window.is_transposed and _has_gaps(window, x.shape[2:], w.shape[2:], static_shape(region.anchor.output)[2:]):
        return
    # the library compiles a transposed convolution with more in it at run time: 1.8 s for each plan
    value, steps = (region.anchor.output, []) if window.is_transposed else steps_of(region)
    yield from _with_steps(region, window, value, steps)
    if steps:
        yield from _with_steps(region, window, region.anchor.output, [])


def _has_gaps(window: Window, image: Sequence[int], kernel: Sequence[int], result: Sequence[int]) -> bool:
    """Whether a transposed convolution reaches some element of its result from none of the image's: cuDNN leaves it."""
    outer = len(window.strides) - len(result)  # one axis is the second of the window's
    for axis, size in enumerate(result):
        stride, dilation = window.strides[outer + axis], window.dilations[outer + axis]
        starts = np.arange(image[axis])[:, None] * stride - window.pads[outer + axis]
        reached = starts + np.arange(kernel[axis]) * dilation
        if np.unique(reached[(reached >= 0) & (reached < size)]).size < size:
            return True
    return False


def _with_steps(
    region: AnchoredRegion, window: Window, value: Value, steps: list[tuple[PointwiseStep, Source | None]]
) -> Iterator[Candidate]:
    made = _made(region, value)
    if made is None:
        return
    name = "cudnn" if steps or region.is_alone else "cudnn-alone"
    arranged = [("", _channels_last_call(region, window, made, steps))]
    if _lies_in_rows(region, made) and not steps and not window.is_transposed:
        arranged.append(("-rows", _row_major_call(region, window, made)))
    for suffix, each in arranged:
        if each is not None:
            yield from completed(name + suffix, region, made, *each)


_Arranged = tuple[tuple[Launch, ...], int]
"""Launches, and the scratch that they take behind what the result takes."""


def _made(region: AnchoredRegion, value: Value) -> Made | None:
    """Where the convolution puts its value: channels-last if that is scratch."""
    made = made_in(region, value)
    if made is None or not made.scratch_bytes:
        return made
    return replace(made, source=replace(made.source, strides=channels_last(made.source.shape)))


def _lies_in_rows(region: AnchoredRegion, made: Made) -> bool:
    """Whether image, weight and result are exact f32 and row-major: what the few plans for it take as it is."""
    sources = (region.operand(0), region.operand(1), made.source)
    return all(
        source is not None
        and source.dtype is DType.F32
        and source.strides == contiguous_strides(source.shape, 1)
        and not is_channels_last(source)
        for source in sources
    )


def _row_major_call(region: AnchoredRegion, window: Window, made: Made) -> _Arranged | None:
    x, w = region.operand(0), region.operand(1)
    assert x is not None
    assert w is not None
    scratch = ImageScratch(region.task, made.scratch_bytes)
    call = _call(region, window, (as_image(x), as_image(w), as_image(made.source)), [], scratch)
    return (call,), call.workspace_bytes


def _channels_last_call(
    region: AnchoredRegion,
    window: Window,
    made: Made,
    steps: list[tuple[PointwiseStep, Source | None]],
) -> _Arranged | None:
    """The copies before, the convolution, and what the library leaves to kernels behind it; None without room."""
    x, w, bias = region.operand(0), region.operand(1), region.operand(2)
    assert x is not None
    assert w is not None
    scratch = ImageScratch(region.task, made.scratch_bytes)
    channels = filled_channels(x, window)
    image = scratch.channels_last(as_image(x), channels)
    weight = scratch.weight(w, channels if channels != x.shape[1] else 0)
    others = [(step, source if source is None else scratch.channels_last(source)) for step, source in steps]
    target = settled(as_image(made.source))
    y = target if is_channels_last(target) else scratch.like(target)
    if image is None or weight is None or y is None or any(step.role and not source for step, source in others):
        return None
    call = _call(region, window, (image, weight, y), others, scratch)
    behind: list[Launch] = []
    if bias is not None and window.is_transposed:
        behind.append(with_bias(y, bias))
    if y is not target:
        behind += copied_between(y, target, region.task.chip)
    return (*scratch.launches, call, *behind), scratch.used + call.workspace_bytes - made.scratch_bytes


def _call(
    region: AnchoredRegion,
    window: Window,
    tensors: tuple[Source, Source, Source],
    steps: list[tuple[PointwiseStep, Source | None]],
    scratch: ImageScratch,
) -> LibraryCall:
    x, w, y = tensors
    bias = region.operand(2) if not window.is_transposed else None
    wanted = WORKSPACE if x.dtype is not DType.F32 else EXACT_WORKSPACE
    workspace, room = scratch_behind(region.task, scratch.used, wanted)
    arguments = {"x": x, "w": w, "y": y} | {step.role: source for step, source in steps if source is not None}
    if bias is not None:
        arguments["bias"] = bias
    problem = ConvProblem(
        x=_tensor(x),
        w=_tensor(w),
        y=_tensor(y),
        strides=window.strides,
        pads=window.pads,
        dilations=window.dilations,
        bias=bias.dtype if bias is not None else None,
        steps=tuple(step if source is None else replace(step, tensor=_tensor(source)) for step, source in steps),
        is_transposed=window.is_transposed,
        tf32=region.task.tf32,
    )
    return LibraryCall(
        library="cudnn",
        problem=problem,
        arguments={role: source.argument for role, source in arguments.items()},
        nbytes=sum(source.nbytes for source in arguments.values()),
        flops=conv_flops(problem),
        workspace=workspace,
        workspace_bytes=room,
    )


def conv_flops(problem: ConvProblem) -> int:
    """A multiply-add for each weight of an output channel (transposed: of an input channel) and each element."""
    image = problem.x if problem.is_transposed else problem.y
    return 2 * math.prod(image.shape) * math.prod(problem.w.shape[1:])


def filled_channels(x: Source, window: Window) -> int:
    """How many channels the image should have: few are filled up to eight."""
    piece = 16 // element_bytes(x.dtype)
    is_few = x.shape[1] < piece and window.groups == 1 and not window.is_transposed
    return piece if is_few and x.dtype is not DType.F32 else x.shape[1]


LOWERINGS: Mapping[str, Lowering] = dict.fromkeys(("conv", "conv_transpose", "fused"), lower_convolution)
