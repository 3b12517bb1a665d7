"""Random well-typed graphs over the native ops, and inputs for them.

    @given(st.data())
    def test_a_pass_keeps_the_meaning(data):
        graph = data.draw(graphs())
        sizes, arrays = data.draw(inputs_for(graph))
        expected = evaluate_graph(graph, arrays, sizes)

`random_graph(seed)` and `random_inputs(graph, seed)` draw the same kind of things without Hypothesis, a few hundred
graphs a second. How the operands of an op are drawn stands in `tests/strategies/ops/`, one file a family.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from capgraph.ir.constant import Array, Constant
from capgraph.ir.dims import evaluate, parse_dim
from capgraph.ir.errors import ShapeError, TypeRuleError
from capgraph.ir.graph import Graph, Node, Value
from capgraph.ir.op import Op, Trait
from capgraph.ir.ops import OPS
from capgraph.ir.types import type_symbols
from hypothesis import strategies as st

from tests.strategies.chooser import Chooser, HypothesisChooser, RandomChooser
from tests.strategies.draw import ORDERED_DTYPES, STEERING, GraphDraw, Sampler, Subject
from tests.strategies.ops import (
    cast,
    control,
    creation,
    elementwise,
    indexing,
    layout,
    linear,
    normalization,
    random,
    reduction,
    resampling,
    selection,
    sequences,
    slicing,
    windows,
)
from tests.strategies.sizes import HOME, admits
from tests.strategies.values import contents

_FAMILIES = (
    cast,
    control,
    creation,
    elementwise,
    indexing,
    layout,
    linear,
    normalization,
    random,
    reduction,
    resampling,
    selection,
    sequences,
    slicing,
    windows,
)
SAMPLERS: dict[str, Sampler] = {name: sampler for family in _FAMILIES for name, sampler in family.SAMPLERS.items()}
"""How the operands of an op are drawn, by its name; `elementwise.generic` serves the others."""

MAX_DEPTH = 2
"""How deep bodies may stand in bodies."""
ATTEMPTS = 4
LARGEST_SIZE = 7

Sizes = dict[str, int]


# ---- strategies


def graphs(*, ops: Sequence[str] | None = None, max_nodes: int = 12, symbols: bool = True) -> st.SearchStrategy[Graph]:
    """Graphs of up to `max_nodes` nodes of `ops` (by name, default all), besides the constants, casts and fills that
    their operands come from. Without `symbols` every input has plain sizes."""
    names = tuple(ops or OPS)

    @st.composite
    def drawn(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Graph:
        return draw_graph(HypothesisChooser(draw), names, max_nodes=max_nodes, symbolic=symbols)

    return drawn()


def inputs_for(graph: Graph) -> st.SearchStrategy[tuple[Sizes, list[Array]]]:
    """Sizes for the symbols of `graph`, and an array for each of its inputs."""

    @st.composite
    def drawn(draw: Callable[[st.SearchStrategy[Any]], Any]) -> tuple[Sizes, list[Array]]:
        return draw_inputs(HypothesisChooser(draw), graph)

    return drawn()


# ---- seeded


def random_graph(
    seed: int,
    *,
    ops: Sequence[str] | None = None,
    max_nodes: int = 12,
    symbols: bool = True,
    subject: Subject | None = None,
) -> Graph:
    """The graph number `seed`; it holds a node of the `subject`, if one is given."""
    return draw_graph(RandomChooser(seed), tuple(ops or OPS), max_nodes=max_nodes, symbolic=symbols, subject=subject)


def random_inputs(graph: Graph, seed: int) -> tuple[Sizes, list[Array]]:
    """Sizes and arrays number `seed` for a graph."""
    return draw_inputs(RandomChooser(seed), graph)


def random_arrays(graph: Graph, sizes: Sizes, seed: int) -> list[Array] | None:
    """Arrays number `seed` for inputs of these sizes; None where the graph does not admit them."""
    if not (all(admits_input(value, sizes) for value in graph.inputs) and admits(graph, sizes)):
        return None
    choose = RandomChooser(seed)
    return [_draw_input(choose, graph, value, sizes) for value in graph.inputs]


def subjects(ops: Sequence[str] | None = None) -> Iterator[Subject]:
    """Every op with every dtype that its signature admits for each operand."""
    for name in ops or OPS:
        op = OPS[name]
        if not op.operands:
            yield Subject(name)
        for operand in op.operands:
            yield from (Subject(name, operand.name, dtype) for dtype in ORDERED_DTYPES if dtype in operand.dtypes)


# ---- drawing graphs


def draw_graph(
    choose: Chooser, ops: Sequence[str], *, max_nodes: int, symbolic: bool, subject: Subject | None = None
) -> Graph:
    """A graph by the choices of `choose`."""
    grower = _Grower(ops)
    d = GraphDraw(choose, grower, symbolic=symbolic)
    if subject is not None:
        grower.add_subject(d, subject)
    more = max_nodes - (subject is not None)
    for _ in range(choose.integer(min(more, 1), more)):
        if not choose.as_one(lambda: _goes_on(d)):
            break
    _finish(d)
    return d.graph


def _goes_on(d: GraphDraw) -> bool:
    """Adds a node, or ends the graph."""
    if not d.choose.chance(97):
        return False
    d.grow()
    return True


class _Grower:
    """Adds nodes of given ops; control flow only where it is not too deep."""

    def __init__(self, ops: Sequence[str]) -> None:
        self._ops, self._flat = _ops_of(tuple(ops))

    def __call__(self, d: GraphDraw) -> None:
        for _ in range(ATTEMPTS):
            if self._added(d, d.choose.pick(self._flat if d.depth >= MAX_DEPTH else self._ops)) is not None:
                return

    def add_subject(self, d: GraphDraw, subject: Subject) -> None:
        """Tries to add a node of an op with a given dtype at a given operand."""
        d.subject = subject
        for _ in range(8 * ATTEMPTS):
            before = d.mark()
            node = self._added(d, OPS[subject.op])
            if node is not None and _shows(node, subject):
                break
            d.roll_back(before)
        d.subject = None

    @staticmethod
    def _added(d: GraphDraw, op: Op) -> Node | None:
        """A new node of `op`; None, and no trace, when a rule refuses the sample."""
        before = d.mark()
        try:
            return d.add(op, SAMPLERS.get(op.name, elementwise.generic)(d, op))
        except (ShapeError, TypeRuleError) as error:
            d.roll_back(before)
            d.note_refusal(op, error)
            return None


def _shows(node: Node, subject: Subject) -> bool:
    """Whether the operand of the subject is there, with the subject's dtype."""
    operands = [(node.op.operand_at(at).name, value) for at, value in enumerate(node.inputs) if value is not None]
    found = [value.tensor.dtype for name, value in operands if name == subject.operand]
    return subject.dtype is None or subject.dtype in found


