"""Own kernels of convolutions: depthwise ones of channels-last images, and any other as a product of gathered windows.

The second is what is left where cuDNN has nothing (f64, f32 that has to stay f32, more than three spatial axes,
negative pads): correct before quick. A transposed convolution gathers too: an element of the result looks for the
windows that it lies in.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ...ir.plan import element_bytes
from ...ir.types import DType
from .codegen.types import computed, stored
from .convolutions import Window, as_image, is_channels_last
from .indexing import index_type, split_index_code
from .launch import Candidate, Chip, Kernel, KernelLaunch, Packed, Place
from .regions import Region, Source
from .strided_products import tile_size
from .tails import OffsetOf, Tail, broadcast_to, offset_at, tail_of

_DEPTH, _THREADS = 16, 256
_ENOUGH_THREADS = 1 << 14
_DTYPES = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})


def lower_directly(region: Region, window: Window) -> Iterator[Candidate]:
    """The region as one kernel of ours."""
    tail = tail_of(region)
    x, w = region.operand(0), region.operand(1)
    if tail is None or x is None or w is None or x.dtype not in _DTYPES:
        return
    x, w = as_image(x), as_image(w)
    if _is_depthwise(x, w, window, tail):
        yield Candidate("depthwise", (_depthwise(x, w, window, tail),))
    yield Candidate("gathered", (gathered(x, w, window, _ends(x, tail), _image_shape(tail.shape), region.task.chip),))


@dataclass(frozen=True)
class Ends:
    """How a gathered convolution reads elements and what it does with a sum: operands beyond image and weight.

    `left` and `right` take an element of image and weight to the type `total`; `right` may use `column`, the channel of
    the result. `finish` are statements for the sum `found` at `image`, `column`, `o0`, ...
    """

    total: str
    left: Callable[[str], str]
    right: Callable[[str], str]
    finish: str
    parameters: Sequence[str]
    sources: Sequence[Source]


def _ends(x: Source, tail: Tail) -> Ends:
    total = computed(x.dtype)
    names = ["image", "column", *(f"o{axis}" for axis in range(len(x.shape) - 2))]

    def plain(element: str) -> str:
        return f"({total})get({element})"

    return Ends(total, plain, plain, _tail_code(tail, "found", names), tail.parameters, tail.sources)


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a result with two spatial axes at least."""
    return (*shape[:2], 1, shape[2]) if len(shape) == 3 else shape


def _offset_of(tail: Tail, names: list[str]) -> OffsetOf:
    """Where tensors have their element at a place of the image; a result [N, C, L] lacks the first spatial axis."""
    own = [*names[:2], names[3]] if len(tail.shape) == 3 else names
    return lambda source: offset_at(source, tail.shape, own)


def _packed_places(tail: Tail, piece: int) -> dict[str, tuple[Source, str, bool]]:
    """Operands and results whose neighbouring channels may be moved together, with the type; whether they are read."""
    found: dict[str, tuple[Source, str, bool]] = {}
    for name, source in (*tail.operands.items(), *tail.results.items()):
        full = broadcast_to(source, tail.shape)
        whole = [stride for axis, stride in enumerate(full.strides) if axis != 1]
        nbytes = piece * element_bytes(source.dtype)
        starts = not isinstance(source.argument, Place) or source.argument.offset % min(nbytes, 16) == 0
        if full.strides[1] == 1 and starts and nbytes <= 16 and all(stride % piece == 0 for stride in whole):
            found[name] = (source, f"pack<{stored(source.dtype)}, {piece}>", name in tail.operands)
    return found


def _tail_code(tail: Tail, total: str, names: list[str]) -> str:
    """The tail at a place of the image."""
    return tail.element(_offset_of(tail, names)).code(total)


# ---- depthwise


