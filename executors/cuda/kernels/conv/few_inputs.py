"""Convolutions of images of few channels (a model's first one), which writing the result bounds.

The image is read as it lies, row-major or channels-last: a block has what its pixels need of all channels in shared
memory. The inner axis of the GEMM, channels times taps, has no order that neighbors in memory follow: lanes gather
their places of `mma.m16n8k16` one by one, for as many columns as fit. The order of columns is free: a lane has eight
neighboring channels of the result, which it writes at once.
"""

import math
from collections.abc import Iterator

from .....ir.types import DType
from ...kernel_ir.includes.warp_code import warp_mma
from ...kernel_ir.launch import Candidate, Chip, Kernel, KernelLaunch
from ...kernel_ir.sources import Source, index_type
from ..gemm.own_kernel_epilogue import OwnKernelEpilogue, own_kernel_epilogue
from ..gemm.regions import AnchoredRegion
from .convolutions import Window
from .depthwise import offset_in_image, packed_code
from .images import as_image, image_shape

MOST_CHANNELS = 4
_MOST_INNER = 208
_WARPS = 8
_PIXELS = 512
_LEAST_PIXELS = 128
"""Of a block."""
_MOST_COLUMNS = 64
_MEMORY = 48 << 10


def lower_from_few_channels(region: AnchoredRegion, window: Window) -> Iterator[Candidate]:
    """The region as one kernel."""
    epilogue = own_kernel_epilogue(region)
    x, w = region.operand(0), region.operand(1)
    if epilogue is None or x is None or w is None or len(epilogue.shape) not in (3, 4) or not _fits(x, w, window):
        return
    image, weight = as_image(x), as_image(w)
    tile = _tile(image_shape(epilogue.shape), weight, window, region.task.chip)
    if _shared_bytes(weight, window, tile) <= _MEMORY:
        yield Candidate("few-inputs", (_launch(image, weight, window, epilogue, tile),))


def _fits(x: Source, w: Source, window: Window) -> bool:
    return (
        x.dtype in (DType.F16, DType.BF16)
        and window.groups == 1
        and not window.is_transposed
        and x.shape[1] <= MOST_CHANNELS
        and math.prod(w.shape[1:]) <= _MOST_INNER
        and w.shape[0] >= 8
    )


