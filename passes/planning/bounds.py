"""Bounds: sizes that only running tells become known ones, so that what depends on them can be recorded.

A node such as `non_zero` is put as its twin (`ir/ops/bounded.py`), which has room for all that it can find and tells in
device memory how much that is. What follows runs at the bound: the proof that lets batches be padded says that nothing
behind the real entries reaches a result, and its masks read the twin's count. Outputs are cut by the host, which reads
the counts once, when all has run. Where no bound is known or the proof fails a node stays what it is, and runs eagerly.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

from ...ir.analysis import node_flops, type_bytes
from ...ir.analysis.shape_values import DATA_SIZED, most_found
from ...ir.dims import Dim, SymDim, evaluate, symbol, symbols
from ...ir.errors import CapgraphError
from ...ir.graph import Graph, Node, Value
from ...ir.op import Trait
from ...ir.ops import native
from ...ir.ops.bounded import PREFIX
from ...ir.plan import Measured
from ...ir.target import HOST, Target
from ...ir.types import TensorType, type_symbols
from ..framework.base import Pass
from ..framework.numeric import CallChange, Sample
from ..framework.rewriter import Rewriter
from .padding import made_safe
from .reached import Mentions, put_back, reached
from .specialize import with_sizes

MOST_VISITS = 1 << 15
"""How many nodes all proofs of a graph may look at: each walks through the part that a size reaches."""

Captures = Callable[[Node], bool]


@dataclass(frozen=True)
class CutToMeasured(CallChange):
    """Outputs are cut to what a run found."""

    measured: Measured

    def samples(self, before: Graph, sample: Sample) -> list[Sample]:  # the contract's
        return [replace(sample, cut=partial(_cut, self.measured, sample))]


def _cut(measured: Measured, sample: Sample, outputs: tuple[Any, ...]) -> tuple[Any, ...]:
    found = list(outputs)
    if measured.output is not None:
        sizes = dict(zip(measured.symbols, found.pop(measured.output).tolist(), strict=True))
        for index, dims in measured.shapes.items():
            found[index] = found[index][tuple(slice(evaluate(dim, sizes)) for dim in dims)]
    return tuple(found) if sample.cut is None else sample.cut(tuple(found))


@dataclass(frozen=True)
class BoundSizes(Pass):
    """Puts twins with room for the most in the place of nodes whose sizes `target` can bound, ops in `kept` excepted.

    The other sizes of the graph are known. `captures` says whether the target has a kernel for a twin. How calls change
    is a `CutToMeasured`.
    """

    name: ClassVar[str] = "bound-sizes"
    runs_once: ClassVar[bool] = True
    changes_calls: ClassVar[bool] = True
    target: Target = field(default=HOST, repr=False)
    kept: tuple[str, ...] = ()
    captures: "Captures | None" = field(default=None, repr=False)

    def run(self, graph: Graph, rewriter: Rewriter) -> None:
        rewriter.calls = CutToMeasured(bound_sizes(graph, rewriter, self.target, self.kept, self.captures))


@dataclass
class _Found:
    """What was bounded so far: the counts' names by symbol, and why other nodes were not, by their first result."""

    counts: dict[str, str] = field(default_factory=dict[str, str])
    notes: dict[str, str] = field(default_factory=dict[str, str])
    refusals: dict[str, str] = field(default_factory=dict[str, str])
    visits: int = 0


class _Unbounded(Exception):  # a verdict, no error
    """Why a node stays what it is."""


def bound_sizes(
    graph: Graph,
    rewriter: Rewriter,
    target: Target,
    kept: Collection[str] = (),
    captures: Captures | None = None,
) -> Measured:
    """Puts the twins of `BoundSizes`. What its executor has to know of them."""
    found = _Found()
    names = [node.outputs[0].name for node in graph.nodes if can_bound(target, node) and node.op.name not in kept]
    shapes = {index: _dims(value) for index, value in enumerate(graph.outputs)}
    mentions = Mentions(graph)
    for name in names:
        node = graph.value(name).producer
        assert node is not None  # it was found as a node's result
        if not rewriter.may_rewrite("bound", node):
            break
        try:
            _put_bound(graph, mentions, node, target, captures, found)
        except _Unbounded as reason:
            found.refusals[name] = str(reason)
            rewriter.take_back("bound")
        except CapgraphError as error:
            found.refusals[name] = error.message
            rewriter.take_back("bound")
        else:
            rewriter.edited()
    cut = {index: dims for index, dims in shapes.items() if _mentioned(dims) & found.counts.keys()}
    needed = tuple(name for name in found.counts if any(name in _mentioned(dims) for dims in cut.values()))
    output = _return_counts(graph, [found.counts[name] for name in needed]) if needed else None
    return Measured(needed, output, cut, tuple(found.notes.values()), found.refusals)


def can_bound(target: Target, node: Node) -> bool:
    """Whether a node's sizes depend on values, and the target has its twin with room for the most."""
    return node.op.name in DATA_SIZED and f"{PREFIX}{node.op.name}" in target.bounded


def _dims(value: Value) -> tuple[Dim, ...]:
    ty = value.type
    return ty.dims if isinstance(ty, TensorType) and ty.shape is not None else ()


def _mentioned(dims: tuple[Dim, ...]) -> frozenset[str]:
    return frozenset[str]().union(*map(symbols, dims))


# ---- one node


