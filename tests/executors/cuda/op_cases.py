"""One node of each op, and which ops no kernel does, so that they are never recorded."""

from collections.abc import Iterator

from capgraph.ir.errors import CapgraphError
from capgraph.ir.graph import Graph, Node
from capgraph.ir.types import DType

from tests.strategies.graphs import random_graph, subjects

ATTEMPTS = 4

UNKNOWN_SIZES = frozenset(
    {
        "dynamic_arange",
        "dynamic_cumprod",
        "dynamic_cumsum",
        "dynamic_expand",
        "dynamic_full",
        "dynamic_one_hot",
        "dynamic_pad",
        "dynamic_reduce",
        "dynamic_reshape",
        "dynamic_resize",
        "dynamic_slice",
        "dynamic_split",
        "dynamic_squeeze",
        "dynamic_tile",
        "dynamic_top_k",
        "dynamic_unsqueeze",
        "varlen_attention",
    }
)
"""Their sizes, axes or launches depend on values."""

CONTROL_FLOW = frozenset({"if", "loop", "scan"})

RANDOM = frozenset({"bernoulli", "multinomial", "random_normal", "random_uniform"})
"""Programs put twins in their place, which read a state (`ir/random_state.py`)."""

NEVER_RECORDED = UNKNOWN_SIZES | CONTROL_FLOW | RANDOM


def op_cases(op: str) -> Iterator[tuple[Graph, Node, int]]:
    """Graphs around one node of `op`, that node, and a seed for inputs: one for each dtype of each operand."""
    for subject in subjects([op]):
        if subject.dtype is DType.STRING:
            continue
        for seed in range(ATTEMPTS):
            try:
                graph = random_graph(seed, ops=[op], max_nodes=1, symbols=False, subject=subject)
            except CapgraphError:
                continue
            node = next((each for each in graph.nodes if each.op.name == op), None)
            if node is not None:
                yield graph, node, seed
                break
