"""Tasks that are lowered alike: those of equal layers differ in names, in buffers, and in weights on the device.

A lowering is a function of its task, so what one task has become serves the others, with their memory in its stead.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....ir.constant import Constant
from ....ir.graph import Graph, Node, Value
from ....ir.plan import View
from ..kernel_ir.launch import Argument, BufferPlace, Candidate, KernelLaunch, Launch, LibraryCall, Packed, Task

READ_BYTES = 1 << 20
"""Up to so many bytes a lowering may read of a constant that is not at hand."""


class Alike:
    """What was lowered, by the key of its task."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Task, Sequence[Candidate]]] = {}

    def candidates(self, task: Task, lower: Callable[[Task], Iterable[Candidate]]) -> Sequence[Candidate]:
        """What `lower` makes of a task, or has made of one like it."""
        key = key_of(task)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = task, list(lower(task))
        first, found = known
        if first is task:
            return found
        places = dict(zip(_buffers(first), _buffers(task), strict=True))
        weights = {id(each): task.constants[index] for index, each in first.constants.items()}
        return [_elsewhere(each, places, weights) for each in found]

    def clear(self) -> None:
        """Forgets everything."""
        self._known.clear()


def key_of(task: Task) -> Hashable:
    """What a lowering sees of a task: equal for tasks that become the same but for buffers and weights."""
    buffers = {buffer: index for index, buffer in enumerate(_buffers(task))}
    views = [None if view is None else _placed(view, buffers) for view in (*task.operands, *task.results)]
    same = {id(each): index for index, each in task.constants.items()}
    constants = [(index, same[id(each)], _looked_at(each)) for index, each in task.constants.items()]
    scratch = None if task.scratch is None else (buffers[task.scratch.buffer], task.scratch.offset)
    room = task.scratch_bytes, task.tf32
    return (*node_lines(task.node), len(task.operands), *views, *constants, scratch, *room, task.chip)


def _looked_at(constant: Constant) -> str:
    """The content that a lowering may look at: not that of weights on a device."""
    return "" if not constant.is_at_hand and constant.nbytes > READ_BYTES else constant.digest


def _placed(view: View, buffers: Mapping[int, int]) -> tuple[Any, ...]:
    return buffers[view.buffer], view.offset, view.dtype, view.shape, view.strides


def _buffers(task: Task) -> list[int]:
    """The buffers of a task, in the order in which it names them."""
    named = [view.buffer for view in (*task.operands, *task.results) if view is not None]
    return list(dict.fromkeys([*named, *([] if task.scratch is None else [task.scratch.buffer])]))


def _elsewhere(candidate: Candidate, places: Mapping[int, int], weights: Mapping[int, Constant]) -> Candidate:
    """A candidate of one task as that of another one."""

    def moved(argument: Argument) -> Argument:
        if isinstance(argument, BufferPlace):
            return BufferPlace(places[argument.buffer], argument.offset)
        if isinstance(argument, Packed) and id(argument.constant) in weights:
            return replace(argument, constant=weights[id(argument.constant)])
        return argument

    def moved_launch(launch: Launch) -> Launch:
        if isinstance(launch, KernelLaunch):
            return replace(launch, arguments=tuple(map(moved, launch.arguments)))
        if isinstance(launch, LibraryCall):
            workspace = launch.workspace and BufferPlace(places[launch.workspace.buffer], launch.workspace.offset)
            arguments = {role: moved(argument) for role, argument in launch.arguments.items()}
            return replace(launch, arguments=arguments, workspace=workspace)
        return launch

    return replace(candidate, launches=tuple(map(moved_launch, candidate.launches)))


# ---- nodes without names


def node_lines(node: Node) -> Iterator[str]:
    """A node without names: ops, attributes, types; values of a body are numbered."""
    yield f"{node.op.name} {_attributes(node)}"
    for body in node.regions.values():
        yield from _body_lines(body)


def _body_lines(body: Graph) -> Iterator[str]:
    numbers: dict[Value, int] = {value: index for index, value in enumerate(body.inputs)}
    for node in body.nodes:
        operands = [None if value is None else numbers[value] for value in node.inputs]
        for value in node.outputs:
            numbers[value] = len(numbers)
        yield f"{[str(value.type) for value in node.outputs]} {operands}"
        yield from node_lines(node)
    yield str([numbers[value] for value in body.outputs])


def _attributes(node: Node) -> list[str]:
    return [f"{name}={_plain(value)}" for name, value in sorted(node.attrs.items()) if not isinstance(value, Graph)]


def _plain(value: Any) -> str:
    return value.digest if isinstance(value, Constant) else repr(value)
