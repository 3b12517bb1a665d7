"""Segments reduced in the order of their slots, with what makes the updates and what follows in the same kernel.

A group of lanes has the slice of a segment, 16 bytes each, and several of its updates on their way at a time. Segments
that are long are left to whole blocks, whose groups take turns at the updates. Either order is fixed, so that results
are the same in each run. Sums of f32 and f64 carry along what each addition rounds off (Knuth's two-sum).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .....ir.errors import UnsupportedError
from .....ir.graph import Node, Value
from .....ir.ops.known import SEGMENT_REDUCE
from .....ir.types import DType
from ...kernel_ir.flat import (
    VECTOR_BYTES,
    IndexWalk,
    Reach,
    element_lines,
    item_lines,
    load_lines,
    offsets_type,
    table_lines,
    tensors_of,
    vector_width,
)
from ...kernel_ir.kernels import THREADS
from ...kernel_ir.launch import Candidate, Kernel, KernelLaunch, Lowering, Task
from ...kernel_ir.layouts import Layout, Space
from ...kernel_ir.pointwise import StatementBuilder, has_types, is_pointwise
from ...kernel_ir.program import KernelProgram
from ...kernel_ir.regions import FusedRegion, dtype_of, region_of, shape_of
from ...kernel_ir.types import computed

_LONG = 128
"""Segments of more slots are reduced by a whole block."""

_ON_THE_WAY = 4
"""How many updates a thread reads at a time."""

_EACH_ELEMENT = '_Pragma("unroll") for (int w = 0; w < {width}; w++)'


@dataclass(frozen=True)
class _Step:
    """What a kernel does at each update, or at each element of the result: a program, and how it is walked."""

    program: KernelProgram
    walk: IndexWalk

    def packs(self, count: str = "") -> list[str]:
        """Declarations of what is loaded, `count` times."""
        loads = [load for load in self.program.loads if not load.table]
        return [f"{self.walk.tensors[f'p_{load.text}'].pack} x_{load.text}{count};" for load in loads]

    def elements(self, suffix: str) -> list[str]:
        """Statements that compute element `w` of a vector."""
        return [
            *element_lines(self.walk, self.program, self.program.values, suffix),
            *item_lines(self.walk, self.program.items),
        ]


def lower_segments(task: Task) -> Iterator[Candidate]:
    """One kernel for a reduction of segments, with the elementwise work before and behind it."""
    region = region_of(task)
    reductions = [node for node in region.nodes if node.op is SEGMENT_REDUCE]
    if len(reductions) != 1 or not all(has_types(node) for node in region.nodes):
        return
    if dtype_of(reductions[0].output) not in (DType.F16, DType.BF16, DType.F32, DType.F64):
        return
    kernel = _SegmentKernel(region, reductions[0])
    yield Candidate("segments", (kernel.launch(),))


class _SegmentKernel:
    """The kernel of the node `reduction` of a region."""

    def __init__(self, region: FusedRegion, reduction: Node) -> None:
        self.region = region
        self.reduction = reduction
        self.dtype = dtype_of(reduction.output)
        before, after = self._update_program(), self._result_program()
        rest = _rest_of(before, after)
        width = _width(rest, before, after)
        self.words = math.prod(rest.shape) // width
        self.lanes = min(32, 1 << (self.words - 1).bit_length())
        self.chunks = -(-self.words // self.lanes)
        self.groups = THREADS // self.lanes
        self.width = width
        count = len(before.layouts)
        self.update = _walked(before, Space(rest.shape, rest.strides[:count]), width, "u_")
        self.result = _walked(after, Space(rest.shape, rest.strides[count:]), width, "y_")

    @property
    def segments(self) -> int:
        """How many there are."""
        return shape_of(self.reduction.output)[0]

    # ---- programs

    def _update_program(self) -> KernelProgram:
        updates = self.reduction.operands[3]
        program = KernelProgram(shape_of(updates))
        nodes = _made_for(updates, self.region.nodes)
        builder = StatementBuilder(replace(self.region, nodes=nodes), program)
        _define(builder, nodes)
        self.element = builder.name(updates).text
        return program

    def _result_program(self) -> KernelProgram:
        program = KernelProgram(shape_of(self.reduction.output))
        before = _made_for(self.reduction.operands[3], self.region.nodes)
        nodes = tuple(node for node in self.region.nodes if node not in before and node is not self.reduction)
        builder = StatementBuilder(replace(self.region, nodes=nodes), program)
        form = self._combined(f"({computed(self.dtype)})$0", "total[w]")
        combined = program.define(self.dtype, form, builder.name(self.reduction.operands[0]))
        builder.names[self.reduction.output] = combined
        _define(builder, nodes)
        for value, layout in self.region.results:
            if layout.shape != program.domain:
                raise UnsupportedError("a result has another shape than the segments")
            program.store(builder.name(value), layout)
        return program

    def _combined(self, left: str, right: str) -> str:
        functions = {"max": "greatest", "min": "least"}
        reduction = self.reduction.attrs["reduction"]
        if reduction in functions:
            return f"{functions[reduction]}({left}, {right})"
        return f"{left} {'+' if reduction == 'add' else '*'} {right}"

    # ---- text

    @property
    def carries(self) -> bool:
        """Whether what additions round off is kept."""
        return self.reduction.attrs["reduction"] == "add" and not self.dtype.is_small_float

    def launch(self) -> KernelLaunch:
        """The kernel with its arguments."""
        starts, slots = (self.region.sources[value] for value in self.reduction.operands[1:3])
        update, result = self.update.program, self.result.program
        own = [f"const {each.ctype}* {name}" for name, each in (("starts", starts), ("slots", slots))]
        parameters = filter(None, (update.parameters("u_"), result.parameters("y_"), *own))
        head = f'extern "C" __global__ void __launch_bounds__({THREADS}) NAME({", ".join(parameters)}) {{\nbegin();\n'
        lines = [*self._head(starts), *self._taking(slots), *self._finishing(), *self._turns()]
        blocks = -(-self.segments * self.chunks // self.groups)
        kernel = Kernel(head + "\n".join(lines) + "\n}\n", (blocks, 1, 1), (THREADS, 1, 1))
        arguments = (*update.arguments(), *result.arguments(), starts.place, slots.place)
        nbytes = update.nbytes + result.nbytes + starts.nbytes + slots.nbytes
        return KernelLaunch(kernel, arguments, nbytes, self.region.flops, may_overlap=True)

    def _head(self, starts: Layout) -> list[str]:
        ctype = computed(self.dtype)
        neutral = {"add": "-0.0", "mul": "1", "max": "-INFINITE", "min": "INFINITE"}[self.reduction.attrs["reduction"]]
        each = _EACH_ELEMENT.format(width=self.width)
        return [
            f"const int group = threadIdx.x / {self.lanes}, lane = threadIdx.x % {self.lanes};",
            f"const auto start_of = [&](int segment) {{ return starts[segment * {starts.strides[0]}]; }};",
            f"{ctype} total[{self.width}], lost[{self.width}];",
            f"const auto clear = [&] {{ {each} {{ total[w] = ({ctype}){neutral}; lost[w] = 0; }} }};",
            f"const auto take = [&](int w, {ctype} x) {{ {self._taken()} }};",
        ]

    def _taken(self) -> str:
        if not self.carries:
            return f"total[w] = {self._combined('total[w]', 'x')};"
        ctype = computed(self.dtype)
        return (
            f"const {ctype} old = total[w], sum = old + x, part = sum - old;"
            "lost[w] += (old - (sum - part)) + (x - part); total[w] = sum;"
        )

    def _taking(self, slots: Layout) -> list[str]:
        """`take_all(q, first, end, step)`: word `q` of every `step`-th update of a segment."""
        update, many = self.update, _ON_THE_WAY
        loop = f'_Pragma("unroll") for (int u = 0; u < {many}; u++)'
        place = self._place("j0", f"slots[at * {slots.strides[0]}]", "q", update.walk)
        return [
            "const auto take_all = [&](unsigned q, int first, int end, int step) {",
            *table_lines(update.program),
            f"for (int n = first; n < end; n += {many} * step) {{",
            *update.packs(f"[{many}]"),
            f"{update.walk.ctype} slot[{many}];",
            f"{loop} {{ const int at = n + u * step < end ? n + u * step : n; {place}",
            "slot[u] = j0;",
            *load_lines(update.walk, update.program.loads, "[u]"),
            "}",
            f"{loop} if (n + u * step < end) {{ {self._place('j0', 'slot[u]', 'q', update.walk)}",
            f"{_EACH_ELEMENT.format(width=self.width)} {{",
            *update.elements("[u]"),
            f"take(w, {self.element}); }} }} }} }};",
        ]

    def _finishing(self) -> list[str]:
        """`finish(segment, q)` writes word `q` of a slice."""
        result, each = self.result, _EACH_ELEMENT.format(width=self.width)
        stores = range(len(result.program.stores))
        carried = f"{each} if (lost[w] - lost[w] == 0 && lost[w] != 0) total[w] += lost[w];" if self.carries else ""
        return [
            "const auto finish = [&](int segment, unsigned q) {",
            *table_lines(result.program),
            self._place("j0", "segment", "q", result.walk),
            *result.packs(),
            *load_lines(result.walk, result.program.loads, ""),
            carried,
            *(f"{result.walk.tensors[f'r{n}'].pack} y{n};" for n in stores),
            f"{each} {{",
            *result.elements(""),
            *(f"put(y{n}.v[w], {store.value.text});" for n, store in enumerate(result.program.stores)),
            "}",
            *(result.walk.tensors[f"r{n}"].write(f"y{n}") for n in stores),
            "};",
        ]

    def _place(self, first: str, index: str, word: str, walk: IndexWalk) -> str:
        """Statements that find the indices of word `word` of slice `index`."""
        ctype, shape = walk.ctype, walk.space.shape
        lines = [f"const {ctype} {first} = {index};"]
        if len(shape) == 1:
            return f"{lines[0]} const {ctype} k0 = {first};"
        sizes = (*shape[1:-1], shape[-1] // self.width)
        left = word
        for axis in range(len(sizes), 0, -1):
            lines.append(f"const {ctype} j{axis} = {left}" + (f" % {sizes[axis - 1]}u;" if axis > 1 else ";"))
            left = f"({left} / {sizes[axis - 1]}u)"
        return " ".join([*lines, f"const {ctype} k{len(sizes)} = j{len(sizes)} * {self.width};"])

    def _turns(self) -> list[str]:
        """Each group's own segment, then the long ones of the block by all of its groups."""
        width, lanes, groups, chunks = self.width, self.lanes, self.groups, self.chunks
        ctype, each = computed(self.dtype), _EACH_ELEMENT.format(width=self.width)
        units = self.segments * chunks
        return [
            f"__shared__ {ctype} parts[{2 if self.carries else 1}][{THREADS}][{width}];",
            f"const unsigned base = blockIdx.x * {groups}u, unit = base + group;",
            f"const unsigned q = unit % {chunks}u * {lanes} + lane;",
            f"const int own = unit / {chunks}u; const bool is_there = unit < {units}u && q < {self.words}u;",
            f"const int begin = unit < {units}u ? start_of(own) : 0, end = unit < {units}u ? start_of(own + 1) : 0;",
            f"const bool is_long = end - begin > {_LONG};",
            "if (is_there && !is_long) { clear(); take_all(q, begin, end, 1); finish(own, q); }",
            "if (!__syncthreads_or(is_long)) return;",
            f"for (unsigned n = base; n < base + {groups} && n < {units}u; n++) {{",
            f"const int segment = n / {chunks}u, first = start_of(segment), last = start_of(segment + 1);",
            f"if (last - first <= {_LONG}) continue;",
            f"const unsigned word = n % {chunks}u * {lanes} + lane;",
            f"clear(); if (word < {self.words}u) take_all(word, first + group, last, {groups});",
            f"{each} {{ parts[0][threadIdx.x][w] = total[w]; {self._carried('[1][threadIdx.x][w] = lost[w]')} }}",
            "__syncthreads();",
            f"if (group == 0 && word < {self.words}u) {{",
            f"for (int other = 1; other < {groups}; other++) {{ const int from = other * {lanes} + lane;",
            f"{each} {{ take(w, parts[0][from][w]); {self._carried_back()} }} }}",
            "finish(segment, word); }",
            "__syncthreads(); }",
        ]

    def _carried(self, text: str) -> str:
        return f"parts{text};" if self.carries else ""

    def _carried_back(self) -> str:
        return "lost[w] += parts[1][from][w];" if self.carries else ""


