"""What a program with reductions knows when: each value's level and stage, and the index space as rows of elements."""

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import TypeGuard

from .flat import reaches_of, vector_width
from .layouts import Layout, Space
from .program import Fetch, Item, KernelProgram, KernelValue, Load, Reduction
from .types import Name


class ReductionSchedule:
    """Levels and stages of a program's values.

    A value is of row level when it is the same for all elements of a row. What a reduction gives is of row level, and
    known one stage after what it reduces.
    """

    def __init__(self, program: KernelProgram) -> None:
        self.program = program
        self.row_values: set[KernelValue] = set()
        self.stages: dict[KernelValue, int] = {}
        self._classify()
        kept = [axis for axis in range(len(program.domain)) if axis not in program.reduced]
        whole, leader = program.space(), self._leader()
        self.leader = leader
        self.rows = whole.picked(kept).ordered(leader).joined()
        self.elements = whole.picked(program.reduced).ordered(leader).joined()

    def _leader(self) -> int:
        """The tensor in whose order the axes are walked: the largest."""
        layouts, names = self.program.layouts, self.program.tensors
        in_memory = {name for name, _, _ in self.program.pointers()}
        candidates = [index for index, name in enumerate(names) if name in in_memory]
        return max(candidates, key=lambda index: (layouts[index].nbytes, -index))

    def _classify(self) -> None:
        for load in self.program.loads:
            self._add(load, 0, self._is_fixed(load.layout) and self._has_fixed_lookup(load))
        for coordinate in self.program.coordinates:
            self._add(coordinate, 0, self._is_fixed(coordinate.layout))
        for item in self.program.items:
            stage = max((self.stages[value] for value in item.uses), default=0)
            is_row = self.row_values.issuperset(item.uses)
            if isinstance(item, Reduction):
                self._add(item, stage + 1, is_row=True)
            else:
                self._add(item, stage, is_row and (not isinstance(item, Fetch) or self._is_fixed(item.layout)))

    def _add(self, value: KernelValue, stage: int, is_row: bool) -> None:
        self.stages[value] = stage
        if is_row:
            self.row_values.add(value)

    def _is_fixed(self, layout: Layout) -> bool:
        """Whether a tensor has one element for each row."""
        return not any(layout.strides[axis] for axis in self.program.reduced if layout.shape[axis] != 1)

    def _has_fixed_lookup(self, load: Load) -> bool:
        return load.lookup is None or self._is_fixed(load.lookup.layout)

    def _is_row_store(self, index: int) -> bool:
        store = self.program.stores[index]
        return not self.is_element(store.value) and self._is_fixed(store.layout)

    @cached_property
    def element_stores(self) -> tuple[int, ...]:
        """The results that are written for each element."""
        return tuple(index for index in range(len(self.program.stores)) if not self._is_row_store(index))

    @cached_property
    def row_stores(self) -> tuple[int, ...]:
        """The results that are written once for each row."""
        return tuple(index for index in range(len(self.program.stores)) if self._is_row_store(index))

    @cached_property
    def last(self) -> int:
        """The last stage."""
        return max(self.stages.values(), default=0)

    def reductions(self, stage: int) -> list[Reduction]:
        """The reductions that read elements of `stage`."""
        return [item for item in self.program.reductions if self.stages[item] == stage + 1]

    @property
    def passes(self) -> int:
        """How many stages read elements."""
        return sum(bool(self.targets(stage)) for stage in range(self.last + 1))

    def targets(self, stage: int) -> set[KernelValue]:
        """The element values that reductions read in the pass of a stage; in the last one also results."""
        found: set[Name] = {value for reduction in self.reductions(stage) for value in reduction.uses}
        if stage == self.last:
            found |= {self.program.stores[index].value for index in self.element_stores}
        return {value for value in found if self.is_element(value)}

    def is_element(self, value: Name) -> TypeGuard[KernelValue]:
        """Whether it is a value of each element."""
        return isinstance(value, KernelValue) and value not in self.row_values

    def closure(self, targets: Iterable[KernelValue], known: Collection[KernelValue] = ()) -> set[KernelValue]:
        """The element values that have to be computed for `targets` where `known` ones are there already."""
        found, pending = set[KernelValue](), list(targets)
        while pending:
            value = pending.pop()
            if value not in found and value not in known and self.is_element(value):
                found.add(value)
                pending += value.uses
        return found

    def uses(self, values: Iterable[KernelValue]) -> set[KernelValue]:
        """The element values that `values` use."""
        return {use for value in values for use in value.uses if self.is_element(use)}

    @property
    def row_length(self) -> int:
        """Elements of a row."""
        return self.elements.size

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return self.rows.size

    def width(self) -> int:
        """How many elements of a row are moved at a time."""
        shape = self.elements.shape
        return vector_width(shape[-1], reaches_of(self.program, self.elements, self.rows)) if shape else 1

    def width_across(self) -> int:
        """How many rows are moved at a time, an element of each, where rows lie side by side."""
        shape = self.rows.shape
        return vector_width(shape[-1], reaches_of(self.program, self.rows, self.elements)) if shape else 1

    def elements_of(self, rows: int) -> Space:
        """The elements of `rows` rows that lie side by side: the rows are the last axis."""
        across = zip(self.elements.strides, self.rows.strides, strict=True)
        return Space((*self.elements.shape, rows), tuple((*along, outer[-1]) for along, outer in across))

    def held(self) -> int:
        """How many values of each element wait in registers for a later pass, apart from what was loaded."""
        return max((len(kept) for _, kept in schedule(self)), default=0)


def schedule(analysis: ReductionSchedule) -> list[tuple[set[KernelValue], list[Item]]]:
    """For the pass of each stage over registers: the element values that it computes, and those kept for later ones."""
    computed: list[set[KernelValue]] = []
    done = set[KernelValue]()
    for stage in range(analysis.last + 1):
        needed = analysis.closure(analysis.targets(stage), known=done)
        computed.append(needed)
        done.update(value for value in needed if isinstance(value, Item))
    passes: list[tuple[set[KernelValue], list[Item]]] = []
    for stage, needed in enumerate(computed):
        later = set[KernelValue]()
        for other in range(stage + 1, analysis.last + 1):
            later |= analysis.uses(computed[other]) | analysis.targets(other)
        passes.append((needed, [item for item in analysis.program.items if item in later & needed]))
    return passes
