"""What the updates of a scatter are to its target: slots, each of which names one slice of the target.

The axes of the target that indices lead into are its leading ones; a slice is what is left of it at one place there,
and the update of a slot has the same axes. Indices that are broadcast along an axis (a whole row is added at each of
them) name slices too, so that each index is looked at once.
"""

import math
from dataclasses import dataclass, replace

from .....ir.ops.rules import normal_axis
from ...kernel_ir.kernels import Parameter, at, common_type, narrowed, reach_type, read, widest
from ...kernel_ir.launch import Task
from ...kernel_ir.layouts import INT_LIMIT, Layout, index_lines
from ...kernel_ir.moving import operand, result
from ...kernel_ir.program import raw


@dataclass(frozen=True, slots=True)
class Slots:
    """A scatter by slots. `coordinates` are statements that give slot `t0, t1, ...` its place `g0, g1, ...`.

    `leading` are the target's leading axes, `own` the axes of the updates that slots have; all others are the rest.
    """

    indices: Layout
    updates: Layout
    target: Layout
    leading: tuple[int, ...]
    own: tuple[int, ...]
    coordinates: tuple[str, ...]
    width: int = 1
    """How many elements are moved as one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the slots."""
        return tuple(self.updates.shape[axis] for axis in self.own)

    @property
    def count(self) -> int:
        """The number of slots."""
        return math.prod(self.shape)

    @property
    def slices(self) -> int:
        """The number of slices."""
        return math.prod(self.target.shape[axis] for axis in self.leading)

    @property
    def rest_of_updates(self) -> Layout:
        """The update of one slot."""
        return self.updates.without(self.own)

    @property
    def rest_of_target(self) -> Layout:
        """One slice, of which an update may leave the end as it is."""
        return self.target.without(self.leading)

    @property
    def rest(self) -> int:
        """The number of elements of an update."""
        return self.rest_of_updates.size

    @property
    def covers_slices(self) -> bool:
        """Whether an update is as large as a slice."""
        return self.rest_of_updates.shape == self.rest_of_target.shape

    @property
    def is_countable(self) -> bool:
        """Whether slots, slices and their elements can be counted by an int."""
        sizes = (self.updates.size, self.target.size, self.slices * self.rest, self.count)
        return max(*sizes, *(each.reach for each in (self.indices, self.updates, self.target))) < INT_LIMIT

    @property
    def parameters(self) -> list[Parameter]:
        """The tensors, as `r`, `indices` and `updates`."""
        word = common_type(self.width * self.updates.itemsize) if self.width > 1 else self.updates.ctype
        return [
            Parameter(f"{word}*", "r", self.target.place),
            read("indices", self.indices),
            Parameter(f"const {word}*", "updates", self.updates.place),
        ]

    def functions(self) -> list[str]:
        """The lambdas `slice_of(slot)` (negative outside of the target), `update_at(slot)` and `target_at(slice)`."""
        ctype = reach_type((self.indices, self.updates, self.target))
        sizes = [self.target.shape[axis] for axis in self.leading]
        inside = " && ".join(f"g{axis} >= 0 && g{axis} < {size}" for axis, size in enumerate(sizes)) or "true"
        flat = "0"
        for axis, size in enumerate(sizes):
            flat = f"({flat}) * {size} + g{axis}" if axis else "g0"
        slot = index_lines("t", "k", self.shape, ctype)
        return [
            "const auto slice_of = [&](unsigned k) -> int {",
            *slot,
            *self.coordinates,
            f"return {inside} ? (int)({flat}) : -1; }};",
            f"const auto update_at = [&](unsigned k) -> {ctype} {{",
            *slot,
            f"return {at(self.updates.permuted(self.own), 't')}; }};",
            f"const auto target_at = [&](unsigned s) -> {ctype} {{",
            *index_lines("g", "s", sizes, ctype),
            f"return {at(self.target.permuted(self.leading), 'g')}; }};",
        ]

    def rest_lines(self, position: str) -> list[str]:
        """Statements that find `of_update` and `of_target`, where element `position` of an update lies in either."""
        ctype = reach_type((self.updates, self.target))
        return [
            *index_lines("s", position, self.rest_of_updates.shape, ctype),
            f"const {ctype} of_update = {at(self.rest_of_updates, 's')};",
            f"const {ctype} of_target = {at(self.rest_of_target, 's')};",
        ]

    def moved(self, *alike: Layout) -> "Slots":
        """The same for elements that are only moved, several as one where both sides and those `alike` allow it."""
        updates, target = raw(self.updates), raw(self.target)
        own, leading = set(self.own), set(self.leading)
        ends = (_last_but(own, updates), _last_but(leading, target))
        width = 1
        if self.covers_slices and ends[0] is not None and ends[1] is not None:
            width = min(widest((updates,), ends[0]), widest((target, *map(raw, alike)), ends[1]))
            updates, target = narrowed(updates, ends[0], width), narrowed(target, ends[1], width)
        return replace(self, updates=updates, target=target, width=width)

    def in_words(self, alike: Layout) -> Layout:
        """A tensor like the target whose elements are moved as those of this are."""
        axis = _last_but(set(self.leading), self.target)
        return raw(alike) if axis is None else narrowed(raw(alike), axis, self.width)


def _last_but(axes: set[int], layout: Layout) -> int | None:
    """The last axis that is none of `axes`."""
    return next((axis for axis in reversed(range(len(layout.shape))) if axis not in axes), None)


def slots_of_elements(task: Task) -> Slots:
    """Those of `scatter_elements`: each index that is not another's repetition along a broadcast axis."""
    indices, updates, target = operand(task, 1), operand(task, 2), result(task)
    axis = normal_axis(task.node.attrs["axis"], len(target.shape))
    shown = range(len(target.shape))
    own = tuple(n for n in shown if n == axis or indices.strides[n] or indices.shape[n] == 1)
    place = at(indices.permuted(own), "t")
    asked = f"counted(indices[{place}], {target.shape[axis]})"
    coordinates = tuple(f"const i64 g{n} = {asked if each == axis else f't{n}'};" for n, each in enumerate(own))
    return Slots(indices, updates, target, own, own, coordinates)


def slots_of_tuples(task: Task) -> Slots:
    """Those of `scatter_nd`: one for each tuple of indices."""
    indices, updates, target = operand(task, 1), operand(task, 2), result(task)
    leading, depth = indices.shape[:-1], indices.shape[-1]
    place = at(indices.without([len(leading)]), "t")
    step = indices.strides[-1]
    coordinates = tuple(
        f"const i64 g{n} = counted(indices[{place} + {n * step}], {target.shape[n]});" for n in range(depth)
    )
    return Slots(indices, updates, target, tuple(range(depth)), tuple(range(len(leading))), coordinates)
