"""Text of kernels without reductions: every index of a shape computed by itself, in vectors of 16 bytes where possible.

The axes are joined as far as the tensors allow; a thread takes one vector along the last of them, or several that lie
a block apart where there is enough work for all multiprocessors, loads everything first and then computes and stores.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .launch import Chip, Kernel, KernelLaunch
from .layouts import Layout, Space, index_lines, index_type, offset_text
from .program import Fetch, Item, KernelProgram, KernelValue, Load

VECTOR_BYTES = 16
MOST_ELEMENTS = 8

WIDEST_BYTES = 16
"""What a thread moves of one tensor at most, also beside tensors of smaller elements: f16 to f32 took 44 us for 26."""

WARPS_TOGETHER = 4
"""So many warps a multiprocessor goes on with at a time."""

LONG_VALUES = 64
"""From so many values on that are computed for an element, it is these that take the time and not what is moved."""


@dataclass(frozen=True, slots=True)
class TensorAccess:
    """How one tensor is accessed: `width` elements from `pointer + offset`, as one vector or one by one."""

    pointer: str
    layout: Layout
    offset: str
    inner: int
    width: int
    is_packed: bool

    @property
    def pack(self) -> str:
        """The type of what one access moves."""
        return self.pack_of(self.width)

    def pack_of(self, width: int) -> str:
        """The type of `width` elements."""
        return f"pack<{self.layout.ctype}, {width}>"

    def read(self, into: str, extra: str = "") -> str:
        """A statement that fills `into` with elements from an offset that is `extra` further."""
        offset = f"{self.offset} + {extra}" if extra else self.offset
        if self.is_packed:
            return f"{into} = *(const {self.pack}*)({self.pointer} + ({offset}));"
        return f"{self.each()} {into}.v[w] = {self.pointer}[{offset} + w * {self.inner}];"

    def write(self, what: str) -> str:
        """A statement that writes `what`."""
        if self.is_packed:
            return f"*({self.pack}*)({self.pointer} + ({self.offset})) = {what};"
        return f"{self.each()} {self.pointer}[{self.offset} + w * {self.inner}] = {what}.v[w];"

    def each(self) -> str:
        """The loop over the elements of a vector."""
        return f'_Pragma("unroll") for (int w = 0; w < {self.width}; w++)'


@dataclass(frozen=True, slots=True)
class Reach:
    """How a tensor is moved through for the choice of a width: its stride along the last axis, and all others."""

    layout: Layout
    inner: int
    others: tuple[int, ...]

    def allows(self, width: int) -> bool:
        """Whether all vectors of `width` elements lie at addresses that one access may have."""
        unit = min(width * self.layout.itemsize, VECTOR_BYTES)
        steps = (stride * self.layout.itemsize for stride in self.others)
        return not self.layout.alignment % unit and not any(step % unit for step in steps)


def vector_width(length: int, reaches: Sequence[Reach]) -> int:
    """How many elements along the last axis, of size `length`, are moved at a time.

    All tensors that are contiguous along it must allow that by their alignment.
    """
    contiguous = [reach for reach in reaches if reach.inner == 1]
    if not contiguous:
        return 1
    narrowest = min(reach.layout.itemsize for reach in contiguous)
    has_wide = any(reach.layout.itemsize > 1 for reach in reaches)
    width = min(VECTOR_BYTES // narrowest, MOST_ELEMENTS if has_wide else VECTOR_BYTES)
    while width > 1 and (length % width or not all(reach.allows(width) for reach in contiguous)):
        width //= 2
    return max(width, 1)


def reaches_of(program: KernelProgram, space: Space, rows: Space | None = None) -> list[Reach]:
    """The tensors that may be moved in vectors along the last axis of `space`; `rows` are axes outside of it."""
    steps = {f"p_{load.text}": load.lookup.stride for load in program.loads if load.lookup is not None}
    in_memory = {name for name, _, _ in program.pointers()}
    found: list[Reach] = []
    for index, (name, layout) in enumerate(zip(program.tensors, program.layouts, strict=True)):
        if name not in in_memory or name.startswith(("i_", "p_fx")):
            continue
        outer = rows.strides[index] if rows is not None else ()
        others = (*space.strides[index][:-1], *outer, steps.get(name, 0))
        found.append(Reach(layout, space.inner(index), others))
    return found


@dataclass(frozen=True, slots=True)
class IndexWalk:
    """How a program's index space is walked: joined axes, the width of a vector, and the accesses by tensor."""

    space: Space
    width: int
    ctype: str
    tensors: dict[str, TensorAccess]

    @property
    def vectors(self) -> int:
        """How many vectors there are."""
        return self.space.size // self.width

    def index_lines(self, position: str) -> list[str]:
        """Statements that find the indices of vector number `position`."""
        if not self.space.shape:
            return []
        shape = (*self.space.shape[:-1], self.space.shape[-1] // self.width)
        lines = index_lines("j", position, shape, self.ctype)
        last = len(shape) - 1
        return [*lines, f"const {self.ctype} k{last} = j{last} * {self.width};"]


def walk_of(program: KernelProgram, threads: int = 0) -> IndexWalk:
    """How `program` is walked, the first store leading.

    One that computes long is not moved in vectors so wide that fewer than `threads` threads share its elements.
    """
    space = program.space().ordered(0).joined()
    reaches = reaches_of(program, space)
    width = vector_width(space.shape[-1], reaches) if space.shape else 1
    widest = max((each.layout.itemsize for each in reaches if each.inner == 1), default=1)
    while width > 1 and width * widest > WIDEST_BYTES:
        width //= 2
    is_long = len(program.values) >= LONG_VALUES
    while width > 1 and is_long and space.size < width * threads:
        width //= 2
    return IndexWalk(space, width, offsets_type(program), tensors_of(program, space, width))


def offsets_type(program: KernelProgram) -> str:
    """The C++ type of indices and offsets."""
    reaches = [layout.reach for layout in program.layouts]
    reaches += [load.lookup.size * abs(load.lookup.stride) for load in program.loads if load.lookup is not None]
    return index_type([math.prod(program.domain), *reaches])


def tensors_of(program: KernelProgram, space: Space, width: int, prefix: str = "") -> dict[str, TensorAccess]:
    """How each tensor is accessed while `space` is walked; pointers are named with `prefix`."""
    found: dict[str, TensorAccess] = {}
    for index, (name, layout) in enumerate(zip(program.tensors, program.layouts, strict=True)):
        inner = space.inner(index)
        offset = _offset(space.strides[index])
        found[name] = TensorAccess(prefix + name, layout, offset, inner, width, inner == 1 and width > 1)
    return found


def _offset(strides: Sequence[int]) -> str:
    """The offset at the indices j0, j1, ... and, along the last axis, in elements, k."""
    if not strides:
        return "0"
    outer = offset_text("j", strides[:-1])
    last = len(strides) - 1
    inner = "0" if not strides[-1] else f"k{last}" if strides[-1] == 1 else f"k{last} * {strides[-1]}"
    terms = [term for term in (outer, inner) if term != "0"]
    return " + ".join(terms) or "0"


# ---- text


def load_lines(walk: IndexWalk, loads: Sequence[Load], suffix: str) -> list[str]:
    """Statements that read one vector of each load into `x_NAME` + suffix."""
    lines: list[str] = []
    for load in loads:
        tensor = walk.tensors[f"p_{load.text}"]
        into = f"x_{load.text}{suffix}"
        if load.table:
            continue
        if load.lookup is not None:
            lines += _lookup_lines(walk, load, tensor, into)
        elif tensor.inner == 0:
            lines.append(f"{into}.v[0] = {tensor.pointer}[{tensor.offset}];")
        else:
            lines.append(tensor.read(into))
    return lines


def _lookup_lines(walk: IndexWalk, load: Load, tensor: TensorAccess, into: str) -> list[str]:
    assert load.lookup is not None
    indices = walk.tensors[f"i_{load.text}"]
    size, stride = load.lookup.size, load.lookup.stride
    if indices.inner:
        place = f"place_of({indices.pointer}[{indices.offset} + w * {indices.inner}], {size}) * {stride}"
        source = f"{tensor.pointer}[{tensor.offset} + w * {tensor.inner} + {place}]"
        return [f"{tensor.each()} {into}.v[w] = {source};"]
    row = f"({walk.ctype})place_of({indices.pointer}[{indices.offset}], {size}) * {stride}"
    if tensor.inner == 0:
        return [f"{into}.v[0] = {tensor.pointer}[{tensor.offset} + {row}];"]
    return [tensor.read(into, row)]


def is_uniform(walk: IndexWalk, load: Load) -> bool:
    """Whether all elements of a vector are one element in memory."""
    indices = walk.tensors.get(f"i_{load.text}")
    return not walk.tensors[f"p_{load.text}"].inner and (indices is None or not indices.inner)


def element_lines(walk: IndexWalk, program: KernelProgram, wanted: Collection[KernelValue], suffix: str) -> list[str]:
    """Statements for element `w` of a vector: what the loads and coordinates among the values `wanted` are there."""
    lines: list[str] = []
    for load in program.loads:
        if load not in wanted:
            continue
        tensor = walk.tensors[f"p_{load.text}"]
        at = "0" if is_uniform(walk, load) else "w"
        text = f"get(x_{load.text}{suffix}.v[{at}])"
        if load.table:
            text = f"t_{load.text}[{tensor.offset} + w * {tensor.inner}]"
        lines.append(f"const {load.ctype} {load.text} = {text};")
    for coordinate in program.coordinates:
        if coordinate in wanted:
            tensor = walk.tensors[coordinate.text]
            lines.append(f"const i64 {coordinate.text} = {tensor.offset} + w * {tensor.inner};")
    return lines


def item_lines(walk: IndexWalk, items: Sequence[Item]) -> list[str]:
    """Statements that compute `items` for element `w` of a vector."""
    lines: list[str] = []
    for item in items:
        if isinstance(item, Fetch):
            lines.append(_fetch_line(walk, item))
        else:
            lines.append(f"const {item.ctype} {item.text} = {item.expression};")
    return lines


def _fetch_line(walk: IndexWalk, item: Fetch) -> str:
    tensor = walk.tensors[f"p_{item.text}"]
    plain = "" if tensor.offset == "0" else f"{tensor.offset} + "
    moved = f"w * {tensor.inner} + " if tensor.inner else ""
    source = f"get({tensor.pointer}[{plain}{moved}{item.expression}])"
    if not item.condition:
        return f"const {item.ctype} {item.text} = {source};"
    default, condition = item.of(item.default), item.of(item.condition)
    return f"{item.ctype} {item.text} = {default}; if ({condition}) {item.text} = {source};"


def table_lines(program: KernelProgram) -> list[str]:
    """The constants that stand in the source."""
    return [
        f"const {load.ctype} t_{load.text}[{len(load.table)}] = {{{', '.join(load.table)}}};"
        for load in program.loads
        if load.table
    ]


def _body(program: KernelProgram, walk: IndexWalk, threads: int, rounds: int, first_block: int) -> list[str]:
    """The statements of a thread for one program, whose blocks begin at `first_block`."""
    loads = [load for load in program.loads if not load.table]
    block = f"(blockIdx.x - {first_block}u)" if first_block else "blockIdx.x"
    wide = "unsigned" if walk.ctype == "int" else "u64"
    position = f"const {wide} p = ({wide}){block} * {threads * rounds}u + u * {threads}u + threadIdx.x;"
    guard = f"if (p < {walk.vectors}u)" if walk.vectors % (threads * rounds) else ""
    loop = f'_Pragma("unroll") for (int u = 0; u < {rounds}; u++) {{ {position} {guard} {{'
    lines = table_lines(program)
    lines += [f"{walk.tensors[f'p_{load.text}'].pack} x_{load.text}[{rounds}];" for load in loads]
    if loads:
        lines += [loop, *walk.index_lines("p"), *load_lines(walk, loads, "[u]"), "}}"]
    lines += [loop, *walk.index_lines("p")]
    lines += [f"{walk.tensors[f'r{index}'].pack} y{index};" for index in range(len(program.stores))]
    lines += [f'_Pragma("unroll") for (int w = 0; w < {walk.width}; w++) {{']
    lines += element_lines(walk, program, program.values, "[u]")
    lines += item_lines(walk, program.items)
    lines += [f"put(y{index}.v[w], {store.value.text});" for index, store in enumerate(program.stores)]
    lines += ["}", *(walk.tensors[f"r{index}"].write(f"y{index}") for index in range(len(program.stores))), "}}"]
    return lines


def launch(programs: Sequence[KernelProgram], chip: Chip, flops: int = 0) -> tuple[KernelLaunch, ...]:
    """One kernel that runs `programs`, each by blocks of its own; none where there is nothing to write."""
    programs = [program for program in programs if math.prod(program.domain)]
    if not programs:
        return ()
    walks = [walk_of(program, chip.multiprocessors * WARPS_TOGETHER * 32) for program in programs]
    threads, rounds = _shape(programs, walks, chip)
    lines: list[str] = []
    parameters: list[str] = []
    blocks = 0
    for index, (program, walk) in enumerate(zip(programs, walks, strict=True)):
        prefix = f"s{index}_" if len(programs) > 1 else ""
        parameters.append(program.parameters(prefix))
        body = _body(program, walk, threads, rounds, blocks)
        blocks += -(-walk.vectors // (threads * rounds))
        lines += [f"if (blockIdx.x < {blocks}u) {{", *program.aliases(prefix), *body, "return; }"] if prefix else body
    text = f'extern "C" __global__ void __launch_bounds__({threads}) NAME({", ".join(parameters)}) {{\nbegin();\n'
    kernel = Kernel(text + "\n".join(lines) + "\n}\n", (blocks, 1, 1), (threads, 1, 1))
    arguments = tuple(argument for program in programs for argument in program.arguments())
    return (KernelLaunch(kernel, arguments, sum(p.nbytes for p in programs), flops, may_overlap=True),)


def _shape(programs: Sequence[KernelProgram], walks: Sequence[IndexWalk], chip: Chip) -> tuple[int, int]:
    """Threads of a block, and vectors of a thread."""
    vectors = sum(walk.vectors for walk in walks)
    resident = chip.multiprocessors * 2048
    tensors = max(len(program.loads) for program in programs)
    if vectors >= 4 * resident:
        return 256, 4 if tensors <= 1 else 2
    if vectors >= 2 * resident:
        return 256, 2 if tensors <= 2 else 1
    return (256, 1) if vectors >= resident // 2 else (128, 1)
