"""Random numbers as a state of a graph: impure nodes become their twins, which read a state that the graph advances."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from .analysis import all_nodes
from .constant import Array, Constant
from .graph import Graph, Node, Value
from .ops import native
from .ops.keyed import PREFIX, STATE
from .ops.random import OPS
from .philox import fresh_state

NAME = "random_state"

_DRAWN = frozenset(OPS)


class Keyed(NamedTuple):
    """A graph that draws from `state`, an input and, advanced by `draws`, its last output; "" where nothing is drawn.

    Random nodes with a seed draw from a constant, and random nodes of bodies stay what they are.
    """

    graph: Graph
    state: str = ""
    draws: int = 0


def keyed(graph: Graph) -> Keyed:
    """`graph`, or a copy in which random nodes read their state."""
    if not any(node.op in _DRAWN for node in graph.nodes):
        return Keyed(graph)
    copy = graph.clone()
    found = [node for node in copy.nodes if node.op in _DRAWN]
    free = [node for node in found if _is_free(node)]
    for node in found:
        if node.attrs["seed"] is not None:
            content = Constant(fresh_state(int(node.attrs["seed"])))
            _draw_from(copy, node, copy.insert_before(node, native("constant"), [], {"value": content}).output, 0)
    if not free:
        return Keyed(copy)
    state = copy.add_input(copy.unused_name(NAME), STATE)
    for stream, node in enumerate(free):
        _draw_from(copy, node, state, stream)
    _return_advanced(copy, state, len(free))
    return Keyed(copy, state.name, len(free))


@contextmanager
def seeded(graph: Graph) -> Generator[None]:
    """Random nodes, also those of bodies, have seeds within: they draw the same each time, to be compared."""
    first = 1 << 62
    for number, node in enumerate(node for node in all_nodes(graph) if _is_free(node)):
        _set_seed(node, first + number)
    yield
    for node in all_nodes(graph):
        seed = node.attrs["seed"] if node.op in _DRAWN else None
        if isinstance(seed, int) and seed >= first:
            _set_seed(node, None)


def _is_free(node: Node) -> bool:
    return node.op in _DRAWN and node.attrs["seed"] is None


def _set_seed(node: Node, seed: int | None) -> None:
    assert node.graph is not None  # it stands in one
    node.graph.set_attrs(node, seed=seed)


def _draw_from(graph: Graph, node: Node, state: Value, stream: int) -> None:
    attrs = {name: value for name, value in node.attrs.items() if name != "seed"}
    operands = [*node.inputs, state]
    twin = graph.insert_before(
        node, native(f"{PREFIX}{node.op.name}"), operands, {**attrs, "stream": stream}, origin=node.origin
    )
    name = node.output.name
    graph.replace_uses(node.output, twin.output)
    graph.erase(node)
    graph.rename(twin.output, name)


def _return_advanced(graph: Graph, state: Value, draws: int) -> None:
    step = graph.append(native("constant"), [], {"value": Constant(np.array([0, draws], dtype=np.uint64))}).output
    advanced = graph.append(native("add"), [state, step]).output
    states, names = graph.states, graph.output_names
    name = f"{state.name}_after"
    while name in names:
        name = f"{name}_"
    graph.set_outputs([*graph.outputs, advanced], [*names, name])
    graph.set_states([*states, (len(graph.inputs) - 1, len(names))])


class RandomState:
    """The state of an eager program, which may be called from several threads."""

    def __init__(self) -> None:
        self._state = fresh_state()
        self._lock = threading.Lock()

    def take(self, draws: int) -> Array:
        """The state of a call that makes so many draws."""
        with self._lock:
            taken = self._state.copy()
            self._state[1] += np.uint64(draws)
        return taken

    def set(self, state: Array) -> None:
        """Goes on from that state."""
        with self._lock:
            self._state[...] = state