def _tile(shape: tuple[int, ...], weight: Source, window: Window, chip: Chip) -> tuple[int, int]:
    """Rows and columns of the result that a block makes: many, but blocks for all multiprocessors."""
    count, channels, high, wide = shape
    columns = min(wide, 64)
    around = count * -(-wide // columns) * -(-channels // _columns(weight))
    rows = min(high, max(1, _PIXELS // columns))
    while rows * columns > _LEAST_PIXELS and (
        around * -(-high // rows) < 2 * chip.multiprocessors or _shared_bytes(weight, window, (rows, columns)) > _MEMORY
    ):
        rows = -(-rows // 2)
        if rows == 1:
            break
    return rows, columns


def _columns(weight: Source) -> int:
    """Channels of the result that a block makes."""
    return min(_MOST_COLUMNS, -(-weight.shape[0] // 32) * 32)


def _steps(weight: Source) -> int:
    return -(-math.prod(weight.shape[1:]) // 16)


def _spans(weight: Source, window: Window, tile: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the image that a tile reads."""
    high, wide = (
        (size - 1) * window.strides[axis] + (weight.shape[2 + axis] - 1) * window.dilations[axis] + 1
        for axis, size in enumerate(tile)
    )
    return high, wide


def _weight_bytes(weight: Source) -> int:
    return _steps(weight) * 16 * _columns(weight) * 2


def _shared_bytes(weight: Source, window: Window, tile: tuple[int, int]) -> int:
    image = weight.shape[1] * math.prod(_spans(weight, window, tile))
    return _weight_bytes(weight) + 4 * 16 * _steps(weight) + 2 * image


def _launch(
    x: Source, weight: Source, window: Window, epilogue: OwnKernelEpilogue, tile: tuple[int, int]
) -> KernelLaunch:
    count, channels, high, wide = image_shape(epilogue.shape)
    sources = [x, weight, *epilogue.sources]
    blocks = count * -(-high // tile[0]) * -(-wide // tile[1]) * -(-channels // _columns(weight))
    return KernelLaunch(
        Kernel(
            _text(x, weight, window, epilogue, tile),
            (blocks, 1, 1),
            (32 * _WARPS, 1, 1),
            shared_bytes=_shared_bytes(weight, window, tile),
        ),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * math.prod(epilogue.shape) * math.prod(weight.shape[1:]),
        may_overlap=True,
    )


def _text(x: Source, weight: Source, window: Window, epilogue: OwnKernelEpilogue, tile: tuple[int, int]) -> str:
    kind, index = str(x.dtype), index_type(x)
    _, made, high, wide = image_shape(epilogue.shape)
    channels, (rows, columns) = x.shape[1], weight.shape[2:]
    (tall, broad), (tall_in, broad_in) = tile, _spans(weight, window, tile)
    across, down, parts = -(-wide // broad), -(-high // tall), -(-made // _columns(weight))
    inner, plane = channels * rows * columns, tall_in * broad_in
    blocks = _columns(weight) // 32
    is_last = x.strides[1] == 1 and channels > 1
    place = f"c = e % {channels}, at = e / {channels}" if is_last else f"c = e / {plane}, at = e % {plane}"
    code = packed_code(epilogue, 8, ["n", "first", "h", "w"], ["n", "c", "h", "w"]) if made % 8 == 0 else None
    element = code.element if code is not None else epilogue.element(offset_in_image(epilogue, ["n", "c", "h", "w"]))
    parameters = ", ".join([f"const {kind}* x", f"const {kind}* weight", *epilogue.parameters])
    return f"""
{warp_mma(kind)}
extern "C" __global__ void __launch_bounds__({32 * _WARPS}, 2) NAME({parameters}) {{
  begin();
  constexpr int STEPS = {_steps(weight)}, TILES = {4 * blocks}, INNER = {inner}, PIXELS = {tall * broad};
  extern __shared__ __align__(16) unsigned char memory[];
  pack<unsigned, 2>* const taps = (pack<unsigned, 2>*)memory;  // as lanes take them, by 16 places and eight columns
  int* const places = (int*)(memory + {_weight_bytes(weight)});  // of the inner axis, in the image of a channel
  {kind}* const image = ({kind}*)(places + 16 * STEPS);
  const int part = blockIdx.x % {parts}u * {_columns(weight)}, block = blockIdx.x / {parts}u;
  const int w0 = block % {across} * {broad}, h0 = block / {across} % {down} * {tall}, n = block / {across * down};
  for (int e = threadIdx.x; e < {channels * plane}; e += {32 * _WARPS}) {{
    const int {place};
    const int at0 = h0 * {window.strides[0]} - {window.pads[0]} + at / {broad_in};
    const int at1 = w0 * {window.strides[1]} - {window.pads[1]} + at % {broad_in};
    {kind} found = {{}};
    if (at0 >= 0 && at0 < {x.shape[2]} && at1 >= 0 && at1 < {x.shape[3]})
      found = x[({index})n * {x.strides[0]} + ({index})c * {x.strides[1]} + ({index})at0 * {x.strides[2]} +
                ({index})at1 * {x.strides[3]}];
    image[c * {plane} + at] = found;
  }}
  for (int k = threadIdx.x; k < 16 * STEPS; k += {32 * _WARPS})
    places[k] = k >= INNER ? 0 : k / {rows * columns} * {plane} +
        k / {columns} % {rows} * {window.dilations[0] * broad_in} + k % {columns} * {window.dilations[1]};
  for (int e = threadIdx.x; e < STEPS * TILES * 32; e += {32 * _WARPS}) {{
    const int tile = e / 32 % TILES, lane = e % 32;
    const int m = part + tile / 4 * 32 + lane / 8 * 8 + tile % 4 * 2 + lane / 4 % 2;
    pack<{kind}, 4> both = {{}};
#pragma unroll
    for (int i = 0; i < 4; i++) {{
      const int k = e / (32 * TILES) * 16 + lane % 4 * 2 + i / 2 * 8 + i % 2;
      if (m < {made} && k < INNER)
        both.v[i] = weight[m * {weight.strides[0]} + k / {rows * columns} * {weight.strides[1]} +
                           k / {columns} % {rows} * {weight.strides[2]} + k % {columns} * {weight.strides[3]}];
    }}
    taps[e] = bits_as<pack<unsigned, 2>>(both);
  }}
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  for (int start = warp * 32; start < PIXELS; start += {32 * _WARPS}) {{
    const {kind}* from[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {{
      const int pixel = least(start + 8 * i + group, PIXELS - 1);
      from[i] = image + pixel / {broad} * {window.strides[0] * broad_in} + pixel % {broad} * {window.strides[1]};
    }}
    float sums[2][TILES][4] = {{}};
#pragma unroll 4
    for (int step = 0; step < STEPS; step++) {{
      pack<{kind}, 2> a[4][2];  // of a pixel, two neighbors of the inner axis, and those eight further
#pragma unroll
      for (int j = 0; j < 4; j++) {{
        const int k = step * 16 + quad * 2 + j / 2 * 8 + j % 2, at = places[k];
        const bool is_tap = {"true" if inner % 16 == 0 else "k < INNER"};
#pragma unroll
        for (int i = 0; i < 4; i++) a[i][j / 2].v[j % 2] = is_tap ? from[i][at] : {kind}{{}};
      }}
#pragma unroll
      for (int t = 0; t < TILES; t++) {{
        const pack<unsigned, 2> tap = taps[(step * TILES + t) * 32 + lane];
#pragma unroll
        for (int i = 0; i < 2; i++)
          NAME_mma(sums[i][t], bits_as<unsigned>(a[2 * i][0]), bits_as<unsigned>(a[2 * i + 1][0]),
                   bits_as<unsigned>(a[2 * i][1]), bits_as<unsigned>(a[2 * i + 1][1]), tap.v[0], tap.v[1]);
      }}
    }}
#pragma unroll
    for (int i = 0; i < 4; i++) {{
      const int pixel = start + 8 * i + group, h = h0 + pixel / {broad}, w = w0 + pixel % {broad};
      if (pixel >= PIXELS || h >= {high} || w >= {wide}) continue;
#pragma unroll
      for (int b = 0; b < TILES / 4; b++) {{
        const int first = part + b * 32 + quad * 8;
        if (first >= {made}) continue;
        {code.before if code is not None else ""}
#pragma unroll
        for (int nth = 0; nth < 8; nth++) {{
          const int c = first + nth;
          {"" if made % 8 == 0 else f"if (c >= {made}) continue;"}
          const float total = sums[i / 2][b * 4 + nth / 2][i % 2 * 2 + nth % 2];
          {element.code("total")}
        }}
        {code.behind if code is not None else ""}
      }}
    }}
  }}
}}
"""
