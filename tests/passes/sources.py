"""Where graphs for the properties of passes come from, each a function of a seed."""

from collections.abc import Callable
from functools import cache

from capgraph.ir.graph import Graph
from capgraph.passes.framework.pattern import Rule

from tests.passes.aimed import aimed_graph, all_rules
from tests.passes.attentions import attention
from tests.passes.compositions import composition
from tests.passes.networks import network
from tests.strategies.graphs import random_graph

FAMILIES: dict[str, tuple[str, ...]] = {
    "views": ("reshape", "transpose", "squeeze", "unsqueeze", "expand", "slice", "split", "concat", "reverse", "cast"),
    "layout": ("reshape", "transpose", "concat", "split", "slice", "pad", "tile", "roll", "gather", "depth_to_space"),
    "pointwise": (
        "add",
        "sub",
        "mul",
        "div",
        "neg",
        "relu",
        "clip",
        "cast",
        "where",
        "min",
        "max",
        "abs",
        "logical_not",
    ),
    "functions": ("exp", "log", "sqrt", "pow", "sigmoid", "tanh", "erf", "mul", "add", "div", "softmax", "reduce_mean"),
    "products": ("matmul", "gemm", "conv", "add", "mul", "batch_norm", "pad", "reshape", "transpose", "einsum"),
    "reductions": ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "sub", "mul", "reshape", "transpose"),
    "sizes": (
        "shape",
        "dims",
        "dim",
        "size",
        "arange",
        "reshape",
        "expand",
        "gather",
        "concat",
        "unsqueeze",
        "squeeze",
    ),
    "dynamic sizes": (
        "shape",
        "cast",
        "add",
        "mul",
        "div",
        "full",
        "dynamic_reshape",
        "dynamic_expand",
        "slice",
        "where",
    ),
    "dynamic forms": (
        "dynamic_tile",
        "dynamic_full",
        "dynamic_pad",
        "dynamic_slice",
        "dynamic_split",
        "dynamic_arange",
        "dynamic_top_k",
        "dynamic_one_hot",
        "dynamic_reduce",
        "dynamic_unsqueeze",
        "dynamic_trilu",
        "shape",
        "concat",
        "gather",
        "mul",
    ),
    "control": ("if", "loop", "scan", "fused", "add", "mul", "reshape", "neg"),
}
"""Ops that rewrites bring together: few at a time, so that they meet."""


def _family(ops: tuple[str, ...]) -> Callable[[int], Graph]:
    return lambda seed: random_graph(seed, ops=ops, max_nodes=20)


@cache
def _rules() -> tuple[Rule, ...]:
    return tuple(rule for _, rule in all_rules())


SOURCES: dict[str, Callable[[int], Graph]] = {
    "any op": random_graph,
    "aimed": lambda seed: aimed_graph(seed, _rules()),
    "network": network,
    "attention": attention,
    "composition": composition,
    **{name: _family(ops) for name, ops in FAMILIES.items()},
}
"""The graph number `seed` of each source."""
