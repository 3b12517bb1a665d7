"""The pass `mask-padding`, which makes one dim of a whole graph safe to pad, and how calls are then padded.

It runs the proof of `padding/` and takes over its graph. `padding/repair.py` makes the masks of single nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...ir.constant import Array, is_array
from ...ir.dims import Dim, evaluate
from ...ir.errors import CapgraphError
from ...ir.evaluate import bind_inputs
from ...ir.graph import Graph, Node, Value
from ...ir.types import DType, Kind, TensorType, type_symbols
from ..framework.base import Pass
from ..framework.numeric import CallChange, Sample
from ..framework.rewriter import Rewriter
from .padding import SafetyReport, made_safe, real_size_input


@dataclass(frozen=True)
class MaskPadding(Pass):
    """Masks what stands behind the real elements of `symbol`, so that calls may be padded up to `largest`.

    See `mask_padding`; a graph that cannot be made safe stays what it is. How calls change is a `PadCalls`.
    """

    name: ClassVar[str] = "mask-padding"
    runs_once: ClassVar[bool] = True
    changes_calls: ClassVar[bool] = True
    symbol: str = ""
    largest: int | None = None
    least: int = 0

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        repaired: list[Node] = []
        safe, report = made_safe(graph, self.symbol, self.largest, self.least, partial(_noted, repaired))
        given = real_size_input(graph, self.symbol)
        if safe is not graph:
            chosen = iter(rewriter.allowed("mask", repaired))
            if rewriter.rewrites.total() < len(repaired):
                safe, report = self._partly(graph, chosen)
            if rewriter.rewrites:
                rewriter.adopt(safe)
        rewriter.calls = PadCalls(self.symbol, report, real_size_input(graph, self.symbol) != given)

    def _partly(self, graph: Graph, chosen: Iterator[Node]) -> tuple[Graph, SafetyReport]:
        """With as many of the repairs as are `chosen`."""
        return made_safe(graph, self.symbol, self.largest, self.least, lambda _: next(chosen, None) is not None)


def _noted(repaired: list[Node], node: Node) -> bool:
    repaired.append(node)
    return True


@dataclass(frozen=True)
class PadCalls(CallChange):
    """Calls may be padded along a dim as `report` says; where masks were made, they bring their real size."""

    symbol: str
    report: SafetyReport
    brings_size: bool

    def samples(self, before: Graph, sample: Sample) -> Iterator[Sample]:
        """The call as it is, and if that is safe, calls of smaller sizes that are padded to its own with garbage."""
        sizes: dict[str, int] = {}
        bind_inputs(before, sample.inputs, sizes)
        size = sizes.get(self.symbol)
        if size is None:
            yield sample
            return
        yield replace(sample, inputs=self._with_size(before, sample.inputs, size))
        smaller = {size - 1, 1} if self.report.is_safe and sample.cut is None else set[int]()
        for real in sorted(each for each in smaller if self.report.least <= each < size):
            exact = {**sizes, self.symbol: real}
            try:
                small = Sample.of(before, [_cut(v, each, exact) for v, each in _named(before, sample)])
            except CapgraphError:  # not every graph can be run at every size
                continue
            garbage = [self._padded(v, each, exact) for v, each in _named(before, sample)]
            yield replace(small, inputs=self._with_size(before, garbage, real), cut=_Prefixes(small.expected))

    def _with_size(self, before: Graph, inputs: Any, size: int) -> tuple[Any, ...]:
        known = real_size_input(before, self.symbol)
        values = [np.array(size) if v.name == known else each for v, each in zip(before.inputs, inputs, strict=True)]
        return (*values, np.array(size)) if self.brings_size else tuple(values)

    def _padded(self, value: Value, given: Any, sizes: Mapping[str, int]) -> Any:
        """An input with garbage behind its real elements, or what the proof asks for."""
        if self.symbol not in type_symbols(value.type) or not is_array(given):
            return given
        fill = self.report.fills.get(value.name)
        padded = np.full_like(given, _garbage(value.tensor.dtype) if fill is None else fill)
        real = _cut(value, given, sizes)
        padded[tuple(map(slice, real.shape))] = real
        return padded


def _named(graph: Graph, sample: Sample) -> Iterator[tuple[Value, Any]]:
    return zip(graph.inputs, sample.inputs, strict=True)


def _garbage(dtype: DType) -> Any:
    if dtype.kind in (Kind.FLOAT, Kind.COMPLEX):
        return np.nan
    return np.iinfo(dtype.numpy).max if dtype.is_integer else True


def _cut(value: Value, given: Any, sizes: Mapping[str, int]) -> Any:
    """The elements of an input that a call of these sizes has."""
    if not isinstance(value.type, TensorType) or not is_array(given):
        return given
    dims: tuple[Dim, ...] = value.shape
    return given[tuple(slice(evaluate(dim, sizes)) for dim in dims)]


@dataclass(frozen=True)
class _Prefixes:
    """Cuts outputs to the shapes of what is expected."""

    expected: tuple[Any, ...]

    def __call__(self, outputs: tuple[Any, ...]) -> tuple[Array, ...]:
        pairs = zip(outputs[: len(self.expected)], self.expected, strict=True)
        return tuple(new[tuple(map(slice, old.shape))] if is_array(old) else new for new, old in pairs)
