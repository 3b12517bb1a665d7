"""Text of kernels with reductions: rows of any axes, each worked on by a group of threads.

Each stage of a program is one pass over the elements of a row. They are kept in registers between the passes where they
fit, read and computed again where they do not. A row may be split over many blocks: then there is a kernel for each
stage, and what the blocks found lies in scratch memory between them.

A thread has one row, or, where rows lie across memory, several that lie side by side, so that a vector holds an element
of each: what is known of a row is an array over the thread's rows, mostly of one.

Results for each element are written in the last pass, after everything that is reduced was read, by the thread that
read what lies there: results may lie over operands.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from .flat import IndexWalk, TensorAccess, element_lines, item_lines, load_lines, offsets_type, table_lines, tensors_of
from .layouts import Space, index_lines, offset_text
from .program import Item, KernelValue, Load, Reduction
from .reduction_schedule import ReductionSchedule, schedule
from .thread_groups import ThreadGroup
from .types import Name

MOST_BATCHED = 8
BATCH_BYTES = 128
"""Elements that a thread has on their way at a time where they are not kept: vectors, and bytes."""

_UNROLL = '_Pragma("unroll")'


@dataclass(frozen=True, slots=True)
class SplitStage:
    """The kernel of one stage where each row is split over `count` blocks, of `share` vectors each."""

    stage: int
    count: int
    share: int


class RowKernel:
    """The text of one kernel: the program of `analysis` by `group`, in vectors of `width`.

    Elements stay in registers between passes, or are read anew (`in_registers` False, and always with a `part`). A
    vector is part of a row, or an element of each of the `group.each` rows of a thread: then `width` is as many.
    """

    def __init__(
        self,
        analysis: ReductionSchedule,
        group: ThreadGroup,
        width: int,
        in_registers: bool,
        part: SplitStage | None = None,
    ) -> None:
        self.analysis = analysis
        self.program = analysis.program
        self.group = group
        self.in_registers = in_registers
        self.part = part
        self.ctype = offsets_type(self.program)
        self.each = group.each
        space = analysis.elements if self.each == 1 else analysis.elements_of(self.each)
        self.walk = IndexWalk(space, width, self.ctype, self._tensors(space, width))
        self.vectors = self.walk.vectors
        self.rounds = -(-self.vectors // group.size)
        self.schedule = schedule(analysis)
        self.batch = min(batch_of(analysis, width), max(self.rounds, 1))
        self.share = self.vectors if part is None else part.share

    def _tensors(self, space: Space, width: int) -> dict[str, TensorAccess]:
        """Accesses from the first element of the first row on."""
        tensors = tensors_of(self.program, space, width, "a_")
        for coordinate in self.program.coordinates:
            tensor = tensors[coordinate.text]
            tensors[coordinate.text] = replace(tensor, offset=f"b_{coordinate.text} + {tensor.offset}")
        return tensors

    def text(self) -> str:
        """The function."""
        lines = [*self._head(), *self._bases(), *table_lines(self.program), *self._row_operands()]
        if self.part is not None:
            for stage in range(self.part.stage):
                lines += [*self._row_statements(stage), *self._gathered_reductions(stage)]
            lines += [*self._row_statements(self.part.stage), *self._pass(self.part.stage)]
        else:
            lines += self._loads_into_registers() if self.in_registers else []
            for stage in range(self.analysis.last + 1):
                lines += [*self._row_statements(stage), *self._pass(stage)]
        lines += self._row_results()
        partials = (
            [f"{reduction.ctype}* q_{reduction.text}" for reduction in self.program.reductions]
            if self.part is not None
            else []
        )
        parameters = ", ".join([self.program.parameters(), *partials])
        head = f'extern "C" __global__ void __launch_bounds__({self.group.threads}) NAME({parameters}) {{\nbegin();\n'
        return head + "\n".join(lines) + "\n}\n"

    def grid(self) -> tuple[int, int, int]:
        """Blocks over rows, and over the parts of rows."""
        return (-(-self.analysis.row_count // self.group.rows), self.part.count if self.part is not None else 1, 1)

    # ---- which row, and where it lies

    def _head(self) -> list[str]:
        group, count = self.group, self.analysis.row_count
        lines = [f"const int t = {group.rank};"]
        if count % group.rows:
            lines.append(f"const {self.ctype} asked = {group.row}; const bool is_row = asked < {count};")
            lines.append(f"const {self.ctype} row = is_row ? asked : {count - self.each};")
        else:
            lines.append(f"const {self.ctype} row = {group.row}; const bool is_row = true;")
        if self.part is not None:
            end = f"from + {self.share} < {self.vectors} ? from + {self.share} : {self.vectors}"
            lines.append(f"const {self.ctype} from = ({self.ctype})blockIdx.y * {self.share}, upto = {end};")
        return [*lines, *index_lines("i", "row", self.analysis.rows.shape, self.ctype)]

    def _row_offset(self, tensor: str) -> str:
        return offset_text("i", self.analysis.rows.strides[self.program.tensors.index(tensor)])

    def _bases(self) -> list[str]:
        lines: list[str] = []
        for name, layout, is_written in self.program.pointers():
            const = "" if is_written else "const "
            lines.append(f"{const}{layout.ctype}* a_{name} = {name} + ({self._row_offset(name)});")
        for coordinate in self.program.coordinates:
            lines.append(f"const i64 b_{coordinate.text} = {self._row_offset(coordinate.text)};")
        return lines

    # ---- values of a row: arrays over the rows of the thread, filled in loops over `e`

    def _for_each_row(self, body: Sequence[str], used: Iterable[Name] = ()) -> list[str]:
        """`body` for each of the thread's rows; the row values that it uses have their own names there."""
        if not body:
            return []
        known = self._known(used, "e")
        return [f"{_UNROLL} for (int e = 0; e < {self.each}; e++) {{", "const int w = e;", *known, *body, "}"]

    def _known(self, used: Iterable[Name], index: str) -> list[str]:
        """The row values among `used`, of the row `index`."""
        known = self.analysis.row_values.intersection(used)
        return [f"const {each.ctype} {each.text} = {each.text}_[{index}];" for each in self._in_order(known)]

    def _in_order(self, values: Collection[KernelValue]) -> list[KernelValue]:
        return [value for value in self.program.values if value in values]

    def _row_operands(self) -> list[str]:
        """What is loaded once for each row."""
        operands = [each for each in self._in_order(self.analysis.row_values) if not isinstance(each, Item)]
        lines = [f"{each.ctype} {each.text}_[{self.each}];" for each in operands]
        body = [f"{each.text}_[e] = {self._row_operand(each)};" for each in operands]
        return [*lines, *self._for_each_row(body)]

    def _row_operand(self, value: KernelValue) -> str:
        if isinstance(value, Load):
            return self._row_load(value)
        return f"b_{value.text} + e * {self._step(value.text)}"

    def _step(self, tensor: str) -> int:
        """From a row of the thread to the next one, in elements of a tensor."""
        return self.analysis.rows.inner(self.program.tensors.index(tensor)) if self.each > 1 else 0

    def _row_load(self, load: Load) -> str:
        pointer = f"p_{load.text}"
        step = self._step(pointer)
        if load.table:
            return f"t_{load.text}[{self._row_offset(pointer)} + e * {step}]"
        if load.lookup is None:
            return f"get(a_{pointer}[e * {step}])"
        index = f"a_i_{load.text}[e * {self._step(f'i_{load.text}')}]"
        return f"get(a_{pointer}[e * {step} + place_of({index}, {load.lookup.size}) * {load.lookup.stride}])"

    def _row_statements(self, stage: int) -> list[str]:
        """What is known of a row once the reductions before `stage` are done."""
        known = [item for item in self.program.items if item in self.analysis.row_values]
        items = [item for item in known if self.analysis.stages[item] == stage and not isinstance(item, Reduction)]
        lines: list[str] = []
        for item in items:
            body = [*item_lines(self.walk, [item]), f"{item.text}_[e] = {item.text};"]
            lines += [f"{item.ctype} {item.text}_[{self.each}];", *self._for_each_row(body, item.uses)]
        return lines

    def _row_results(self) -> list[str]:
        if not self.analysis.row_stores or (self.part is not None and self.part.stage != self.analysis.last):
            return []
        first = " && blockIdx.y == 0" if self.part is not None else ""
        lines: list[str] = []
        for index in self.analysis.row_stores:
            tensor, value = self.walk.tensors[f"r{index}"], self.program.stores[index].value
            lines.append(f"{tensor.pack_of(self.each)} z{index};")
            lines += self._for_each_row([f"put(z{index}.v[e], {value.text});"], [value])
            lines.append(self._row_write(index, tensor))
        return [f"if (t == 0 && is_row{first}) {{", *lines, "}"]

    def _row_write(self, index: int, tensor: TensorAccess) -> str:
        step = self._step(f"r{index}")
        if self.each > 1 and step == 1:
            return f"*({tensor.pack_of(self.each)}*)a_r{index} = z{index};"
        return f"{_UNROLL} for (int e = 0; e < {self.each}; e++) a_r{index}[e * {step}] = z{index}.v[e];"

    # ---- reductions

    def _group_reduction(self, reduction: Reduction) -> list[str]:
        """The threads' findings reduced, in place."""
        template, name = self.group.reduce.format(reduction.functor), reduction.text
        if not self.group.shared:
            return [f"{name}_[0] = {template}({name}_[0]);"] if self.group.size > 1 else []
        shared = f"__shared__ {reduction.ctype} s_{name}[{self.group.shared}];"
        if self.group.is_column:
            return [shared, f"{template}({name}_, s_{name});"]
        return [shared, f"{name}_[0] = {template}({name}_[0], s_{name});"]

    def _started(self, reduction: Reduction) -> list[str]:
        """A reduction before it has seen anything."""
        fill = f"{_UNROLL} for (int e = 0; e < {self.each}; e++) {reduction.text}_[e] = {reduction.start};"
        return [f"{reduction.ctype} {reduction.text}_[{self.each}];", fill]

    def _gathered_reductions(self, stage: int) -> list[str]:
        """The reductions of an earlier stage, from what the blocks of its kernel found."""
        assert self.part is not None
        lines: list[str] = []
        for reduction in self.analysis.reductions(stage):
            name = reduction.text
            read = f"q_{name}[({self.ctype})s * {self.analysis.row_count} + row + e]"
            lines += [
                *self._started(reduction),
                f"for (int s = t; s < {self.part.count}; s += {self.group.size})",
                f"{_UNROLL} for (int e = 0; e < {self.each}; e++)",
                f"{name}_[e] = {reduction.functor}::of({name}_[e], {read});",
                *self._group_reduction(reduction),
            ]
        return lines

    def _reduction_result(self, reduction: Reduction) -> list[str]:
        lines = self._group_reduction(reduction)
        if self.part is None:
            return lines
        place = f"q_{reduction.text}[({self.ctype})blockIdx.y * {self.analysis.row_count} + row + e]"
        loop = f"{_UNROLL} for (int e = 0; e < {self.each}; e++)"
        return [*lines, f"if (t == 0 && is_row) {loop} {place} = {reduction.text}_[e];"]

    # ---- passes over the elements

    def _loads(self, wanted: Collection[KernelValue]) -> list[Load]:
        return [load for load in self.program.loads if load in wanted and not load.table]

    def _registers(self, loads: Sequence[Load], rounds: int) -> list[str]:
        return [f"{self.walk.tensors[f'p_{load.text}'].pack} x_{load.text}[{rounds}];" for load in loads]

    def _loads_into_registers(self) -> list[str]:
        loads = self._loads({value for needed, _ in self.schedule for value in needed})
        if not loads or not self.vectors:
            return []
        body = self._each_vector(load_lines(self.walk, loads, "[u]"), "t", str(self.vectors), self.rounds)
        return [*self._registers(loads, self.rounds), *body]

    def _each_vector(self, body: Sequence[str], start: str, stop: str, rounds: int) -> list[str]:
        """`body` for `rounds` vectors that are a group apart, from `start` on and before `stop`."""
        size = self.group.size
        step = size * (1 if self.in_registers else self.batch)
        is_even = self.vectors % step == 0 and self.share % step == 0
        guard = "" if is_even else f"if (p < {stop}) "
        loop = f"{_UNROLL} for (int u = 0; u < {rounds}; u++) {{ const {self.ctype} p = {start} + u * {size}; {guard}{{"
        return [loop, *self.walk.index_lines("p"), *body, "}}"]

    def _over_row(self, body: Sequence[str], loads: Sequence[Load]) -> list[str]:
        """`body` for each vector that is the thread's: over registers, or over memory, a batch of vectors at a time."""
        if self.in_registers:
            return self._each_vector(body, "t", str(self.vectors), self.rounds)
        start, stop = ("t", str(self.vectors)) if self.part is None else ("from + t", "upto")
        step = self.batch * self.group.size
        return [
            f"for ({self.ctype} first = {start}; first < {stop}; first += {step}) {{",
            *self._registers(loads, self.batch),
            *(self._each_vector(load_lines(self.walk, loads, "[u]"), "first", stop, self.batch) if loads else []),
            *self._each_vector(body, "first", stop, self.batch),
            "}",
        ]

    def _pass(self, stage: int) -> list[str]:
        """What the reductions and results of a stage need of each element, then the reductions."""
        reductions = self.analysis.reductions(stage)
        stores = self.analysis.element_stores if stage == self.analysis.last else ()
        lines = [line for reduction in reductions for line in self._started(reduction)]
        kept = self.schedule[stage][1] if self.in_registers else []
        if self.vectors and (reductions or stores or kept):
            lines += [f"{item.ctype} k_{item.text}[{self.rounds * self.walk.width}];" for item in kept]
            needed = (
                self.schedule[stage][0] if self.in_registers else self.analysis.closure(self.analysis.targets(stage))
            )
            lines += self._over_row(self._element_body(stage, reductions, stores, kept), self._loads(needed))
        for reduction in reductions:
            lines += self._reduction_result(reduction)
        return lines

    def _element_body(
        self, stage: int, reductions: Sequence[Reduction], stores: Sequence[int], kept: Sequence[Item]
    ) -> list[str]:
        walk, analysis = self.walk, self.analysis
        targets = analysis.targets(stage)
        needed = self.schedule[stage][0] if self.in_registers else analysis.closure(targets)
        head = [f"{walk.tensors[f'r{index}'].pack} y{index};" for index in stores]
        head.append(f"{_UNROLL} for (int w = 0; w < {walk.width}; w++) {{")
        lines = element_lines(walk, self.program, needed, "[u]")
        recalled = (analysis.uses(needed) | targets) - needed if self.in_registers else set[KernelValue]()
        lines += [
            f"const {each.ctype} {each.text} = k_{each.text}[u * {walk.width} + w];"
            for each in sorted(recalled, key=lambda value: value.text)
        ]
        lines += item_lines(walk, [item for item in self.program.items if item in needed])
        lines += [f"k_{each.text}[u * {walk.width} + w] = {each.text};" for each in kept]
        row = "w" if self.each > 1 else "0"
        lines += [
            f"{each.text}_[{row}] = {each.functor}::next({each.text}_[{row}], ({each.ctype})({each.expression}));"
            for each in reductions
        ]
        results = [self.program.stores[index].value for index in stores]
        lines += [f"put(y{index}.v[w], {value.text});" for index, value in zip(stores, results, strict=True)]
        used = [use for value in (*needed, *reductions) for use in value.uses]
        lines = [*head, *self._known([*used, *results], row), *lines, "}"]
        writes = [walk.tensors[f"r{index}"].write(f"y{index}") for index in stores]
        return [*lines, *([f"if (is_row) {{ {' '.join(writes)} }}"] if writes else [])]


def batch_of(analysis: ReductionSchedule, width: int) -> int:
    """How many vectors of every load a thread has on their way where they are not kept."""
    loads = [load for load in analysis.program.loads if analysis.is_element(load) and not load.table]
    loaded = sum(load.layout.itemsize for load in loads) * width
    return max(1, min(MOST_BATCHED, BATCH_BYTES // max(loaded, 1)))


def share_of(vectors: int, count: int, step: int) -> int:
    """How many of a row's vectors each of about `count` blocks gets, which takes `step` at a time: whole steps."""
    share = -(-vectors // count)
    return round(share / step) * step if share > step else share