def _is_depthwise(x: Source, w: Source, window: Window, tail: Tail) -> bool:
    channels = x.shape[1]
    return (
        not window.is_transposed
        and window.groups == channels == w.shape[0]
        and len(x.shape) == 4
        and w.constant is not None
        and is_channels_last(x)
        and math.prod(w.shape[2:]) <= 121
        and x.dtype is not DType.F64
    )


def _depthwise(x: Source, w: Source, window: Window, tail: Tail) -> KernelLaunch:
    """A thread has neighbouring channels of some places along the last axis."""
    channels = x.shape[1]
    count, _, high, wide = _image_shape(tail.shape)
    piece = _piece(x, count * high * wide)
    places = _places(wide, count * high * (channels // piece))
    threads = count * high * -(-wide // places) * (channels // piece)
    assert w.constant is not None
    rank = len(w.constant.shape)
    order = (*range(2, rank), 1, 0)
    sources = [x, replace(w, argument=Packed(w.constant, "transposed", order)), *tail.sources]
    return KernelLaunch(
        Kernel(_depthwise_text(x, w, window, tail, piece, places), (-(-threads // 128), 1, 1), (128, 1, 1)),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * math.prod(tail.shape) * math.prod(w.shape[1:]),
        may_overlap=True,
    )


def _piece(x: Source, places: int) -> int:
    """Neighbouring channels of a thread: as many as fill 16 bytes, fewer where threads would be few."""
    sizes = [size for size in (8, 4, 2) if x.shape[1] % size == 0 and size * element_bytes(x.dtype) <= 16]
    return next((size for size in sizes if places * x.shape[1] // size >= _ENOUGH_THREADS), sizes[-1] if sizes else 1)


def _places(wide: int, columns: int) -> int:
    """Places that one thread does: several where there are threads enough without."""
    return next((places for places in (4, 2) if wide >= places and columns * wide // places >= 2 * _ENOUGH_THREADS), 1)


def _depthwise_text(x: Source, w: Source, window: Window, tail: Tail, piece: int, places: int) -> str:
    kind = stored(x.dtype)
    count, channels, high, wide = _image_shape(tail.shape)
    (rows, columns), (down, right) = w.shape[2:], window.strides
    groups, parts = channels // piece, -(-wide // places)
    packed = _packed_places(tail, piece)
    offset_of = _offset_of(tail, ["n", "first", "h", "w"])
    inside = {name: f"{name}_pack.v[i]" for name in packed}
    element = tail.element(_offset_of(tail, ["n", "c", "h", "w"]), places=inside)
    parameters = ", ".join([f"const {kind}* x", f"const {kind}* __restrict__ weight", *tail.parameters])
    before = " ".join(
        f"{pack_type} {name}_pack" + (f" = *(const {pack_type}*)({name} + {offset_of(source)});" if is_read else ";")
        for name, (source, pack_type, is_read) in packed.items()
    )
    behind = " ".join(
        f"*({pack_type}*)({name} + {offset_of(source)}) = {name}_pack;"
        for name, (source, pack_type, is_read) in packed.items()
        if not is_read
    )
    index = index_type(x)
    return f"""
extern "C" __global__ void __launch_bounds__(128) NAME({parameters}) {{
  begin();
  int place = blockIdx.x * 128 + threadIdx.x;
  if (place >= {count * high * parts * groups}) return;
  const int first = place % {groups} * {piece}; place /= {groups};
  const int w0 = place % {parts} * {places}; place /= {parts};
  const int h = place % {high}, n = place / {high};
  typedef pack<{kind}, {piece}> piece;
  const {index} image = ({index})n * {x.strides[0]};
  float sums[{places}][{piece}] = {{}};
#pragma unroll
  for (int r = 0; r < {rows}; r++) {{
    const int at = h * {down} - {window.pads[0]} + r * {window.dilations[0]};
    if (at < 0 || at >= {x.shape[2]}) continue;
#pragma unroll
    for (int s = 0; s < {columns}; s++) {{
      const piece factor = *(const piece*)(weight + (r * {columns} + s) * {channels} + first);
#pragma unroll
      for (int p = 0; p < {places}; p++) {{
        const int along = (w0 + p) * {right} - {window.pads[1]} + s * {window.dilations[1]};
        if (along < 0 || along >= {x.shape[3]}) continue;
        const {index} from = image + ({index})at * {x.strides[2]} + ({index})along * {x.strides[3]};
        const piece pixel = *(const piece*)(x + from + first);
#pragma unroll
        for (int i = 0; i < {piece}; i++) sums[p][i] += get(pixel.v[i]) * get(factor.v[i]);
      }}
    }}
  }}
#pragma unroll
  for (int p = 0; p < {places}; p++) {{
    const int w = w0 + p;
    if (w >= {wide}) continue;
    {before}
#pragma unroll
    for (int i = 0; i < {piece}; i++) {{
      const int c = first + i;
      const float total = sums[p][i];
      {element.code("total")}
    }}
    {behind}
  }}
}}
"""


# ---- anything


def gathered(x: Source, w: Source, window: Window, ends: Ends, shape: tuple[int, ...], chip: Chip) -> KernelLaunch:
    """The convolution of an image with a weight, of result shape `shape`, as a product of gathered windows."""
    columns = shape[1] // window.groups
    pixels = shape[0] * math.prod(shape[2:])
    tile = tile_size(pixels, columns, window.groups, chip)
    tiles = -(-pixels // tile) * -(-columns // tile) * window.groups
    sources = [x, w, *ends.sources]
    return KernelLaunch(
        Kernel(_gathered_text(x, w, window, ends, shape, tile), (tiles, 1, 1), (_THREADS, 1, 1)),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * math.prod(x.shape if window.is_transposed else shape) * math.prod(w.shape[1:]),
        may_overlap=True,
    )


def _gathered_text(x: Source, w: Source, window: Window, ends: Ends, shape: tuple[int, ...], tile: int) -> str:
    total = ends.total
    sizes, kernel = shape[2:], w.shape[2:]
    axes, each = len(sizes), tile // 16
    pixels, columns = shape[0] * math.prod(sizes), shape[1] // window.groups
    channels = x.shape[1] // window.groups  # of the image, in a group
    inner = channels * math.prod(kernel)
    index = index_type(x, w)
    taps = [f"t{axis}" for axis in range(axes)]
    channel_first = x.strides[1] == 1
    inner_names = [*taps, "c"] if channel_first else ["c", *taps]
    inner_sizes = [*kernel, channels] if channel_first else [channels, *kernel]
    across, down = -(-columns // tile), -(-pixels // tile)
    places = [f"o{axis}" for axis in range(axes)]
    # weights are [M, C/groups, ...], those of transposed convolutions [C, M/groups, ...]
    weight_at = (
        f"(group * {channels} + c) * {w.strides[0]} + (n0 + n) * {w.strides[1]}"
        if window.is_transposed
        else f"column * {w.strides[0]} + c * {w.strides[1]}"
    )
    types = (f"const {stored(x.dtype)}* x", f"const {stored(w.dtype)}* __restrict__ weight")
    parameters = ", ".join([*types, *ends.parameters])
    weight_at += "".join(f" + {tap} * {stride}" for tap, stride in zip(taps, w.strides[2:], strict=True))
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({parameters}) {{
  begin();
  __shared__ {total} left[{_DEPTH}][{tile} + 1], right[{_DEPTH}][{tile} + 1];
  __shared__ int origins[{axes}][{tile}];
  __shared__ {index} images[{tile}];
  int block = blockIdx.x;
  const int n0 = block % {across} * {tile}; block /= {across};
  const int m0 = block % {down} * {tile}, group = block / {down};
  if (threadIdx.x < {tile}) {{
    int pixel = m0 + threadIdx.x;
    const bool is_inside = pixel < {pixels};
    {split_index_code("pixel", ["image", *places], (shape[0], *sizes), "int")}
    images[threadIdx.x] = is_inside ? ({index})image * {x.strides[0]} : ({index})-1;
    {_origins(window, places)}
  }}
  __syncthreads();
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  {total} sums[{each}][{each}] = {{}};
  for (int k0 = 0; k0 < {inner}; k0 += {_DEPTH}) {{
#pragma unroll
    for (int i = 0; i < {tile * _DEPTH // _THREADS}; i++) {{
      const int e = threadIdx.x + i * {_THREADS};
      const int {f"k = e % {_DEPTH}, m = e / {_DEPTH}" if channel_first else f"m = e % {tile}, k = e / {tile}"};
      int rest = k0 + k;
      bool is_inside = rest < {inner} && images[m] >= 0;
      {split_index_code("rest", inner_names, inner_sizes, "int")}
      {_inside(x, window, taps, axes)}
      {index} from = images[m] + ({index})(group * {channels} + c) * {x.strides[1]};
      {" ".join(f"from += ({index})at{axis} * {x.strides[2 + axis]};" for axis in range(axes))}
      left[k][m] = is_inside ? {ends.left("x[from]")} : 0;
    }}
#pragma unroll
    for (int i = 0; i < {tile * _DEPTH // _THREADS}; i++) {{
      const int e = threadIdx.x + i * {_THREADS}, k = e % {_DEPTH}, n = e / {_DEPTH};
      int rest = k0 + k;
      const bool is_inside = rest < {inner} && n0 + n < {columns};
      {split_index_code("rest", inner_names, inner_sizes, "int")}
      const int column = group * {columns} + n0 + n;
      right[k][n] = is_inside ? {ends.right(f"weight[{weight_at}]")} : 0;
    }}
    __syncthreads();
#pragma unroll
    for (int k = 0; k < {_DEPTH}; k++)
#pragma unroll
      for (int i = 0; i < {each}; i++)
#pragma unroll
        for (int j = 0; j < {each}; j++) sums[i][j] += left[k][ty + 16 * i] * right[k][tx + 16 * j];
    __syncthreads();
  }}
#pragma unroll
  for (int i = 0; i < {each}; i++)
#pragma unroll
    for (int j = 0; j < {each}; j++) {{
      int pixel = m0 + ty + 16 * i;
      if (pixel >= {pixels} || n0 + tx + 16 * j >= {columns}) continue;
      {split_index_code("pixel", ["image", *places], (shape[0], *sizes), "int")}
      const int column = group * {columns} + n0 + tx + 16 * j;
      const {total} found = sums[i][j];
      {ends.finish}
    }}
}}
"""


def _origins(window: Window, places: list[str]) -> str:
    """Statements that keep where the window of each pixel begins; transposed: its place in the padded result."""
    axes = len(places)
    return " ".join(
        f"origins[{axis}][threadIdx.x] = {place} + {window.pads[axis]};"
        if window.is_transposed
        else f"origins[{axis}][threadIdx.x] = {place} * {window.strides[axis]} - {window.pads[axis]};"
        for axis, place in zip(range(axes), places, strict=True)
    )


def _inside(x: Source, window: Window, taps: list[str], axes: int) -> str:
    """Statements that name the places `at0`, ... of the image and clear `is_inside` where there is none."""
    lines: list[str] = []
    for axis, tap in zip(range(axes), taps, strict=True):
        dilation, stride = window.dilations[axis], window.strides[axis]
        if window.is_transposed:
            lines.append(f"const int far{axis} = origins[{axis}][m] - {tap} * {dilation};")
            lines.append(f"const int at{axis} = far{axis} / {stride};")
            lines.append(f"is_inside = is_inside && far{axis} >= 0 && far{axis} % {stride} == 0;")
        else:
            lines.append(f"const int at{axis} = origins[{axis}][m] + {tap} * {dilation};")
        lines.append(f"is_inside = is_inside && at{axis} >= 0 && at{axis} < {x.shape[2 + axis]};")
    return " ".join(lines)
