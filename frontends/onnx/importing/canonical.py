"""The form in which an import leaves a graph: one for all models that say the same.

ONNX does not keep the order in which a region lists what it captures, nor where a constant stands, nor which of two
equal sizes a node reads. Here each of them is put as it would come out of the next export and import.
"""

from collections.abc import Iterable, Sequence

from ....ir.attrs import Attrs
from ....ir.graph import Graph, Node, Value
from ....ir.op import Op
from ....ir.ops import native


def settle(graph: Graph) -> None:
    """Drops what nothing reads, states each size once, and moves what depends on nothing to its first reader."""
    _erase_unused(graph)
    _drop_unread_results(graph)
    _merge_sizes(graph)
    _place_constants(graph)


# ---- nodes


def _erase_unused(graph: Graph) -> None:
    """Erases every node none of whose results is read; what shape arithmetic told has left such chains behind."""
    for node in graph.reversed_nodes:
        if not node.has_uses:
            graph.erase(node)


_WITH_INDICES, _PLAIN = native("max_pool_with_indices"), native("max_pool")


def _drop_unread_results(graph: Graph) -> None:
    """Makes a plain pool of one with indices when all that read them is known, as if nothing had asked for them."""
    for node in graph.nodes:
        if node.op is _WITH_INDICES and not node.outputs[1].has_uses:
            attrs = {name: node.attrs[name] for name in _PLAIN.attrs}
            name = node.outputs[0].name
            plain = graph.insert_before(node, _PLAIN, node.inputs, attrs, origin=node.origin)
            graph.replace_uses(node.outputs[0], plain.output)
            graph.erase(node)
            graph.rename(plain.output, name)


_SIZES = (native("dims"), native("dim"))


def _merge_sizes(graph: Graph) -> None:
    """One node for equal sizes: an export computes them once."""
    stated: dict[tuple[Op, Attrs], Value] = {}
    for node in graph.nodes:
        if node.op not in _SIZES:
            continue
        known = stated.setdefault((node.op, node.attrs), node.output)
        if known is not node.output:
            graph.replace_uses(node.output, known)
            graph.erase(node)


def _place_constants(graph: Graph) -> None:
    """Moves what depends on nothing right before the first node that reads it, or last, wherever the model had it."""
    settled: set[Node] = set()
    for node in graph.nodes:
        for operand in node.operands:
            free = operand.producer
            if free is not None and free not in settled and _depends_on_nothing(free):
                settled.add(free)
                graph.move_before(free, node)
    returned = dict.fromkeys(value.producer for value in graph.outputs)
    last = [node for node in returned if node is not None and node not in settled and _depends_on_nothing(node)]
    if last:
        graph.reorder([*(node for node in graph.nodes if node not in set(last)), *last])


def _depends_on_nothing(node: Node) -> bool:
    return not node.inputs and node.op.is_pure and len(node.outputs) == 1


# ---- inputs of regions


def order_of_use(body: Graph, inputs: Sequence[Value]) -> list[int]:
    """The positions of `inputs` in the order in which the body first reads them; last what it never reads."""
    read = {value: place for place, value in enumerate(dict.fromkeys(_operands(body)))}
    return sorted(range(len(inputs)), key=lambda position: read.get(inputs[position], len(read)))


def _operands(body: Graph) -> Iterable[Value]:
    for node in body.nodes:
        yield from node.operands
    yield from body.outputs


def reorder_inputs(body: Graph, order: Sequence[int]) -> None:
    """Lists the inputs of a region in another order, each with a new value; names of such inputs mean nothing."""
    old = body.inputs
    if list(order) == list(range(len(old))):
        return
    for position in order:
        value = old[position]
        body.replace_uses(value, body.add_input(body.unused_name(value.name), value.type))
        body.remove_input(value)