def _put_bound(
    graph: Graph, mentions: Mentions, node: Node, target: Target, captures: Captures | None, found: _Found
) -> None:
    """Puts the twin of a node at its bound, and what follows of it. Raises `_Unbounded`, and changes nothing then."""
    name = node.outputs[0].name
    most = most_found(node)
    if not isinstance(most, int):
        raise _Unbounded(f"at most {most} entries, of which the number is not known")
    sizes = _sizes_of(mentions, node)
    part = reached(graph, mentions, sizes)
    found.visits += len(part.part)
    if found.visits > MOST_VISITS:
        raise _Unbounded(f"proofs on more than {MOST_VISITS} nodes take too long")
    if part.passes_draws:
        raise _Unbounded("random numbers would be drawn in another order")
    bound, count = _with_twin(part.part, name, sizes, most, target, captures)
    count = put_back(graph, part, bound, mentions)[bound.value(count)].name
    found.counts.update(dict.fromkeys(sizes, count))
    found.notes[name] = f"{node.op.name} %{name}: room for {most}, how many there are is counted on the device"


def _with_twin(
    graph: Graph, name: str, sizes: list[str], most: int, target: Target, captures: Captures | None
) -> tuple[Graph, str]:
    """A copy of `graph` with the twin of a node, at its bound, and the name of its count. Raises `_Unbounded`."""
    size = _unused_symbol(graph)
    copy = with_sizes(graph, dict.fromkeys(sizes, symbol(size)))
    count = _put_twin(copy, name, size)
    _check_work(copy, size, most, target)  # the proof takes as long as there are elements
    masked, report = made_safe(copy, size, most)
    if not report.is_safe:
        raise _Unbounded(report.failure)
    _check_work(masked, size, most, target)
    bound = with_sizes(masked, {size: most})
    twin = bound.value(count).producer
    if captures is not None and twin is not None and not captures(twin):
        raise _Unbounded("the target has no kernel for it with a bound")
    return bound, count


def _unused_symbol(graph: Graph) -> str:
    """A name for the size at hand: the same for each node, so that what is checked of one is known of those alike."""
    name = "found"
    while any(name in type_symbols(value.type) for value in graph.values):
        name = f"{name}_"
    return name


def _sizes_of(mentions: Mentions, node: Node) -> list[str]:
    """The symbols that a node makes; all of them count the same. Raises `_Unbounded` where there are others."""
    made = [dim for value in node.outputs for dim in value.shape if isinstance(dim, SymDim)]
    names = list(dict.fromkeys(name for dim in made for name in dim.symbols))
    if not names or any(dim != symbol(name) for dim in made for name in dim.symbols):
        raise _Unbounded("its type says more of its size than that it is unknown")
    others = [other for other in mentions.of(names) if other is not node and _makes(other, names)]
    if others or not mentions.of_inputs.isdisjoint(names):
        raise _Unbounded("its size is that of another value, which it has to be held against")
    return names


def _makes(node: Node, names: Collection[str]) -> bool:
    """Whether a node of unknown size has one of these sizes without an operand that has."""
    given = frozenset[str]().union(*(type_symbols(value.type) for value in node.operands))
    made = frozenset[str]().union(*(type_symbols(value.type) for value in node.outputs))
    return node.op.has(Trait.DATA_DEPENDENT | Trait.FOREIGN) and bool((made - given) & set(names))


def _put_twin(graph: Graph, name: str, size: str) -> str:
    """Puts the twin in the place of a node, still with a symbol for its size. The name of its count."""
    node = graph.value(name).producer
    assert node is not None  # it was found as a node's result
    attrs = {**node.attrs, "size": symbol(size)}
    names = [value.name for value in node.outputs]
    twin = graph.insert_before(node, native(f"{PREFIX}{node.op.name}"), node.inputs, attrs, origin=node.origin)
    for old, new in zip(node.outputs, twin.outputs, strict=False):
        graph.replace_uses(old, new)
    graph.erase(node)
    for wish, value in zip(names, twin.outputs, strict=False):
        graph.rename(value, wish)
    graph.rename(twin.outputs[-1], f"{name}_count")
    return twin.outputs[-1].name


def _check_work(graph: Graph, size: str, most: int, target: Target) -> None:
    """Raises `_Unbounded` where what runs at the bound would take more than it saves."""
    reached = [node for node in graph.nodes if any(size in type_symbols(value.type) for value in node.outputs)]
    made = (value for node in reached if not node.op.has(Trait.VIEW) for value in node.outputs)
    nbytes = sum(_number(type_bytes(value.type), {size: most}) for value in made)
    work = sum(_number(node_flops(node), {size: most}) for node in graph.nodes if _reads(node, size))
    if nbytes > target.padded_bytes:
        raise _Unbounded(f"room for {most} entries takes {nbytes:,} bytes in all, of at most {target.padded_bytes:,}")
    if work > target.padded_flops:
        raise _Unbounded(f"work on {most} entries takes {work:,} operations, of at most {target.padded_flops:,}")


def _reads(node: Node, size: str) -> bool:
    return any(size in type_symbols(value.type) for value in (*node.operands, *node.outputs))


def _number(dim: Dim, sizes: Mapping[str, int]) -> int:
    """A dim at these sizes; what depends on others as well counts as nothing."""
    return evaluate(dim, sizes) if symbols(dim) <= sizes.keys() else 0


# ---- counts


def _return_counts(graph: Graph, names: list[str]) -> int:
    """One more output, the last: i64 with a count for each of `names`. Its index."""
    vectors = [graph.append(native("reshape"), [graph.value(name)], {"shape": (1,)}).output for name in names]
    counts = graph.append(native("concat"), vectors, {"axis": 0}).output
    states, index = graph.states, len(graph.outputs)
    name = "counts"
    while name in graph.output_names:
        name = f"{name}_"
    graph.set_outputs([*graph.outputs, counts], [*graph.output_names, name])
    graph.set_states(states)
    return index
