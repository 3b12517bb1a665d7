"""Regions whose nodes do not fit one kernel: a kernel for each node, and what lies between them in scratch memory."""

import math
from collections.abc import Iterator
from dataclasses import replace

from ....ir.errors import UnsupportedError
from ....ir.graph import Graph, Node, Value
from ....ir.plan import View, contiguous_strides, element_bytes
from ..kernel_ir.copies import copied
from ..kernel_ir.launch import BufferPlace, Candidate, Launch, Task
from ..kernel_ir.regions import dtype_of, is_static, shape_of
from .creation import filled_with


def lower_stepwise(task: Task) -> Iterator[Candidate]:
    """The nodes of a region one after another, each by its first candidate; none where a node has no kernel."""
    body = task.node.attrs["body"]
    assert isinstance(body, Graph)
    if not all(is_static(node.outputs) for node in body.nodes):
        return
    plan = _Places(task, body)
    launches: list[Launch] = []
    for node in body.nodes:
        made = plan.constant(node) if node.op.name == "constant" else plan.lowered(node)
        if made is None:
            return
        launches += made
    launches += plan.copies()
    yield Candidate("stepwise", tuple(launches), plan.used)


class _Places:
    """Where the values of a region lie: operands and results where the task has them, others one behind another."""

    def __init__(self, task: Task, body: Graph) -> None:
        self.task = task
        self.used = 0
        self.views: dict[Value, View] = {}
        for value, view in zip(body.inputs, task.operands, strict=True):
            if view is not None:
                self.views[value] = view
        self.constants = {body.inputs[index]: constant for index, constant in task.constants.items()}
        self.targets = tuple(zip(body.outputs, task.results, strict=True))  # one value may be several results
        self.results = dict(self.targets)

    def _place(self, value: Value) -> View:
        """A result is written where the task wants it only when no operand is read from there afterwards.

        Scratch is set aside for it all the same: how much is wanted must not depend on what lies over what, which is
        not known yet while scratch is planned. Raises `UnsupportedError` where there is none.
        """
        shape, dtype = shape_of(value), dtype_of(value)
        offset = self.used
        self.used += -(-math.prod(shape) * element_bytes(dtype) // 256) * 256
        if value in self.results and not self._is_shared(self.results[value]):
            return self.results[value]
        if self.task.scratch is None:
            raise UnsupportedError("a region whose nodes run one by one needs scratch memory")
        place = self.task.scratch.offset + offset
        return View(self.task.scratch.buffer, place, dtype, shape, contiguous_strides(shape, element_bytes(dtype)))

    def _is_shared(self, view: View) -> bool:
        return any(operand is not None and operand.buffer == view.buffer for operand in self.task.operands)

    def constant(self, node: Node) -> tuple[Launch, ...]:
        """Writes a small constant."""
        view = self.views[node.output] = self._place(node.output)
        self.constants[node.output] = node.attrs["value"]
        return filled_with(node.attrs["value"], view, self.task.chip)

    def lowered(self, node: Node) -> tuple[Launch, ...] | None:
        """The launches of one node, by its first candidate; None where it has none."""
        from .tables import candidates

        for value in node.outputs:
            self.views[value] = self._place(value)
        operands = tuple(None if value is None else self.views[value] for value in node.inputs)
        known = {index: self.constants.get(value) for index, value in enumerate(node.inputs) if value is not None}
        part = replace(
            self.task,
            node=node,
            operands=operands,
            results=tuple(self.views[value] for value in node.outputs),
            constants={index: constant for index, constant in known.items() if constant is not None},
            scratch=self._behind(),
            scratch_bytes=max(self.task.scratch_bytes - self.used, 0),
        )
        first = next(candidates(part), None)
        if first is None:
            return None
        self.used += -(-first.scratch_bytes // 256) * 256
        return first.launches

    def _behind(self) -> BufferPlace | None:
        if self.task.scratch is None:
            return None
        return BufferPlace(self.task.scratch.buffer, self.task.scratch.offset + self.used)

    def copies(self) -> Iterator[Launch]:
        """What brings results to where the task wants them."""
        for value, view in self.targets:
            if self.views[value] != view:
                yield from copied(self.views[value], view, self.task.chip)