@cache
def _ops_of(names: tuple[str, ...]) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """The ops of these names, and those of them without a body; once for all graphs, as there are thousands."""
    ops = tuple(OPS[name] for name in names)
    return ops, tuple(op for op in ops if not _has_body(op)) or (OPS["neg"],)


def _has_body(op: Op) -> bool:
    return op.has(Trait.CONTROL_FLOW) or op.name == "fused"


def _finish(d: GraphDraw) -> None:
    """Outputs: every result that nothing reads, and at times another value, twice, or under an odd name."""
    graph = d.graph
    outputs = [value for node in graph.nodes for value in node.outputs if not value.has_uses]
    if d.choose.chance(15) and d.values:
        outputs.append(d.choose.pick(d.values))
    if not outputs:
        outputs = list(graph.inputs[:1])
    graph.set_outputs(outputs, [f"out {i}" for i in range(len(outputs))] if d.choose.chance(10) else None)
    if d.choose.chance(15):
        _keep_state(d)
    if d.choose.chance(8):
        _give_default(d)


def _keep_state(d: GraphDraw) -> None:
    """Makes an output the next content of an input, where types allow."""
    pairs = [
        (old, new)
        for old, value in enumerate(d.graph.inputs)
        for new, output in enumerate(d.graph.outputs)
        if value.type == output.type
    ]
    if pairs:
        d.graph.set_states([d.choose.pick(pairs)])


def _give_default(d: GraphDraw) -> None:
    """Lets callers leave out an input that steers nothing."""
    metadata = d.graph.metadata
    static = [v for v in d.graph.inputs if v.tensor.is_static and f"{STEERING}{v.name}" not in metadata]
    if static:
        value = d.choose.pick(static)
        shape = tuple(int(dim) for dim in value.shape if isinstance(dim, int))
        d.graph.set_default(value, Constant(contents(d.choose, value.tensor.dtype, shape)))


# ---- drawing inputs


def draw_inputs(choose: Chooser, graph: Graph) -> tuple[Sizes, list[Array]]:
    """Sizes that the graph admits, and an array for each input; those that steer are in their range."""
    sizes = _draw_sizes(choose, graph)
    return sizes, [_draw_input(choose, graph, value, sizes) for value in graph.inputs]


def _draw_sizes(choose: Chooser, graph: Graph) -> Sizes:
    names = sorted(frozenset[str]().union(*(type_symbols(value.type) for value in graph.inputs)))
    home = {name: HOME.get(name, 2) for name in names}
    if not names or choose.chance(30):
        return home
    for _ in range(3):
        sizes = {name: choose.integer(0, LARGEST_SIZE) for name in names}
        if all(admits_input(value, sizes) for value in graph.inputs) and admits(graph, sizes):
            return sizes
    return home


def admits_input(value: Value, sizes: Sizes) -> bool:
    """Whether these sizes leave every size of an input non-negative."""
    try:
        return all(evaluate(dim, sizes) >= 0 for dim in value.shape)
    except ShapeError:  # it divides by a size of 0
        return False


def _draw_input(choose: Chooser, graph: Graph, value: Value, sizes: Sizes) -> Array:
    ty = value.tensor
    shape = tuple(evaluate(dim, sizes) for dim in ty.dims)
    steering = graph.metadata.get(f"{STEERING}{value.name}")
    if steering is None:
        return contents(choose, ty.dtype, shape)
    low, high = (evaluate(parse_dim(text), sizes) for text in steering.split(":"))
    integers = choose.generator().integers(low, max(high, low + 1), shape)
    return np.asarray(integers).astype(ty.dtype.numpy)
