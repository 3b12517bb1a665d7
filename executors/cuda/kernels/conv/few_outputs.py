"""Convolutions of channels-last halves to few channels, which reading the image bounds (the last one of a decoder).

A window of one pixel is enough for tensor cores: columns of the GEMM are all taps of all channels of the result, so
that a pixel is read once, and what a tap finds is added up from shared memory at the pixel that the tap is for. Warps
take 16 pixels of a tile at a time by `mma.m16n8k16`. The order of channels inside of a GEMM is free: a lane's eight
neighbors fill its places of two `mma`.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.includes.warp_code import warp_mma
from ...kernel_ir.launch import Candidate, Chip, Kernel, KernelLaunch
from ...kernel_ir.sources import Source, index_type
from ..gemm.own_kernel_epilogue import OwnKernelEpilogue, own_kernel_epilogue
from ..gemm.regions import AnchoredRegion
from .convolutions import Window
from .depthwise import offset_in_image
from .image_copies import ImageScratch
from .images import as_image, image_shape

MOST_CHANNELS = 8
_MOST_COLUMNS = 80
_WARPS = 8
_SUMS = 12
"""Tiles of eight columns of which a warp has the sums at a time."""
_MEMORY = 56 << 10
"""What a block may take, so that four of them fit on a multiprocessor."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """Rows and columns of the result that a block makes, and those of the image that it reads for them."""

    high: int
    wide: int
    high_in: int
    wide_in: int

    @property
    def pixels(self) -> int:
        """Of the image."""
        return self.high_in * self.wide_in

    @property
    def pitch(self) -> int:
        """Floats from column to column: what a warp writes at a time lies on different banks."""
        return -(-self.pixels // 16) * 16 + 4


def lower_to_few_channels(region: AnchoredRegion, window: Window) -> Iterator[Candidate]:
    """The region as one kernel, behind copies of what is not channels-last."""
    epilogue = own_kernel_epilogue(region)
    x, w = region.operand(0), region.operand(1)
    if epilogue is None or x is None or w is None or len(epilogue.shape) not in (3, 4) or not _fits(x, w, window):
        return
    scratch = ImageScratch(region.task, 0)
    image, weight = scratch.channels_last(as_image(x)), scratch.weight(w)
    if image is None or weight is None or not image.starts_a_piece or not weight.starts_a_piece:
        return
    tile = _tile(image_shape(epilogue.shape), weight, window, region.task.chip)
    if tile is not None:
        launch = _launch(image, weight, window, epilogue, tile)
        yield Candidate("few-outputs", (*scratch.launches, launch), scratch.used)


def _fits(x: Source, w: Source, window: Window) -> bool:
    return (
        x.dtype in (DType.F16, DType.BF16)
        and window.groups == 1
        and not window.is_transposed
        and all(stride == 1 for stride in window.strides)
        and x.shape[1] % 8 == 0
        and w.shape[0] <= MOST_CHANNELS
        and w.shape[0] * math.prod(w.shape[2:]) <= _MOST_COLUMNS
    )


def _tiles_of_columns(weight: Source) -> int:
    return -(-weight.shape[0] * math.prod(weight.shape[2:]) // 8)


def _weight_bytes(weight: Source) -> int:
    return -(-weight.shape[1] // 32) * _tiles_of_columns(weight) * 32 * 16


def _shared_bytes(weight: Source, tile: _Tile) -> int:
    return _weight_bytes(weight) + 4 * 8 * _tiles_of_columns(weight) * tile.pitch


def _tile(shape: tuple[int, ...], weight: Source, window: Window, chip: Chip) -> _Tile | None:
    """The tile that reads the least, where blocks share the multiprocessors; None where none finds room."""
    count, _, high, wide = shape
    best: tuple[float, _Tile] | None = None
    for rows in (1, 2, 4, 8, 16, 32):
        for columns in (8, 16, 32, 64, 128):
            around, beside = ((weight.shape[2 + axis] - 1) * window.dilations[axis] for axis in (0, 1))
            tile = _Tile(rows, columns, rows + around, columns + beside)
            blocks = count * -(-high // rows) * -(-wide // columns)
            cost = max(blocks / chip.multiprocessors, 1) * (tile.pixels + 16 * _WARPS)
            if _shared_bytes(weight, tile) <= min(_MEMORY, chip.shared_bytes) and (best is None or cost < best[0]):
                best = cost, tile
    return best[1] if best is not None else None


def _launch(x: Source, weight: Source, window: Window, epilogue: OwnKernelEpilogue, tile: _Tile) -> KernelLaunch:
    count, _, high, wide = image_shape(epilogue.shape)
    sources = [x, weight, *epilogue.sources]
    return KernelLaunch(
        Kernel(
            _text(x, weight, window, epilogue, tile),
            (count * -(-high // tile.high) * -(-wide // tile.wide), 1, 1),
            (32 * _WARPS, 1, 1),
            shared_bytes=_shared_bytes(weight, tile),
        ),
        tuple(source.argument for source in sources),
        nbytes=sum(source.nbytes for source in sources),
        flops=2 * math.prod(epilogue.shape) * math.prod(weight.shape[1:]),
        may_overlap=True,
    )


def _text(x: Source, weight: Source, window: Window, epilogue: OwnKernelEpilogue, tile: _Tile) -> str:
    kind, index = str(x.dtype), index_type(x)
    _, channels, high, wide = image_shape(epilogue.shape)
    inner, (rows, columns) = x.shape[1], weight.shape[2:]
    across, down = -(-wide // tile.wide), -(-high // tile.high)
    wanted, pitch = rows * columns * channels, tile.pitch
    result = next(iter(epilogue.results.values()))
    order = f"const int m = e % {channels}, left = e / {channels} % {tile.wide}, above = e / {channels * tile.wide};"
    if result.strides[-1] == 1:
        order = (
            f"const int left = e % {tile.wide}, above = e / {tile.wide} % {tile.high}, m = e / {tile.high * tile.wide};"
        )
    (below, right), taps = window.dilations, itertools.product(range(rows), range(columns))
    places = [(r * columns + s) * channels * pitch + r * below * tile.wide_in + s * right for r, s in taps]
    element = epilogue.element(offset_in_image(epilogue, ["n", "m", "h", "w"]))
    parameters = ", ".join([f"const {kind}* x", f"const {kind}* weight", *epilogue.parameters])
    return f"""
