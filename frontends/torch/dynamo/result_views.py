"""Results that lie in memory as PyTorch has them: views of arguments, of each other, or in an order of their own."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ....ir.dims import SymDim, symbols
from ....ir.graph import Value
from ..call import Call
from ..importer import FxImporter
from ..memory import ResultView, memory_order, owners, storage_of, view_of
from ..ops.complex_numbers import Pairs

Tellers = dict[str, tuple[int | str, int | None]]
"""For each symbol what tells it: the axis of an argument, by position, or of an output; None for a number."""

_SAID_TO_SHARE = torch.ops.aten.as_strided_scatter.default
"""Its fake result has the strides of its argument: that of an expanded one is dense."""


class ResultViews:
    """Finds them for the output `nodes` of a graph; `tellers` learns which outputs tell sizes that no argument does.

    `outputs` is what has to be an output for that: a tensor whose memory several results share, with its node. `spread`
    are those among them that lie in their memory with gaps, and how. `contents` are those that are the new content of
    an argument, and its position: a view of one has to begin where that of the argument does, as AOT autograd makes a
    view of the argument by the place of the result where sizes are symbolic, where an argument changes its shape, and
    where arguments share memory. `written` has what is copied to arguments.
    """

    def __init__(
        self,
        importer: FxImporter,
        nodes: Sequence[Any],
        placeholders: Sequence[Any],
        tellers: Tellers,
        written: Mapping[Any, Any],
    ) -> None:
        self.outputs: dict[str, tuple[Any, Value | Pairs]] = {}
        self.spread: dict[str, ResultView] = {}
        self.contents: dict[str, int] = {}
        self._written_to = {storage_of(source.meta.get("val")): target for target, source in written.items()}
        self._importer = importer
        self._placeholders = placeholders
        self._tellers = tellers
        self._fakes = {
            index: node.meta["val"]
            for index, node in enumerate(nodes)
            if isinstance(node, torch.fx.Node) and storage_of(node.meta.get("val")) is not None
        }
        self._nodes = nodes

    def find(self) -> dict[int, ResultView]:
        """The results, by position, that are another view of an argument or output than all of it as it comes."""
        arguments = {storage_of(node.meta.get("val")): place for place, node in enumerate(self._placeholders)}
        made_by = owners(self._nodes[next(iter(self._fakes))].graph) if self._fakes else {}
        together: dict[Any, dict[int, Any]] = {}
        for index, fake in self._fakes.items():
            together.setdefault(storage_of(fake), {})[index] = fake
        found: dict[int, ResultView] = {}
        for storage, fakes in together.items():
            if storage in arguments:
                position = arguments[storage]
                found |= self._views(position, fakes, self._placeholders[position].meta["val"])
            else:
                found |= self._views_of_output(fakes, made_by[storage])
        return found

    def _views(self, source: int | str, fakes: Mapping[int, Any], base: Any = None) -> dict[int, ResultView]:
        views = {index: view_of(source, fake, self._importer.sizes, base) for index, fake in fakes.items()}
        return {index: view for index, view in views.items() if view is not None and self._are_told(view)}

    def _are_told(self, view: ResultView) -> bool:
        mentioned = [symbols(dim) for dim in (*view.shape, *view.strides, view.offset)]
        return frozenset[str]().union(*mentioned) <= self._tellers.keys()

    def _views_of_output(self, fakes: Mapping[int, Any], owner: Any) -> dict[int, ResultView]:
        """Results in one memory: the only one, laid out as it lies, or several and parts, of what made the memory."""
        if owner.target is _SAID_TO_SHARE and 0 in owner.meta["val"].stride():
            return {}
        first, sizes = min(fakes), self._importer.sizes
        written_to = self._written_to.get(storage_of(fakes[first]))
        node = self._nodes[first]
        order = memory_order(fakes[first], sizes) if len(fakes) == 1 else None
        if order is None:
            node, order = owner, memory_order(owner.meta["val"], sizes)
            if order is None and len(fakes) > 1 and owner.target is operator.getitem:
                return {}  # parts beside each other, of memory that is no tensor of the graph
        elif order == tuple(range(len(order))) and written_to is None:
            return {}
        given, name = self._importer.known.get(node), f"out{first}"
        if not isinstance(given, Value | Pairs):
            return {}
        lying = given if order is None else in_order(self._importer, given, order)
        self._learn(name, lying)
        views = self._views(name, fakes)
        if order is not None:  # the numbers of the node lie there, whatever is said of its bits
            views = {index: view.beside(node.meta["val"]) for index, view in views.items()}
        else:  # with gaps
            self.spread.update(zip([name], self._views(name, {first: node.meta["val"]}).values(), strict=False))
        if views.keys() != fakes.keys() or (order is None and name not in self.spread):
            return {}
        self.outputs[name] = node, lying
        if written_to is not None and sizes.dim(owner.meta["val"].storage_offset()) == 0:
            self.contents[name] = self._placeholders.index(written_to)
        return views

    def _learn(self, name: str, lying: Value | Pairs) -> None:
        for axis, dim in enumerate(lying.shape):
            if isinstance(dim, SymDim) and str(dim) in dim.symbols:
                self._tellers.setdefault(str(dim), (name, axis))


def in_order(importer: FxImporter, given: Value | Pairs, order: Sequence[int]) -> Value | Pairs:
    """A tensor with its axes in the order of memory; of a complex one the parts stay last."""
    call = Call(importer.graph, importer.sizes, "output", (), None)
    if isinstance(given, Pairs):
        return Pairs(call.transpose(given.value, [*order, len(order)]))
    return call.transpose(given, order)
