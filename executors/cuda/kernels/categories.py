"""Classes drawn by log-probability: `keyed_multinomial`, by the inverse of the cumulative distribution, in f64.

Blocks share the classes of a row. Each finds the greatest log-probability of its part; then each sums up its part, term
by term; then a thread for each draw looks for the part, and in it for the class, where the sum passes a random number.
"""

from collections.abc import Iterator, Mapping

from ....ir.types import DType
from ..kernel_ir.draws import arguments_of
from ..kernel_ir.kernels import Parameter, launch_of, per_position, reach_type, read, written
from ..kernel_ir.launch import BufferPlace, Candidate, Lowering, Task
from ..kernel_ir.moving import operand, result
from ..kernel_ir.pointwise import has_types
from ..kernel_ir.types import Name

THREADS = 256
ITEMS = 8
PART = THREADS * ITEMS
"""How many classes a block sums up."""

_WARPS = THREADS // 32


def _lower_multinomial(task: Task) -> Iterator[Candidate]:
    x, state, y = operand(task), operand(task, 1), result(task)
    if task.scratch is None or not has_types(task.node) or not x.shape[1]:
        return
    rows, classes = x.shape
    if not y.size:
        yield Candidate("nothing", ())
        return
    parts = -(-classes // PART)
    ctype = reach_type((x, y))
    room = -(-8 * rows * parts // 256) * 256
    at = [BufferPlace(task.scratch.buffer, task.scratch.offset + start) for start in (0, room, 2 * room)]
    greatest, totals, sums = (
        Parameter("double*", name, place) for name, place in zip(("maxima", "totals", "sums"), at, strict=True)
    )
    locate = [
        f"const {ctype} row = blockIdx.y, place = row * {parts} + blockIdx.x;",
        f"const {ctype} from = (threadIdx.x + blockIdx.x * {THREADS}) * {ITEMS};",
        f"__shared__ double ends[{_WARPS}];",
    ]
    each = f'_Pragma("unroll") for (int i = 0; i < {ITEMS}; i++) if (from + i < {classes})'
    element = f"(double)get(x[row * {x.strides[0]} + (from + i) * {x.strides[1]}])"
    maxima = [
        *locate,
        "double most = -INFINITE;",
        f"{each} most = greatest(most, {element});",
        f"most = block_reduce<max_of, {_WARPS}>(most, ends);",
        "if (threadIdx.x == 0) maxima[place] = most;",
    ]
    summing = [
        *locate,
        f"__shared__ double shared[{_WARPS}];",
        "double most = -INFINITE;",
        f"for (int b = threadIdx.x; b < {parts}; b += {THREADS}) most = greatest(most, maxima[row * {parts} + b]);",
        f"most = block_reduce<max_of, {_WARPS}>(most, shared);",
        f"double own[{ITEMS}], upto = 0;",
        f"{each} own[i] = upto += exp({element} - most);",
        "const double mine = upto;",
        "for (int lane = 1; lane < 32; lane *= 2) {",
        "const double lower = __shfl_up_sync(0xffffffffu, upto, lane);",
        "if (threadIdx.x % 32 >= lane) upto += lower; }",
        "if (threadIdx.x % 32 == 31) ends[threadIdx.x / 32] = upto;",
        "__syncthreads();",
        "double before = upto - mine;",
        "for (int warp = 0; warp < (int)threadIdx.x / 32; warp++) before += ends[warp];",
        f"{each} sums[row * {classes} + from + i] = before + own[i];",
        f"if (threadIdx.x == {THREADS - 1}) totals[place] = before + mine;",
    ]
    key, count = (Name(f"state[{index * state.strides[0]}]", DType.U64) for index in range(2))
    stream = task.node.attrs["stream"]
    assert isinstance(stream, int)
    samples = y.shape[1]
    arguments = arguments_of(key, count, Name("p", DType.I64), y.size, stream)
    drawing = [
        f"const unsigned w = 0; const {ctype} row = p / {samples}u;",
        "double total = 0;",
        f"for (int b = 0; b < {parts}; b++) total += totals[row * {parts} + b];",
        f"const double drawn = uniform_double({arguments}) * total;",
        "int part = 0; double before = 0;",
        f"while (part < {parts - 1} && !(drawn < before + totals[row * {parts} + part])) {{",
        f"before += totals[row * {parts} + part]; part++; }}",
        f"int low = part * {PART}, high = low + {PART} < {classes} ? low + {PART} : {classes};",
        "while (low < high) {",
        "const int middle = (low + high) / 2;",
        f"if (drawn < before + sums[row * {classes} + middle]) high = middle; else low = middle + 1; }}",
        f"if (low >= {classes}) low = {classes - 1};",
        f"put(y[row * {y.strides[0]} + p % {samples}u * {y.strides[1]}], ({y.ctype})low);",
    ]
    grid, block = (parts, rows, 1), (THREADS, 1, 1)
    launches = (
        launch_of([read("x", x), greatest], maxima, grid, block, x.nbytes),
        launch_of([read("x", x), greatest, totals, sums], summing, grid, block, x.nbytes + 8 * x.size),
        per_position([written("y", y), read("state", state), totals, sums], y.size, drawing, y.nbytes, ctype=ctype),
    )
    yield Candidate("inverse", launches, 2 * room + 8 * x.size)


LOWERINGS: Mapping[str, Lowering] = {"keyed_multinomial": _lower_multinomial}
"""Draws of classes."""