def _define(builder: StatementBuilder, nodes: Sequence[Node]) -> None:
    for node in nodes:
        if is_pointwise(node):
            builder.elementwise(node)
        elif node.op.name != "gather":
            raise UnsupportedError(f"{node.op.name} is no pointwise work")


def _made_for(value: Value, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes of a region that `value` depends on."""
    wanted = {value}
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.operands)
    return tuple(node for node in nodes if not wanted.isdisjoint(node.outputs))


def _rest_of(*programs: KernelProgram) -> Space:
    """The axes of a slice, with the strides of all tensors of the programs."""
    strides = tuple(layout.strides[1:] for program in programs for layout in program.layouts)
    return Space(programs[0].domain[1:], strides).joined()


def _width(rest: Space, *programs: KernelProgram) -> int:
    """How many elements of a slice a thread has."""
    if not rest.shape:
        return 1
    reaches: list[Reach] = []
    strides = iter(rest.strides)
    for program in programs:
        steps = {f"p_{load.text}": load.lookup.stride for load in program.loads if load.lookup is not None}
        in_memory = {name for name, _, _ in program.pointers()}
        for name, layout in zip(program.tensors, program.layouts, strict=True):
            own = next(strides)
            if name in in_memory and not name.startswith("i_"):
                reaches.append(Reach(layout, own[-1], (*own[:-1], layout.strides[0], steps.get(name, 0))))
    width = vector_width(rest.shape[-1], reaches)
    widest = max((each.layout.itemsize for each in reaches if each.inner == 1), default=1)
    while width > 1 and width * widest > VECTOR_BYTES:
        width //= 2
    return width


def _walked(program: KernelProgram, rest: Space, width: int, prefix: str) -> _Step:
    strides = tuple((layout.strides[0], *own) for layout, own in zip(program.layouts, rest.strides, strict=True))
    space = Space((program.domain[0], *rest.shape), strides)
    walk = IndexWalk(space, width, offsets_type(program), tensors_of(program, space, width, prefix))
    return _Step(program, walk)


LOWERINGS: Mapping[str, Lowering] = {"segment_reduce": lower_segments}
"""Reductions of listed segments."""
