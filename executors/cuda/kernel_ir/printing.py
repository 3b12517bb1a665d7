"""The text of kernel programs and of launches, for readers and for tests.

    program over [4, 32], reduced along [1]
      ld0 = load #0 f16[4, 32] strides [32, 1]
      fd0: float = sum of ld0 from 0
      store fd0 to #1 f32[4, 1] strides [1, 0]

A launch has its grid, its blocks and its arguments in the order of the parameters: `#1+16` is 16 bytes into buffer 1 of
the plan, `transposed` a constant that was packed so.
"""

from collections.abc import Iterator

from .launch import Argument, BufferPlace, Candidate, Dim3, HostCall, KernelLaunch, Launch, Packed
from .layouts import Layout
from .program import Fetch, Item, KernelProgram, Load, Reduction


def print_program(program: KernelProgram) -> str:
    """The text of a kernel program, ending with a newline."""
    reduced = f", reduced along {list(program.reduced)}" if program.reduced else ""
    lines = [f"program over {list(program.domain)}{reduced}"]
    lines += [f"  {each.text} = {_load_text(each)}" for each in program.loads]
    lines += [f"  {each.text} = index, strides {list(each.layout.strides)}" for each in program.coordinates]
    lines += [f"  {_item_text(each)}" for each in program.items]
    lines += [f"  store {each.value.text} to {_layout_text(each.layout)}" for each in program.stores]
    return "\n".join(lines) + "\n"


def _load_text(load: Load) -> str:
    if load.table:
        return f"table of {len(load.table)}, strides {list(load.layout.strides)}"
    found = load.lookup
    along = f" at {_layout_text(found.layout)} of {found.size}, {found.stride} apart" if found is not None else ""
    return f"load {_layout_text(load.layout)}{along}"


def _item_text(item: Item) -> str:
    match item:
        case Fetch(layout=layout):
            where = f" where {item.of(item.condition)}, else {item.of(item.default)}" if item.condition else ""
            return f"{item.text} = fetch {_layout_text(layout)} + {item.expression}{where}"
        case Reduction(functor=functor, start=start):
            return f"{item.text}: {item.ctype} = {functor} of {item.expression} from {start}"
        case _:
            return f"{item.text}: {item.ctype} = {item.expression}"


def _layout_text(layout: Layout) -> str:
    return f"{_place_text(layout.place)} {layout.dtype}{list(layout.shape)} strides {list(layout.strides)}"


def launch_lines(candidate: Candidate) -> Iterator[str]:
    """A line for each launch of a candidate."""
    return map(_launch_text, candidate.launches)


def _launch_text(launch: Launch) -> str:
    match launch:
        case HostCall(reason):
            return f"host: {reason}"
        case KernelLaunch(kernel, arguments):
            more = f", clusters of {_sizes_text(kernel.cluster)}" if kernel.cluster != (1, 1, 1) else ""
            more += f", {kernel.shared_bytes:,} bytes shared" if kernel.shared_bytes else ""
            more += ", may overlap" if launch.may_overlap else ""
            head = f"kernel({', '.join(map(_argument_text, arguments))})"
            return f"{head}: {_sizes_text(kernel.grid)} blocks of {_sizes_text(kernel.block)} threads{more}"
        case _:
            roles = ", ".join(f"{role} {_argument_text(each)}" for role, each in launch.arguments.items())
            return f"{launch.library}({roles})"


def _sizes_text(sizes: Dim3) -> str:
    """`2 x 195` for (2, 195, 1)."""
    rank = max((axis for axis, size in enumerate(sizes, 1) if size != 1), default=1)
    return " x ".join(map(str, sizes[:rank]))


def _argument_text(argument: Argument) -> str:
    match argument:
        case BufferPlace():
            return _place_text(argument)
        case Packed(constant, packing):
            return f"{packing} {constant.dtype}{list(constant.shape)}"
        case _:
            return f"{argument.ctype} {argument.value}"


def _place_text(place: BufferPlace) -> str:
    return f"#{place.buffer}+{place.offset}" if place.offset else f"#{place.buffer}"
