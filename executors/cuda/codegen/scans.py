"""Cumulative sums and products: a thread for each line where many lie side by side, else a block for each."""

from collections.abc import Iterator, Mapping

from ....ir.ops.rules import normal_axis
from ....ir.types import DType
from ..launch import Candidate, KernelLaunch, Lowering, Task
from .kernels import Ordered, at, launch_of, ordered_like, per_position, reach_type, read, written
from .layouts import Layout
from .moving import operand, result
from .regions import flops_of
from .types import computed, unsigned

MANY_LINES = 4096
SHORT_LINE = 64
THREADS = 256


def _scan(functor: str, identity: str) -> Lowering:
    def lower(task: Task) -> Iterator[Candidate]:
        x, y, attrs = operand(task), result(task), task.node.attrs
        axis = normal_axis(attrs["axis"], len(x.shape))
        if not x.size:
            yield Candidate("nothing", ())
            return
        lines = x.size // x.shape[axis]
        is_serial = lines >= MANY_LINES or x.shape[axis] <= SHORT_LINE
        scan = _Scan(task, x, y, axis, functor, identity)
        yield Candidate("lines", (scan.serial(),)) if is_serial else Candidate("blocks", (scan.blocks(),))

    return lower


class _Scan:
    """One cumulative op over the lines along `axis`."""

    def __init__(self, task: Task, x: Layout, y: Layout, axis: int, functor: str, identity: str) -> None:
        self.x, self.y, self.axis = x, y, axis
        self.functor, self.identity = functor, identity
        self.length = x.shape[axis]
        self.is_exclusive, self.is_reverse = task.node.attrs["exclusive"], task.node.attrs["reverse"]
        self.carried = _carried(x.dtype)
        self.ctype = reach_type((x, y))
        self.flops = flops_of(task)
        rest = ordered_like(y)
        self.outer = Ordered(
            tuple(1 if other == axis else size for other, size in enumerate(x.shape)),
            (axis, *(other for other in rest.order if other != axis)),
        )

    def _bases(self, position: str) -> list[str]:
        return [
            *self.outer.lines(position, self.ctype),
            f"const {self.x.ctype}* from = x + ({at(self.x, without=[self.axis])});",
            f"{self.y.ctype}* to = y + ({at(self.y, without=[self.axis])});",
        ]

    def _place(self, step: str) -> str:
        return f"{self.length - 1} - ({step})" if self.is_reverse else step

    def _written(self, value: str) -> str:
        place = f"to[({self.ctype})n * {self.y.strides[self.axis]}]"
        return f"put({place}, ({computed(self.y.dtype)}){value});"

    def _read(self) -> str:
        return f"({self.carried})get(from[({self.ctype})n * {self.x.strides[self.axis]}])"

    def serial(self) -> KernelLaunch:
        """A thread for each line."""
        step = [f"const {self.carried} next = {self._read()};"]
        if self.is_exclusive:
            step += [self._written("total"), f"total = {self.functor}::of(total, next);"]
        else:
            step += [f"total = {self.functor}::of(total, next);", self._written("total")]
        lines = [
            *self._bases("p"),
            f"{self.carried} total = {self.identity};",
            f"for (int s = 0; s < {self.length}; s++) {{ const int n = {self._place('s')};",
            *step,
            "}",
        ]
        count = self.x.size // self.length
        return per_position(
            [written("y", self.y), read("x", self.x)], count, lines, 2 * self.x.nbytes, self.flops, threads=64
        )

    def blocks(self) -> KernelLaunch:
        """A block for each line, a stretch of one element a thread at a time."""
        functor, carried = self.functor, self.carried
        out = "before" if self.is_exclusive else f"{functor}::of(before, next)"
        lines = [
            *self._bases("blockIdx.x"),
            f"__shared__ {carried} ends[{THREADS // 32}];",
            f"{carried} carry = {self.identity};",
            f"for (int start = 0; start < {self.length}; start += {THREADS}) {{",
            f"const int s = start + threadIdx.x; const bool is_inside = s < {self.length};",
            f"const int n = is_inside ? {self._place('s')} : 0;",
            f"const {carried} next = is_inside ? {self._read()} : ({carried}){self.identity};",
            f"{carried} upto = next;",
            "for (int lane = 1; lane < 32; lane *= 2) {",
            f"const {carried} lower = __shfl_up_sync(0xffffffffu, upto, lane);",
            f"if (threadIdx.x % 32 >= lane) upto = {functor}::of(lower, upto); }}",
            "if (threadIdx.x % 32 == 31) ends[threadIdx.x / 32] = upto;",
            f"const {carried} left = __shfl_up_sync(0xffffffffu, upto, 1);",
            "__syncthreads();",
            f"{carried} before = carry;",
            f"for (int warp = 0; warp < (int)threadIdx.x / 32; warp++) before = {functor}::of(before, ends[warp]);",
            f"if (threadIdx.x % 32 > 0) before = {functor}::of(before, left);",
            f"for (int warp = 0; warp < {THREADS // 32}; warp++) carry = {functor}::of(carry, ends[warp]);",
            f"if (is_inside) {self._written(out)}",
            "__syncthreads(); }",
        ]
        return launch_of(
            [written("y", self.y), read("x", self.x)],
            lines,
            (self.x.size // self.length, 1, 1),
            (THREADS, 1, 1),
            2 * self.x.nbytes,
            self.flops,
        )


def _carried(dtype: DType) -> str:
    """The type in which totals are carried; integers wrap around."""
    return unsigned(dtype) if dtype.is_integer else computed(dtype)


LOWERINGS: Mapping[str, Lowering] = {"cumsum": _scan("sum", "0"), "cumprod": _scan("prod", "1")}
"""Cumulative ops."""
