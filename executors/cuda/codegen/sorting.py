"""Order: sort and top_k by bitonic networks over keys that compare as unsigned numbers.

A key holds an element's order (NaN above all, both zeros equal) in 64 bits, turned round where the order descends;
equal keys are told apart by their index, so the order is stable. Rows up to `LARGEST_BLOCK` elements are sorted in
shared memory; longer rows in scratch memory, or, where only a few are wanted, stretch by stretch with the best so far.
"""

from collections.abc import Iterator, Mapping

from ....ir.ops.rules import normal_axis
from ....ir.types import DType, Kind
from ..launch import Candidate, KernelLaunch, Lowering, Place, Task
from .kernels import Ordered, Parameter, at, launch_of, ordered_like, reach_type, read, written
from .layouts import Layout
from .moving import operand, result

LARGEST_BLOCK = 8192
"""Elements that a block sorts in shared memory: a key of 8 bytes and an index of 4 each."""
STRETCH = 2048
THREADS = 1024
ENTRY_BYTES = 12

_KEY_OF = {
    DType.F64: "const u64 bits = bits_as<u64>(x == 0 ? 0.0 : x); "
    "key = x != x ? ~0ull : bits >> 63 ? ~bits : bits | 1ull << 63;",
    DType.U64: "key = x;",
}
_FLOAT_KEY = (
    "const unsigned bits = as_bits(x == 0 ? 0.0f : x); "
    "key = x != x ? ~0ull : (u64)(bits >> 31 ? ~bits : bits | 1u << 31);"
)
_INTEGER_KEY = "key = (u64)(i64)x ^ 1ull << 63;"


def _key(dtype: DType, is_descending: bool) -> str:
    """Statements that make `key` of the computed element `x`."""
    text = _KEY_OF.get(dtype)
    if text is None:
        text = _FLOAT_KEY if dtype.is_float else _INTEGER_KEY
    if dtype.kind in (Kind.UINT, Kind.BOOL) and dtype is not DType.U64:
        text = "key = (u64)x;"
    return f"{text} {'key = ~key;' if is_descending else ''}"


class _Rows:
    """Rows along an axis of `x`, of which the first `count` in order go to `values` and `places`."""

    def __init__(self, task: Task, axis: int, count: int, is_descending: bool) -> None:
        self.task = task
        self.x, self.values, self.places = operand(task), result(task), result(task, 1)
        self.axis, self.count = axis, count
        self.length = self.x.shape[axis]
        self.key = _key(self.x.dtype, is_descending)
        self.ctype = reach_type((self.x, self.values, self.places))
        rest = [other for other in ordered_like(self.x).order if other != axis]
        shape = tuple(1 if other == axis else size for other, size in enumerate(self.x.shape))
        self.outer = Ordered(shape, (axis, *rest))
        self.row_count = self.x.size // self.length if self.length else 0

    def head(self, row: str = "blockIdx.x") -> list[str]:
        """Where the row of a block lies."""
        without = [self.axis]
        return [
            *self.outer.lines(row, self.ctype),
            f"const {self.x.ctype}* from = x + ({at(self.x, without=without)});",
            f"{self.values.ctype}* to = values + ({at(self.values, without=without)});",
            f"i64* told = places + ({at(self.places, without=without)});",
        ]

    def entry(self, place: str) -> str:
        """A statement that reads element `n` to the entry at `place`; what lies behind the row is last of all."""
        return (
            f"{{ u64 key = ~0ull; unsigned index = ~0u; if (n < {self.length}) {{ "
            f"const auto x = get(from[({self.ctype})n * {self.x.strides[self.axis]}]); {self.key} index = n; }} "
            f"keys[{place}] = key; at[{place}] = index; }}"
        )

    def results(self) -> list[str]:
        """Statements that write the first entries."""
        return [
            f"for (int s = threadIdx.x; s < {self.count}; s += blockDim.x) {{ const int n = at[s];",
            f"to[({self.ctype})s * {self.values.strides[self.axis]}] = "
            f"from[({self.ctype})n * {self.x.strides[self.axis]}];",
            f"told[({self.ctype})s * {self.places.strides[self.axis]}] = n; }}",
        ]

    def launch(
        self, lines: list[str], threads: int, shared_bytes: int, extra: tuple[Parameter, ...] = (), parts: int = 1
    ) -> KernelLaunch:
        """A block for each row, or for each of the parts that rows are cut into."""
        parameters = [written("values", self.values), written("places", self.places), read("x", self.x), *extra]
        nbytes = self.x.nbytes + self.values.nbytes + self.places.nbytes
        return launch_of(parameters, lines, (self.row_count * parts, 1, 1), (threads, 1, 1), nbytes, 0, shared_bytes)


def _memory(size: int) -> list[str]:
    return [f"extern __shared__ u64 memory[]; u64* keys = memory; unsigned* at = (unsigned*)(memory + {size});"]


def _network(size: int) -> list[str]:
    """Statements that sort `size` (a power of two) entries of `keys` and `at` by a block."""
    return [
        f"for (unsigned run = 2; run <= {size}u; run *= 2) for (unsigned apart = run / 2; apart > 0; apart /= 2) {{",
        f"for (unsigned t = threadIdx.x; t < {size // 2}u; t += blockDim.x) {{",
        "const unsigned low = t / apart * 2 * apart + t % apart, high = low + apart;",
        "const bool is_up = (low & run) == 0;",
        "const u64 a = keys[low], b = keys[high]; const unsigned i = at[low], j = at[high];",
        "if ((a > b || (a == b && i > j)) == is_up) { keys[low] = b; keys[high] = a; at[low] = j; at[high] = i; }",
        "} __syncthreads(); }",
    ]