typedef pack<unsigned, 4> NAME_piece;
{warp_mma(kind)}
extern "C" __global__ void __launch_bounds__({32 * _WARPS}) NAME({parameters}) {{
  begin();
  constexpr int CHUNKS = {-(-inner // 32)}, TILES = {_tiles_of_columns(weight)}, PITCH = {pitch};
  constexpr int HIGH = {max(1, _SUMS // _tiles_of_columns(weight))}, PIXELS = {tile.pixels};
  extern __shared__ __align__(16) unsigned char memory[];
  NAME_piece* const taps = (NAME_piece*)memory;  // as lanes take them, by 32 channels and eight columns
  float* const parts = (float*)(memory + {_weight_bytes(weight)});  // of each column, what the tile's pixels find
  for (int e = threadIdx.x; e < CHUNKS * TILES * 32; e += {32 * _WARPS}) {{
    const int column = e / 32 % TILES * 8 + e % 32 / 4, tap = column / {channels};
    const int c = e / (32 * TILES) * 32 + e % 4 * 8;
    NAME_piece piece = {{}};
    if (column < {wanted} && c < {inner})
      piece = *(const NAME_piece*)(weight + column % {channels} * {weight.strides[0]} +
          tap / {columns} * {weight.strides[2]} + tap % {columns} * {weight.strides[3]} + c);
    taps[e] = piece;
  }}
  __syncthreads();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, quad = lane % 4;
  const int w0 = blockIdx.x % {across}u * {tile.wide}, h0 = blockIdx.x / {across}u % {down}u * {tile.high};
  const int n = blockIdx.x / {across * down}u;
  for (int first = warp * 16 * HIGH; first < PIXELS; first += {16 * _WARPS} * HIGH) {{
    const {kind}* from[2 * HIGH];
    bool is_there[2 * HIGH];
#pragma unroll
    for (int i = 0; i < 2 * HIGH; i++) {{
      const int pixel = first + 8 * i + group;
      const int at0 = h0 - {window.pads[0]} + pixel / {tile.wide_in};
      const int at1 = w0 - {window.pads[1]} + pixel % {tile.wide_in};
      is_there[i] = pixel < PIXELS && at0 >= 0 && at0 < {x.shape[2]} && at1 >= 0 && at1 < {x.shape[3]};
      from[i] = x + (({index})n * {x.strides[0]} + ({index})at0 * {x.strides[2]} + ({index})at1 * {x.strides[3]} +
                     quad * 8);
    }}
    auto load = [&](NAME_piece* to, int chunk) {{
#pragma unroll
      for (int i = 0; i < 2 * HIGH; i++) {{
        to[i] = NAME_piece{{}};
        if (is_there[i]{f" && chunk * 32 + quad * 8 < {inner}" if inner % 32 else ""})
          to[i] = *(const NAME_piece*)(from[i] + chunk * 32);
      }}
    }};
    NAME_piece now[2 * HIGH], next[2 * HIGH];
    load(next, 0);
    float sums[HIGH][TILES][4] = {{}};
#pragma unroll 4
    for (int chunk = 0; chunk < CHUNKS; chunk++) {{
#pragma unroll
      for (int i = 0; i < 2 * HIGH; i++) now[i] = next[i];
      if (chunk + 1 < CHUNKS) load(next, chunk + 1);
#pragma unroll
      for (int t = 0; t < TILES; t++) {{
        const NAME_piece tap = taps[(chunk * TILES + t) * 32 + lane];
#pragma unroll
        for (int i = 0; i < HIGH; i++) {{
          const unsigned* low = now[2 * i].v; const unsigned* high = now[2 * i + 1].v;
          NAME_mma(sums[i][t], low[0], high[0], low[1], high[1], tap.v[0], tap.v[1]);
          NAME_mma(sums[i][t], low[2], high[2], low[3], high[3], tap.v[2], tap.v[3]);
        }}
      }}
    }}
#pragma unroll
    for (int i = 0; i < HIGH; i++)
#pragma unroll
      for (int t = 0; t < TILES; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) {{
          const int pixel = first + 16 * i + e / 2 * 8 + group;
          if (pixel < PIXELS) parts[(t * 8 + quad * 2 + e % 2) * PITCH + pixel] = sums[i][t][e];
        }}
  }}
  __syncthreads();
  for (int e = threadIdx.x; e < {tile.high * tile.wide * channels}; e += {32 * _WARPS}) {{
    {order}
    const int h = h0 + above, w = w0 + left;
    if (h >= {high} || w >= {wide}) continue;
    const float* const found = parts + m * PITCH + above * {tile.wide_in} + left;
    const float total = {" + ".join(f"found[{place}]" for place in places)};
    {element.code("total")}
  }}
}}
"""
