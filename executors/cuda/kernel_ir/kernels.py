"""Kernels with a text of their own: a thread for each of a number of positions, and wider elements for plain moves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .launch import Argument, Kernel, KernelLaunch
from .layouts import ALIGNMENT, Layout, Space, index_lines, index_type, offset_text
from .types import WORDS

THREADS = 256


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a kernel: its C++ type, its name, and what is given for it."""

    ctype: str
    name: str
    argument: Argument


def read(name: str, layout: Layout) -> Parameter:
    """A pointer to a tensor that is read."""
    return Parameter(f"const {layout.ctype}*", name, layout.place)


def written(name: str, layout: Layout) -> Parameter:
    """A pointer to a tensor that is written."""
    return Parameter(f"{layout.ctype}*", name, layout.place)


def launch_of(
    parameters: Sequence[Parameter],
    lines: Sequence[str],
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    nbytes: int,
    flops: int = 0,
    shared_bytes: int = 0,
    early: Sequence[str] = (),
) -> KernelLaunch:
    """A launch of the function with these statements, `early` ones before it waits: they read constants alone."""
    listed = ", ".join(f"{parameter.ctype} {parameter.name}" for parameter in parameters)
    threads = block[0] * block[1] * block[2]
    head = f'extern "C" __global__ void __launch_bounds__({threads}) NAME({listed}) {{\n'
    kernel = Kernel(head + "\n".join([*early, "begin();", *lines]) + "\n}\n", grid, block, shared_bytes)
    return KernelLaunch(kernel, tuple(p.argument for p in parameters), nbytes, flops, may_overlap=True)


def per_position(
    parameters: Sequence[Parameter],
    count: int,
    lines: Sequence[str],
    nbytes: int,
    flops: int = 0,
    threads: int = THREADS,
    ctype: str = "int",
) -> KernelLaunch:
    """A thread for each position `p` below `count`, which `lines` may return from."""
    wide = "unsigned" if ctype == "int" else "u64"
    head = [f"const {wide} p = ({wide})blockIdx.x * {threads}u + threadIdx.x;", f"if (p >= {count}u) return;"]
    blocks = -(-count // threads)
    return launch_of(parameters, [*head, *lines], (blocks, 1, 1), (threads, 1, 1), nbytes, flops)


def reach_type(layouts: Sequence[Layout]) -> str:
    """The C++ type of offsets into tensors, and of positions in them."""
    return index_type([size for layout in layouts for size in (layout.reach, layout.size)])


@dataclass(frozen=True, slots=True)
class Ordered:
    """The axes of a shape as they are walked: `order` names them from the outermost in."""

    shape: tuple[int, ...]
    order: tuple[int, ...]

    def lines(self, position: str, ctype: str, width: int = 1) -> list[str]:
        """Statements that find the indices `c0`, `c1`, ... by axis; the innermost in steps of `width`."""
        sizes = [self.shape[axis] for axis in self.order]
        if not sizes:
            return []
        sizes[-1] //= width
        lines = index_lines("j", position, sizes, ctype)
        for place, axis in enumerate(self.order):
            step = f" * {width}" if place == len(self.order) - 1 and width > 1 else ""
            lines.append(f"const {ctype} c{axis} = j{place}{step};")
        return lines


def ordered_like(layout: Layout) -> Ordered:
    """The axes of a tensor in the order in which it lies."""
    axes = sorted(
        range(len(layout.shape)), key=lambda axis: -abs(layout.strides[axis]) if layout.shape[axis] != 1 else 0
    )
    unit = [axis for axis in axes if layout.shape[axis] == 1]
    return Ordered(layout.shape, (*unit, *(axis for axis in axes if layout.shape[axis] != 1)))


def at(layout: Layout, prefix: str = "c", without: Sequence[int] = ()) -> str:
    """The offset of the element at the indices `c0`, `c1`, ..., apart from some axes."""
    return offset_text(prefix, [0 if axis in without else stride for axis, stride in enumerate(layout.strides)])


def widest(layouts: Sequence[Layout], axis: int) -> int:
    """How many elements along `axis` can be moved as one, where all tensors are contiguous along it."""
    itemsize = layouts[0].itemsize
    width = ALIGNMENT // itemsize
    while width > 1 and not all(_holds(layout, axis, width) for layout in layouts):
        width //= 2
    return max(width, 1)


def _holds(layout: Layout, axis: int, width: int) -> bool:
    others = (stride for other, stride in enumerate(layout.strides) if other != axis)
    unit = width * layout.itemsize
    return (
        layout.strides[axis] == 1
        and layout.shape[axis] % width == 0
        and layout.alignment % unit == 0
        and not any(stride % width for stride in others)
    )


def common_type(itemsize: int) -> str:
    """The type as which `itemsize` bytes are moved."""
    return WORDS[itemsize]


def narrowed(layout: Layout, axis: int, width: int) -> Layout:
    """The tensor with `width` elements along `axis` taken for one: sizes and strides in such units."""
    shape, strides = list(layout.shape), [stride // width for stride in layout.strides]
    shape[axis] //= width
    strides[axis] = 1
    return replace(layout, shape=tuple(shape), strides=tuple(strides))


def walked(layouts: Sequence[Layout]) -> Space:
    """The joined space of tensors of one shape."""
    return Space(layouts[0].shape, tuple(layout.strides for layout in layouts)).ordered(0).joined()
