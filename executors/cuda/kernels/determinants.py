"""`det`: elimination with the largest element of each column as its pivot, a block for each matrix.

A matrix lies in shared memory, or in scratch memory where it is too large. All but f64 is computed in f32, as PyTorch
does (G. Golub, C. Van Loan, Matrix Computations, 2013, 3.4); the product of the pivots in f64, as it may overflow on
the way, which NumPy's sum of logarithms does not.
"""

import math
from collections.abc import Iterator, Mapping

from ....ir.types import DType
from ..kernel_ir.casts import converted
from ..kernel_ir.kernels import Parameter, launch_of, read, written
from ..kernel_ir.launch import Candidate, Lowering, Task
from ..kernel_ir.layouts import index_lines
from ..kernel_ir.moving import operand, result
from ..kernel_ir.pointwise import has_types
from ..kernel_ir.regions import flops_of
from ..kernel_ir.types import Name, computed
from .resize.sampling import wide_type

_MOST_THREADS = 512
_ELEMENTS_OF_A_THREAD = 4


def _lower_det(task: Task) -> Iterator[Candidate]:
    x, y = operand(task), result(task)
    if not has_types(task.node) or not x.size:
        return
    wide, size = wide_type(x.dtype), x.shape[-1]
    c, outer = computed(wide), x.shape[:-2]
    held = size * (size + 1) * wide.numpy.itemsize
    count = math.prod(outer)
    is_shared = held <= task.chip.shared_bytes - 1024
    if not is_shared and (task.scratch is None or count * held > task.scratch_bytes):
        return
    threads = min(_MOST_THREADS, max(32, -(-size * size // _ELEMENTS_OF_A_THREAD // 32) * 32))
    # a place left free behind each row keeps the elements of a column in different banks
    memory = f"extern __shared__ {c} a[];" if is_shared else f"{c}* a = room + blockIdx.x * {size * (size + 1)}ll;"
    lines = [
        memory,
        *index_lines("c", "blockIdx.x", outer, "i64"),
        f"const {x.ctype}* from = x + ({_sum(x.strides[:-2])});",
        f"for (int n = threadIdx.x; n < {size * size}; n += {threads}) {{ const int i = n / {size}, j = n % {size};",
        f"a[i * {size + 1} + j] = get(from[(i64)i * {x.strides[-2]} + (i64)j * {x.strides[-1]}]); }}",
        "double found = 1; __syncthreads();",
        f"for (int k = 0; k < {size}; k++) {{",
        f"{c} most = -1; int row = k;",  # each warp looks for it
        f"for (int i = k + (int)threadIdx.x % 32; i < {size}; i += 32) {{",
        f"{c} v = a[i * {size + 1} + k]; v = v < 0 ? -v : v; if (v > most) {{ most = v; row = i; }} }}",
        "for (int step = 16; step; step /= 2) {",
        f"const {c} other = __shfl_xor_sync(~0u, most, step); const int at = __shfl_xor_sync(~0u, row, step);",
        "if (other > most || (other == most && at < row)) { most = other; row = at; } }",
        f"const {c} by = a[row * {size + 1} + k]; found *= row == k ? by : -by;",
        "__syncthreads();",
        f"if (row != k) for (int j = k + (int)threadIdx.x; j < {size}; j += {threads}) {{",
        f"const {c} held = a[k * {size + 1} + j]; a[k * {size + 1} + j] = a[row * {size + 1} + j];",
        f"a[row * {size + 1} + j] = held; }}",
        "if (by == 0) break;",
        "__syncthreads();",
        f"for (int i = k + 1 + (int)threadIdx.x / 32; i < {size}; i += {threads // 32}) {{",  # a row for each warp
        f"const {c} factor = a[i * {size + 1} + k] / by;",
        f"for (int j = k + 1 + (int)threadIdx.x % 32; j < {size}; j += 32)",
        f"a[i * {size + 1} + j] -= factor * a[k * {size + 1} + j]; }}",
        "__syncthreads(); }",
        f"if (threadIdx.x == 0) put(y[{_sum(y.strides)}], {converted(Name('found', DType.F64), y.dtype)});",
    ]
    parameters = [written("y", y), read("x", x)]
    if not is_shared:
        assert task.scratch is not None
        parameters.append(Parameter(f"{c}*", "room", task.scratch))
    shared_bytes = held if is_shared else 0
    nbytes = x.nbytes + y.nbytes
    launch = launch_of(parameters, lines, (count, 1, 1), (threads, 1, 1), nbytes, flops_of(task), shared_bytes)
    yield Candidate("elimination", (launch,), 0 if is_shared else count * held)


def _sum(strides: tuple[int, ...]) -> str:
    return " + ".join(f"c{axis} * {stride}" for axis, stride in enumerate(strides)) or "0"


LOWERINGS: Mapping[str, Lowering] = {"det": _lower_det}
"""Linear algebra."""
