"""Text of kernels with folds: rows of any axes, each worked on by a team of threads.

Each stage of a program is one pass over the elements of a row. They are kept in registers between the passes where they
fit, read and computed again where they do not. A row may be split over many blocks: then there is a kernel for each
stage, and what the blocks found lies in scratch memory between them.

Results for each element are written in the last pass, after everything that is folded was read, by the thread that read
what lies there: results may lie over operands.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .flat import Tensor, Walk, element_lines, item_lines, load_lines, offsets_type, table_lines, tensors_of
from .layouts import index_lines, offset_text
from .levels import Analysis, schedule
from .program import Fetch, Fold, Item, Load
from .teams import Team
from .types import computed

MOST_BATCHED = 8
BATCH_BYTES = 128
"""Elements that a thread has on their way at a time where they are not kept: vectors, and bytes."""

_UNROLL = '_Pragma("unroll")'


@dataclass(frozen=True, slots=True)
class Part:
    """The kernel of one stage where each row is split over `count` blocks."""

    stage: int
    count: int


class RowKernel:
    """The text of one kernel: the program of `analysis` by `team`, in vectors of `width`.

    Elements stay in registers between passes, or are read anew (`in_registers` False, and always with a `part`).
    """

    def __init__(
        self, analysis: Analysis, team: Team, width: int, in_registers: bool, part: Part | None = None
    ) -> None:
        self.analysis = analysis
        self.program = analysis.program
        self.team = team
        self.in_registers = in_registers
        self.part = part
        self.ctype = offsets_type(self.program)
        self.walk = Walk(analysis.elements, width, self.ctype, self._tensors(width))
        self.vectors = analysis.row_length // width
        self.rounds = -(-self.vectors // team.size)
        self.schedule = schedule(analysis)
        loaded = sum(load.layout.itemsize for load in self._loads(analysis.stages)) * width
        self.batch = max(1, min(MOST_BATCHED, BATCH_BYTES // max(loaded, 1), self.rounds))

    def _tensors(self, width: int) -> dict[str, Tensor]:
        """Accesses from the first element of the row on."""
        tensors = tensors_of(self.program, self.analysis.elements, width, "a_")
        for coordinate in self.program.coordinates:
            tensor = tensors[coordinate.name]
            tensors[coordinate.name] = replace(tensor, offset=f"b_{coordinate.name} + {tensor.offset}")
        return tensors

    def text(self) -> str:
        """The function."""
        lines = [*self._head(), *self._bases(), *table_lines(self.program), *self._row_operands()]
        if self.part is not None:
            for stage in range(self.part.stage):
                lines += [*self._row_statements(stage), *self._gathered_folds(stage)]
            lines += [*self._row_statements(self.part.stage), *self._pass(self.part.stage)]
        else:
            lines += self._loads_into_registers() if self.in_registers else []
            for stage in range(self.analysis.last + 1):
                lines += [*self._row_statements(stage), *self._pass(stage)]
        lines += self._row_results()
        partials = [f"{fold.ctype}* q_{fold.name}" for fold in self.program.folds] if self.part is not None else []
        parameters = ", ".join([self.program.parameters(), *partials])
        head = f'extern "C" __global__ void __launch_bounds__({self.team.threads}) NAME({parameters}) {{\nbegin();\n'
        return head + "\n".join(lines) + "\n}\n"

    def grid(self) -> tuple[int, int, int]:
        """Blocks over rows, and over the parts of rows."""
        return (-(-self.analysis.row_count // self.team.rows), self.part.count if self.part is not None else 1, 1)

    # ---- which row, and where it lies

    def _head(self) -> list[str]:
        team, count = self.team, self.analysis.row_count
        lines = [f"const int t = {team.rank};"]
        if count % team.rows:
            lines.append(f"const {self.ctype} asked = {team.row}; const bool is_row = asked < {count};")
            lines.append(f"const {self.ctype} row = is_row ? asked : {count - 1};")
        else:
            lines.append(f"const {self.ctype} row = {team.row}; const bool is_row = true;")
        if self.part is not None:
            share = -(-self.vectors // self.part.count)
            end = f"from + {share} < {self.vectors} ? from + {share} : {self.vectors}"
            lines.append(f"const {self.ctype} from = ({self.ctype})blockIdx.y * {share}, upto = {end};")
        return [*lines, *index_lines("i", "row", self.analysis.rows.shape, self.ctype)]

    def _row_offset(self, tensor: str) -> str:
        return offset_text("i", self.analysis.rows.strides[self.program.tensors.index(tensor)])

    def _bases(self) -> list[str]:
        lines: list[str] = []
        for name, layout, is_written in self.program.pointers():
            const = "" if is_written else "const "
            lines.append(f"{const}{layout.ctype}* a_{name} = {name} + ({self._row_offset(name)});")
        for coordinate in self.program.coordinates:
            lines.append(f"const i64 b_{coordinate.name} = {self._row_offset(coordinate.name)};")
        return lines

    # ---- values of a row

    def _row_operands(self) -> list[str]:
        """What is loaded once for each row."""
        lines = [
            f"const {computed(load.layout.dtype)} {load.name} = {self._row_load(load)};"
            for load in self.program.loads
            if load.name in self.analysis.row_names
        ]
        lines += [
            f"const i64 {coordinate.name} = b_{coordinate.name};"
            for coordinate in self.program.coordinates
            if coordinate.name in self.analysis.row_names
        ]
        return lines

    def _row_load(self, load: Load) -> str:
        pointer = f"p_{load.name}"
        if load.table:
            return f"t_{load.name}[{self._row_offset(pointer)}]"
        if load.lookup is None:
            return f"get(a_{pointer}[0])"
        place = f"place_of(a_i_{load.name}[0], {load.lookup.size}) * {load.lookup.stride}"
        return f"get(a_{pointer}[{place}])"

    def _row_statements(self, stage: int) -> list[str]:
        """What is known of a row once the folds before `stage` are done."""
        known = [item for item in self.program.items if item.name in self.analysis.row_names]
        return item_lines(
            self.walk,
            [item for item in known if self.analysis.stages[item.name] == stage and not isinstance(item, Fold)],
        )

    def _row_results(self) -> list[str]:
        if not self.analysis.row_stores or (self.part is not None and self.part.stage != self.analysis.last):
            return []
        first = " && blockIdx.y == 0" if self.part is not None else ""
        writes = [f"put(a_r{index}[0], {self.program.stores[index].value});" for index in self.analysis.row_stores]
        return [f"if (t == 0 && is_row{first}) {{", *writes, "}"]

    # ---- folds

    def _team_fold(self, fold: Fold, partial: str, name: str) -> list[str]:
        """The threads' findings `partial` folded into `name`."""
        template = self.team.fold.format(fold.functor)
        if not self.team.shared:
            return [f"const {fold.ctype} {name} = {template}({partial});"]
        return [
            f"__shared__ {fold.ctype} s_{name}[{self.team.shared}];",
            f"const {fold.ctype} {name} = {template}({partial}, s_{name});",
        ]

    def _gathered_folds(self, stage: int) -> list[str]:
        """The folds of an earlier stage, from what the blocks of its kernel found."""
        assert self.part is not None
        lines: list[str] = []
        for fold in self.analysis.folds(stage):
            read = f"q_{fold.name}[({self.ctype})s * {self.analysis.row_count} + row]"
            lines += [
                f"{fold.ctype} g_{fold.name} = {fold.start};",
                f"for (int s = t; s < {self.part.count}; s += {self.team.size}) "
                f"g_{fold.name} = {fold.functor}::of(g_{fold.name}, {read});",
                *self._team_fold(fold, f"g_{fold.name}", fold.name),
            ]
        return lines

    def _fold_result(self, fold: Fold) -> list[str]:
        if self.part is None:
            return self._team_fold(fold, f"g_{fold.name}", fold.name)
        place = f"q_{fold.name}[({self.ctype})blockIdx.y * {self.analysis.row_count} + row]"
        return [
            *self._team_fold(fold, f"g_{fold.name}", f"w_{fold.name}"),
            f"if (t == 0 && is_row) {place} = w_{fold.name};",
        ]

    # ---- passes over the elements

    def _loads(self, names: Iterable[str]) -> list[Load]:
        wanted = {name for name in names if self.analysis.is_element(name)}
        return [load for load in self.program.loads if load.name in wanted and not load.table]

    def _registers(self, loads: Sequence[Load], rounds: int) -> list[str]:
        return [f"{self.walk.tensors[f'p_{load.name}'].pack} x_{load.name}[{rounds}];" for load in loads]

    def _loads_into_registers(self) -> list[str]:
        loads = self._loads({name for needed, _ in self.schedule for name in needed})
        if not loads or not self.vectors:
            return []
        body = self._each_vector(load_lines(self.walk, loads, "[u]"), "t", str(self.vectors), self.rounds)
        return [*self._registers(loads, self.rounds), *body]

    def _each_vector(self, body: Sequence[str], start: str, stop: str, rounds: int) -> list[str]:
        """`body` for `rounds` vectors that are a team apart, from `start` on and before `stop`."""
        size = self.team.size
        is_even = self.in_registers and self.vectors % size == 0
        guard = "" if is_even else f"if (p < {stop}) "
        loop = f"{_UNROLL} for (int u = 0; u < {rounds}; u++) {{ const {self.ctype} p = {start} + u * {size}; {guard}{{"
        return [loop, *self.walk.index_lines("p"), *body, "}}"]

    def _over_row(self, body: Sequence[str], loads: Sequence[Load]) -> list[str]:
        """`body` for each vector that is the thread's: over registers, or over memory, a batch of vectors at a time."""
        if self.in_registers:
            return self._each_vector(body, "t", str(self.vectors), self.rounds)
        start, stop = ("t", str(self.vectors)) if self.part is None else ("from + t", "upto")
        step = self.batch * self.team.size
        return [
            f"for ({self.ctype} first = {start}; first < {stop}; first += {step}) {{",
            *self._registers(loads, self.batch),
            *(self._each_vector(load_lines(self.walk, loads, "[u]"), "first", stop, self.batch) if loads else []),
            *self._each_vector(body, "first", stop, self.batch),
            "}",
        ]

    def _pass(self, stage: int) -> list[str]:
        """What the folds and results of a stage need of each element, then the folds."""
        folds = self.analysis.folds(stage)
        stores = self.analysis.element_stores if stage == self.analysis.last else ()
        lines = [f"{fold.ctype} g_{fold.name} = {fold.start};" for fold in folds]
        kept = self.schedule[stage][1] if self.in_registers else []
        if self.vectors and (folds or stores or kept):
            lines += [
                f"{_ctype(self.analysis.items[name])} k_{name}[{self.rounds * self.walk.width}];" for name in kept
            ]
            needed = (
                self.schedule[stage][0] if self.in_registers else self.analysis.closure(self.analysis.targets(stage))
            )
            lines += self._over_row(self._element_body(stage, folds, stores, kept), self._loads(needed))
        for fold in folds:
            lines += self._fold_result(fold)
        return lines

    def _element_body(self, stage: int, folds: Sequence[Fold], stores: Sequence[int], kept: Sequence[str]) -> list[str]:
        walk, analysis = self.walk, self.analysis
        targets = analysis.targets(stage)
        needed = self.schedule[stage][0] if self.in_registers else analysis.closure(targets)
        lines: list[str] = []
        lines += [f"{walk.tensors[f'r{index}'].pack} y{index};" for index in stores]
        lines.append(f"{_UNROLL} for (int w = 0; w < {walk.width}; w++) {{")
        lines += element_lines(walk, self.program, sorted(needed), "[u]")
        recalled = (analysis.uses(needed) | targets) - needed if self.in_registers else set()
        lines += [
            f"const {_ctype(analysis.items[name])} {name} = k_{name}[u * {walk.width} + w];"
            for name in sorted(recalled)
        ]
        lines += item_lines(walk, [item for item in self.program.items if item.name in needed])
        lines += [f"k_{name}[u * {walk.width} + w] = {name};" for name in kept]
        lines += [
            f"g_{fold.name} = {fold.functor}::next(g_{fold.name}, ({fold.ctype})({fold.text}));" for fold in folds
        ]
        lines += [f"put(y{index}.v[w], {self.program.stores[index].value});" for index in stores]
        lines.append("}")
        writes = [walk.tensors[f"r{index}"].write(f"y{index}") for index in stores]
        return [*lines, *([f"if (is_row) {{ {' '.join(writes)} }}"] if writes else [])]


def _ctype(item: Item) -> str:
    return computed(item.layout.dtype) if isinstance(item, Fetch) else item.ctype