def _in_shared(rows: _Rows) -> KernelLaunch:
    size = max(2, 1 << (rows.length - 1).bit_length())
    lines = [
        *rows.head(),
        *_memory(size),
        f"for (int n = threadIdx.x; n < {size}; n += blockDim.x) {rows.entry('n')}",
        "__syncthreads();",
        *_network(size),
        *rows.results(),
    ]
    threads = min(THREADS, max(32, size // 2))
    return rows.launch(lines, threads, size * ENTRY_BYTES)


def _in_stretches(rows: _Rows, scratch: Place) -> tuple[tuple[KernelLaunch, ...], int]:
    """The best `count` of a long row: of each stretch by a block of its own, then of what these found, and so on."""
    size = max(STRETCH, 2 << (rows.count - 1).bit_length())
    launches: list[KernelLaunch] = []
    used, length = 0, rows.length
    source: tuple[Place, Place] | None = None
    while length > size:
        parts = -(-length // size)
        entries = rows.row_count * parts * rows.count
        found = Place(scratch.buffer, scratch.offset + used), Place(scratch.buffer, scratch.offset + used + 8 * entries)
        launches.append(_stretch(rows, size, length, parts, source, found))
        used += -(-entries * ENTRY_BYTES // 256) * 256
        source, length = found, parts * rows.count
    launches.append(_stretch(rows, size, length, 1, source, None))
    return tuple(launches), used


def _stretch(
    rows: _Rows,
    size: int,
    length: int,
    parts: int,
    source: tuple[Place, Place] | None,
    found: tuple[Place, Place] | None,
) -> KernelLaunch:
    """Sorts stretches of rows of `length` entries and writes the best of each: to `found`, or as the results."""
    read = rows.entry("s")
    if source is not None:
        inside = f"{{ keys[s] = n < {length} ? old_keys[row * {length} + n] : ~0ull; "
        read = inside + f"at[s] = n < {length} ? old_at[row * {length} + n] : ~0u; }}"
    lines = [
        f"const u64 row = blockIdx.x / {parts}u; const int part = blockIdx.x % {parts}u;",
        *rows.head("row"),
        *_memory(size),
        f"for (int s = threadIdx.x; s < {size}; s += blockDim.x) {{ const int n = part * {size} + s; {read} }}",
        "__syncthreads();",
        *_network(size),
    ]
    if found is None:
        lines += rows.results()
    else:
        place = f"blockIdx.x * (u64){rows.count} + s"
        lines.append(f"for (int s = threadIdx.x; s < {rows.count}; s += blockDim.x)")
        lines.append(f"{{ new_keys[{place}] = keys[s]; new_at[{place}] = at[s]; }}")
    extra: list[Parameter] = []
    for name, places in (("old", source), ("new", found)):
        if places is not None:
            extra += [Parameter("u64*", f"{name}_keys", places[0]), Parameter("unsigned*", f"{name}_at", places[1])]
    return rows.launch(lines, THREADS, size * ENTRY_BYTES, tuple(extra), parts)


def _in_scratch(rows: _Rows, scratch: Place) -> tuple[KernelLaunch, int]:
    size = 1 << (rows.length - 1).bit_length()
    entries = size * rows.row_count
    lines = [
        *rows.head(),
        f"u64* keys = memory + (u64)blockIdx.x * {size}u; unsigned* at = indices + (u64)blockIdx.x * {size}u;",
        f"for (int n = threadIdx.x; n < {size}; n += blockDim.x) {rows.entry('n')}",
        "__syncthreads();",
        *_network(size),
        *rows.results(),
    ]
    behind = Place(scratch.buffer, scratch.offset + 8 * entries)
    extra = (Parameter("u64*", "memory", scratch), Parameter("unsigned*", "indices", behind))
    return rows.launch(lines, 1024, 0, extra), entries * ENTRY_BYTES


def _sorted_rows(rows: _Rows) -> Iterator[Candidate]:
    if not rows.row_count or not rows.count:
        yield Candidate("nothing", ())
    elif rows.length > STRETCH and rows.count <= STRETCH // 4 and rows.task.scratch is not None:
        launches, nbytes = _in_stretches(rows, rows.task.scratch)
        yield Candidate("stretches", launches, nbytes)
    elif rows.length <= LARGEST_BLOCK:
        yield Candidate("shared", (_in_shared(rows),))
    elif rows.task.scratch is not None and rows.length < 2**30:
        launch, nbytes = _in_scratch(rows, rows.task.scratch)
        yield Candidate("scratch", (launch,), nbytes)


def _lower_sort(task: Task) -> Iterator[Candidate]:
    axis = _axis(task, operand(task))
    yield from _sorted_rows(_Rows(task, axis, operand(task).shape[axis], task.node.attrs["descending"]))


def _lower_top_k(task: Task) -> Iterator[Candidate]:
    yield from _sorted_rows(_Rows(task, _axis(task, operand(task)), task.node.attrs["k"], task.node.attrs["largest"]))


def _axis(task: Task, x: Layout) -> int:
    return normal_axis(task.node.attrs["axis"], len(x.shape))


LOWERINGS: Mapping[str, Lowering] = {"sort": _lower_sort, "top_k": _lower_top_k}
"""Ops of order."""
