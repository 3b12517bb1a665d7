"""Own kernels of any convolution: depthwise ones, and a GEMM of gathered windows.

The second is what is left where cuDNN has nothing (f64, f32 that has to stay f32, more than three spatial axes,
negative pads): correct before quick. A transposed convolution gathers too: an element of the result looks for the
windows that it lies in. Where there is none nothing is added, also of a weight that is infinite or NaN.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .....ir.types import DType
from ...kernel_ir.launch import Candidate, Chip, Kernel, KernelLaunch
from ...kernel_ir.sources import Source, index_type, split_index_code
from ...kernel_ir.types import computed, stored
from ..gemm.own_kernel_epilogue import OwnKernelEpilogue, own_kernel_epilogue
from ..gemm.regions import AnchoredRegion
from ..gemm.simt_gemm import tile_size
from .convolutions import Window
from .depthwise import lower_depthwise, offset_in_image
from .images import as_image, image_shape

_DEPTH, _THREADS = 16, 256
_RUN = 64
"""Products that are added up one after another before they join the sum: errors grow with the length of a run."""

_DTYPES = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})


def lower_directly(region: AnchoredRegion, window: Window) -> Iterator[Candidate]:
    """The region as one kernel of ours."""
    epilogue = own_kernel_epilogue(region)
    x, w = region.operand(0), region.operand(1)
    if epilogue is None or x is None or w is None or x.dtype not in _DTYPES:
        return
    x, w = as_image(x), as_image(w)
    yield from lower_depthwise(x, w, window, epilogue)
    yield Candidate(
        "gathered", (gathered(x, w, window, _ends(x, epilogue), image_shape(epilogue.shape), region.task.chip),)
    )


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


def _ends(x: Source, epilogue: OwnKernelEpilogue) -> Ends:
    total = computed(x.dtype)
    names = ["image", "column", *(f"o{axis}" for axis in range(len(x.shape) - 2))]

    def plain(element: str) -> str:
        return f"({total})get({element})"

    return Ends(total, plain, plain, _epilogue_code(epilogue, "found", names), epilogue.parameters, epilogue.sources)


def _epilogue_code(epilogue: OwnKernelEpilogue, total: str, names: list[str]) -> str:
    """The epilogue at a place of the image."""
    return epilogue.element(offset_in_image(epilogue, names)).code(total)


# ---- anything


def gathered(x: Source, w: Source, window: Window, ends: Ends, shape: tuple[int, ...], chip: Chip) -> KernelLaunch:
    """The convolution of an image with a weight, of result shape `shape`, as a GEMM of gathered windows."""
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
    leaves_out = window.is_transposed and total in ("float", "double")
    in_runs = x.dtype is DType.F32 and inner > _RUN
    weight_at += "".join(f" + {tap} * {stride}" for tap, stride in zip(taps, w.strides[2:], strict=True))
    return f"""
extern "C" __global__ void __launch_bounds__({_THREADS}) NAME({parameters}) {{
  begin();
  __shared__ {total} left[{_DEPTH}][{tile} + 1], right[{_DEPTH}][{tile} + 1];
  __shared__ int origins[{axes}][{tile}];
  __shared__ {index} images[{tile}];
  {f"__shared__ bool is_there[{_DEPTH}][{tile}];" if leaves_out else ""}
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
  {total} sums[{each}][{each}] = {{}}{f", run[{each}][{each}] = {{}}" if in_runs else ""};
  for (int k0 = 0; k0 < {inner}; k0 += {_DEPTH}) {{
    {"bool is_not_finite = false;" if leaves_out else ""}
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
      {"is_there[k][m] = is_inside;" if leaves_out else ""}
    }}
#pragma unroll
    for (int i = 0; i < {tile * _DEPTH // _THREADS}; i++) {{
      const int e = threadIdx.x + i * {_THREADS}, k = e % {_DEPTH}, n = e / {_DEPTH};
      int rest = k0 + k;
      const bool is_inside = rest < {inner} && n0 + n < {columns};
      {split_index_code("rest", inner_names, inner_sizes, "int")}
      const int column = group * {columns} + n0 + n;
      right[k][n] = is_inside ? {ends.right(f"weight[{weight_at}]")} : 0;
      {"is_not_finite |= right[k][n] - right[k][n] != 0;" if leaves_out else ""}
    }}
    {_sums_of_all(each, leaves_out, "run" if in_runs else "sums")}
    {f"if (k0 % {_RUN} == {_RUN - _DEPTH} || k0 + {_DEPTH} >= {inner}) {{ {_joined(each)} }}" if in_runs else ""}
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


def _sums_of_all(each: int, leaves_out: bool, to: str) -> str:
    """What follows the loads: with `leaves_out`, weights some of which are not finite meet no zeros."""
    if not leaves_out:
        return f"__syncthreads(); {_sums(each, to)}"
    alone = _sums(each, to, "is_there[k][ty + 16 * i]")
    return f"if (__syncthreads_or(is_not_finite)) {{ {alone}\n    }} else {{ {_sums(each, to)}\n    }}"


def _sums(each: int, to: str, condition: str = "") -> str:
    """A statement that adds the products of what shared memory holds, on condition."""
    return f"""
#pragma unroll
    for (int k = 0; k < {_DEPTH}; k++)
#pragma unroll
      for (int i = 0; i < {each}; i++)
#pragma unroll
        for (int j = 0; j < {each}; j++)
          {f"if ({condition})" if condition else ""} {to}[i][j] += left[k][ty + 16 * i] * right[k][tx + 16 * j];"""


def _joined(each: int) -> str:
    """A statement that adds a run to the sums and begins the next one."""
    return f"""
#pragma unroll
      for (int i = 0; i < {each}; i++)
#pragma unroll
        for (int j = 0; j < {each}; j++) sums[i][j] += run[i][j], run[i][j] = 0;
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
